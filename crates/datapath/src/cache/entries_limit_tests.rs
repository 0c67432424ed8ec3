//! Tests that compare the limit of entries, while it changes, with a model of a list.

use std::collections::VecDeque;

use proptest::prelude::*;
use shunt_gigaflow::{adaptive::Capacity, cache::Fallback, ltm::Eviction, partition::PolicyName};
use shunt_pipeline::{OwnerId, Pipeline};

use super::*;
use crate::cache::chain::GigaflowConfig;

/// An operation on the caches and on their model.
#[derive(Clone, Copy, Debug)]
enum LimitOp {
    /// A packet misses.
    Miss,
    /// The limit changes.
    Limit(usize),
    /// The index is replaced.
    Empty,
    /// Iterations expire all entries that are not wanted.
    ClearOut,
    /// Dead entries free their slots.
    Reclaim,
}

/// Generates operations.
fn ops() -> impl Strategy<Value = Vec<LimitOp>> {
    let op = prop_oneof![
        8 => Just(LimitOp::Miss),
        2 => (1..12_usize).prop_map(LimitOp::Limit),
        1 => (100..300_usize).prop_map(LimitOp::Limit),
        1 => Just(LimitOp::Empty),
        2 => Just(LimitOp::ClearOut),
        2 => Just(LimitOp::Reclaim),
    ];
    prop::collection::vec(op, 0..400)
}

/// The model: the live entries by age, with the limit.
#[derive(Debug)]
struct LimitModel {
    /// The live entries, the oldest first; true for an entry of a former index.
    live: VecDeque<(EntryRef, bool)>,
    /// Number of dead entries that hold their slots.
    dead: usize,
    /// The configured limit.
    configured: usize,
    /// The limit in force.
    in_force: usize,
    /// True until all entries of former indexes are gone.
    is_replaced: bool,
}

impl LimitModel {
    /// Expires the oldest entries while they are above the limit, or of a former index.
    fn clear_out(&mut self) {
        loop {
            let is_outdated = self.live.front().is_some_and(|(_, is_outdated)| *is_outdated);
            if is_outdated || self.live.len() > self.in_force {
                self.live.pop_front();
                self.dead += 1;
            } else if std::mem::take(&mut self.is_replaced) {
                self.in_force = self.configured;
            } else {
                return;
            }
        }
    }
}

proptest! {
    #[test]
    fn a_changed_limit_expires_the_oldest_entries(ops in ops()) {
        let ((reports, mut coordinator), (learn_requests, _control)) =
            (rtrb::RingBuffer::new(4096), rtrb::RingBuffer::new(1));
        let (pipeline, key) = (Pipeline::new(1), FlowKey::ZERO);
        let version = pipeline.version();
        let owner = Owner::new(OwnerId(0), version, 6, reports, learn_requests);
        let config = CacheConfig { entries_max: 6, ..CacheConfig::default() };
        let mut caches = Caches::new(&config, owner, 1);
        let mut model = LimitModel {
            live: VecDeque::new(),
            dead: 0,
            configured: 6,
            in_force: 6,
            is_replaced: false,
        };
        for op in ops {
            match op {
                LimitOp::Miss => {
                    let now = Time::ZERO;
                    let upcall =
                        Upcall { pipeline: &pipeline, key: &key, start: None, version, now };
                    let entry = caches.handle_miss(upcall, PartialLookup::default()).entry;
                    let has_room = model.live.len() + model.dead < model.in_force;
                    prop_assert_eq!(entry.is_some(), has_room);
                    model.live.extend(entry.map(|entry| (entry, false)));
                }
                LimitOp::Limit(limit) => {
                    caches.set_entries_max(limit);
                    model.configured = limit;
                    if !model.is_replaced {
                        model.in_force = limit;
                    }
                }
                LimitOp::Empty => {
                    caches.empty();
                    model.live.iter_mut().for_each(|(_, is_outdated)| *is_outdated = true);
                    let both = model.configured + model.live.len() + model.dead;
                    (model.in_force, model.is_replaced) = (both.min(2 * model.configured), true);
                }
                LimitOp::ClearOut => {
                    while caches.clear_out() {
                        while coordinator.pop().is_ok() {}
                    }
                    prop_assert!(caches.is_cleared_out());
                    model.clear_out();
                }
                LimitOp::Reclaim => {
                    while caches.reclaim().is_some() {}
                    model.dead = 0;
                }
            }
            while coordinator.pop().is_ok() {}
            let entries = caches.owner.entries();
            prop_assert_eq!(entries.len(), model.live.len());
            prop_assert_eq!(entries.retired(), model.dead);
            prop_assert!(model.live.iter().all(|(entry, _)| entries.is_live(*entry)));
        }
    }
}

/// A Gigaflow cache has limits of its own; a later megaflow cache uses the number.
#[test]
fn a_gigaflow_cache_keeps_its_own_limit() {
    let ((reports, _coordinator), (learn_requests, _control)) =
        (rtrb::RingBuffer::new(16), rtrb::RingBuffer::new(1));
    let version = Pipeline::new(1).version();
    let owner = Owner::new(OwnerId(0), version, 4, reports, learn_requests);
    let gigaflow = GigaflowConfig {
        capacity: Capacity { stages_count: 2, stage_entries_max: 8 },
        policy: PolicyName::default(),
        fallback: Fallback::Off,
        eviction: Eviction::default(),
        tag_bits: 16,
        seed: 0,
    };
    let config = CacheConfig { wildcard: Wildcard::Gigaflow(gigaflow), ..CacheConfig::default() };
    let mut caches = Caches::new(&config, owner, 1);
    let room = |caches: &Caches| caches.owner.entries().room();
    let own = room(&caches);
    caches.set_entries_max(3);
    assert_eq!(room(&caches), own);
    caches.replace(Wildcard::default());
    assert!(!caches.clear_out());
    assert_eq!(room(&caches), 3);
}
