//! The slowest engine: translates every packet of every entry again after each change.
//!
//! It reads no delta and no mask of a rule, so there is little that it could get wrong. It
//! checks only the given packets.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::{FlowKey, FlowMask};
use shunt_pipeline::{Delta, EntryId, Evictor, Installed, OwnerId, Pipeline, Traversal, Version};

/// An engine that watches entries by all packets that exist.
pub struct BruteForce {
    pipeline: Arc<Pipeline>,
    packets: Vec<FlowKey>,
    version: Version,
    /// The traversal of each entry, and the numbers of its packets.
    entries: BTreeMap<EntryId, (Arc<Traversal>, Vec<usize>)>,
}

impl BruteForce {
    /// Creates an engine without entries, at the newest version of a pipeline.
    ///
    /// `packets` are all packets that exist.
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
