//! The slowest eviction engine: translates every packet of every entry again after each change.
//!
//! The engine reads no deltas and no masks of rules, so its code has few causes of errors.
//! `BruteForce` checks only the given packets.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::{FlowKey, FlowMask};
use shunt_pipeline::{Delta, EntryId, Evictor, Installed, OwnerId, Pipeline, Traversal, Version};

/// An engine that checks each entry with all packets of a small packet space.
pub struct BruteForce {
    pipeline: Arc<Pipeline>,
    /// All packets of the packet space.
    packets: Vec<FlowKey>,
    version: Version,
    /// The traversal of each entry, and the numbers of the packets that it covers.
    entries: BTreeMap<EntryId, (Arc<Traversal>, Vec<usize>)>,
}

impl BruteForce {
    /// Creates an engine without entries, at the newest version of a pipeline.
    ///
    /// `packets` has all packets that entries can cover.
    #[must_use]
    pub fn new(pipeline: Arc<Pipeline>, packets: Vec<FlowKey>) -> Self {
        let version = pipeline.version();
        Self { pipeline, packets, version, entries: BTreeMap::new() }
    }
}

impl Evictor for BruteForce {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        let (key, mask) = (FlowKey::from(&traversal.key), FlowMask::from(&traversal.mask));
        let all = self.packets.iter().enumerate();
        let own = all.filter(|(_, packet)| packet.agrees_with(&key, &mask));
        let own = own.map(|(number, _)| number).collect();
        self.entries.insert(entry, (Arc::clone(traversal), own));
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.entries.remove(&entry);
    }

    fn apply(&mut self, _deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let version = self.version.max(version);
        self.version = version;
        let translate = |packet| self.pipeline.translate(packet, version);
        let now: Vec<_> = self.packets.iter().map(translate).collect();
        let is_stale = |(traversal, own): &(Arc<Traversal>, Vec<usize>)| {
            own.iter().any(|packet| !traversal.decides_like(&now[*packet]))
        };
        self.entries.extract_if(.., |_, entry| is_stale(entry)).map(|(id, _)| id).collect()
    }

    fn forget(&mut self, owner: OwnerId) {
        self.entries.retain(|id, _| id.owner != owner);
    }

    fn len(&self) -> usize {
        self.entries.len()
    }
}
