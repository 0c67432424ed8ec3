//! The iterative eviction engine: after every version, it translates every entry again.
//!
//! Open vSwitch's revalidator compares actions and masks alone: it keeps an entry if other rules
//! now give the same result. Shunt also compares the rules, because it credits the hits of an entry
//! to its rules. The engine costs a translation per entry and version, and it is simple. The
//! iterative engine is the baseline of measurements, and the reference in tests of other engines.
//!
//! An entry stays if a new translation of its packet has the same actions, rules and reads, and
//! consults no bit that the entry's mask leaves open. An entry that passes the check is right for
//! every packet of its region.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;

use super::{
    engine_state::EngineState,
    evictor::{EntryId, Evictor, Installed, OwnerId},
};
use crate::{pipeline::Pipeline, traversals::traversal::Traversal, versions::delta::Delta};

/// The engine: it stores the traversal of each entry.
pub struct Iterative {
    pipeline: Arc<Pipeline>,
    /// The last version that was applied.
    version: Version,
    /// The traversal of each entry.
    entries: BTreeMap<EntryId, Arc<Traversal>>,
}

impl Iterative {
    /// Creates an engine without entries, at the newest version of the pipeline.
    #[must_use]
    pub fn new(pipeline: Arc<Pipeline>) -> Self {
        let version = pipeline.version();
        Self { pipeline, version, entries: BTreeMap::new() }
    }
}

impl Evictor for Iterative {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.entries.insert(entry, Arc::clone(traversal));
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.entries.remove(&entry);
    }

    fn apply(&mut self, _deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let version = self.version.max(version);
        self.version = version;
        let pipeline = &self.pipeline;
        let is_stale = |traversal: &Traversal| {
            !still_holds(traversal, &pipeline.translate_again(traversal, version))
        };
        self.entries.extract_if(.., |_, traversal| is_stale(traversal)).map(|(id, _)| id).collect()
    }

    fn forget(&mut self, owner: OwnerId) {
        let name = |slot, generation| EntryId { owner, slot, generation };
        let all = name(0, 0)..=name(u32::MAX, u32::MAX);
        self.entries.extract_if(all, |_, _| true).for_each(drop);
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn state(&self) -> EngineState {
        let relations = vec![("entries", self.entries.len())];
        EngineState { name: "iterative", relations, ..EngineState::default() }
    }
}

/// Returns whether an entry with traversal `old` is right if its packet's traversal
/// is now `new`.
fn still_holds(old: &Traversal, new: &Traversal) -> bool {
    old.decides_like(new) && old.reads == new.reads && old.mask.has_all_of(&new.mask)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_flow::FlowKey;

    use super::*;
    use crate::testing::{CheckedPipeline, cases, draw, generate, runner, visible};

    /// Returns the id of the entry in a slot.
    fn entry(slot: usize) -> EntryId {
        let slot = u32::try_from(slot).expect("few entries");
        EntryId { owner: OwnerId(0), slot, generation: 0 }
    }

    /// Installed entries, each with the packet of its traversal.
    type InstalledEntries<'p> = BTreeMap<EntryId, (&'p FlowKey, Arc<Traversal>)>;

    /// Creates an engine with an entry for each packet without learn requests.
    fn install<'p>(
        checked: &CheckedPipeline,
        packets: &'p [FlowKey],
    ) -> (Iterative, InstalledEntries<'p>) {
        let mut engine = Iterative::new(Arc::clone(&checked.pipeline));
        let mut entries = BTreeMap::new();
        for (slot, key) in packets.iter().enumerate() {
            let traversal = Arc::new(checked.translate(key));
            if !traversal.learnings.is_empty() {
                continue;
            }
            assert_eq!(engine.installed(entry(slot), &traversal), Installed::Recorded);
            entries.insert(entry(slot), (key, traversal));
        }
        (engine, entries)
    }

    proptest! {
        #![proptest_config(cases(150))]

        #[test]
        fn surviving_entries_are_right_for_their_whole_region(
            network in generate::network(),
            packets in prop::collection::vec(generate::packet(), 8),
            ops in prop::collection::vec(generate::op(), 1..6),
        ) {
            let mut checked = CheckedPipeline::new(&network);
            let (mut engine, mut entries) = install(&checked, &packets);
            let mut runner = runner();
            for op in &ops {
                let Some(change) = checked.apply(op) else { continue };
                for evicted in engine.apply(&change.deltas, change.version) {
                    prop_assert!(entries.remove(&evicted).is_some());
                }
                prop_assert_eq!(engine.len(), entries.len());
                for (packet, traversal) in entries.values() {
                    let sibling = generate::sibling(packet, &(&traversal.mask).into());
                    let key = draw(&mut runner, &sibling);
                    prop_assert_eq!(checked.effects(traversal, &key), checked.model.translate(&key));
                }
            }
        }

        #[test]
        fn surviving_recirculated_entries_equal_new_ones(
            network in generate::network(),
            packets in prop::collection::vec(generate::packet(), 8),
            ops in prop::collection::vec(generate::op(), 1..4),
        ) {
            let mut checked = CheckedPipeline::new(&network);
            let mut engine = Iterative::new(Arc::clone(&checked.pipeline));
            let mut entries = BTreeMap::new();
            let again = packets.iter().flat_map(|key| checked.traversals(key));
            let again = again.filter(|again| again.continuation.is_some());
            for (slot, traversal) in again.filter(|again| again.learnings.is_empty()).enumerate() {
                let traversal = Arc::new(traversal);
                engine.installed(entry(slot), &traversal);
                entries.insert(entry(slot), traversal);
            }
            let mut runner = runner();
            for op in &ops {
                let Some(change) = checked.apply(op) else { continue };
                for evicted in engine.apply(&change.deltas, change.version) {
                    prop_assert!(entries.remove(&evicted).is_some());
                }
                for traversal in entries.values() {
                    let Some(continuation) = &traversal.continuation else { continue };
                    let sibling = generate::sibling(&(&traversal.key).into(), &(&traversal.mask).into());
                    let key = visible(&draw(&mut runner, &sibling));
                    let now = checked.pipeline.resume(&key, continuation, change.version);
                    prop_assert_eq!(&now.actions, &traversal.actions);
                    prop_assert_eq!(&now.refreshes, &traversal.refreshes);
                    prop_assert!(now.learnings.is_empty());
                }
            }
        }

        #[test]
        fn an_empty_change_evicts_nothing(
            network in generate::network(),
            packets in prop::collection::vec(generate::packet(), 4),
        ) {
            let checked = CheckedPipeline::new(&network);
            let (mut engine, entries) = install(&checked, &packets);
            prop_assert!(engine.apply(&[], checked.pipeline.version()).is_empty());
            prop_assert_eq!(engine.len(), entries.len());
        }
    }

    #[test]
    fn an_install_of_an_older_version_is_late() {
        let checked = CheckedPipeline::new(&[]);
        let mut engine = Iterative::new(Arc::clone(&checked.pipeline));
        let late = Arc::new(checked.translate(&FlowKey::ZERO));
        engine.apply(&[], late.version.next());
        assert_eq!(engine.installed(entry(0), &late), Installed::Late);
        // A change of an older version does not make the late install valid.
        engine.apply(&[], late.version);
        assert_eq!(engine.installed(entry(0), &late), Installed::Late);
        assert!(engine.is_empty());
    }

    #[test]
    fn entry_that_owner_removed_is_not_evicted() {
        let checked = CheckedPipeline::new(&[]);
        let mut key = FlowKey::ZERO;
        key.set_bridge(1);
        let (mut engine, _) = install(&checked, &[key]);
        engine.removed(entry(0));
        let change = checked.pipeline.remove_bridge(generate::BRIDGES[0]);
        assert!(engine.apply(&change.deltas, change.version).is_empty());
    }

    #[test]
    fn a_forgotten_owner_has_no_watched_entries() {
        let checked = CheckedPipeline::new(&[]);
        let mut engine = Iterative::new(Arc::clone(&checked.pipeline));
        let traversal = Arc::new(checked.translate(&FlowKey::ZERO));
        for owner in 0..3 {
            for (slot, generation) in [(0, 0), (7, 1), (u32::MAX, u32::MAX)] {
                let entry = EntryId { owner: OwnerId(owner), slot, generation };
                assert_eq!(engine.installed(entry, &traversal), Installed::Recorded);
            }
        }
        engine.forget(OwnerId(1));
        assert_eq!(engine.len(), 6);
        assert!(engine.entries.keys().all(|entry| entry.owner != OwnerId(1)));
        engine.forget(OwnerId(9));
        assert_eq!(engine.len(), 6);
    }

    #[test]
    fn removing_a_bridge_evicts_its_entries() {
        let checked = CheckedPipeline::new(&[]);
        let keys = generate::BRIDGES.map(|id| {
            let mut key = FlowKey::ZERO;
            key.set_bridge(id.number().into());
            key
        });
        let (mut engine, _) = install(&checked, &keys);
        let change = checked.pipeline.remove_bridge(generate::BRIDGES[0]);
        assert_eq!(engine.apply(&change.deltas, change.version), [entry(0)]);
    }
}
