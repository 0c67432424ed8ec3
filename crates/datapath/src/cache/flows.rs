//! No wildcard cache: the packet thread decides each packet by the tables (computational flows).
//!
//! `thread/flows.rs` decides the packets. The index of computational flows has no entries, and
//! every lookup misses.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_pipeline::Pipeline;

use super::{
    EntryRef, HitSlots, PositionSet, Reclaimed,
    index::{
        IndexCapacity, IndexSeeds, IngressBurst, Lookup, RepairOutcome, Upcall, UpcallResult,
        WildcardIndex,
    },
};
use crate::{evict::owner::Owner, metrics::ThreadCounters, packet::buffer::BURST};

/// The index of a thread that caches nothing.
#[derive(Debug)]
pub(crate) struct NoIndex;

impl WildcardIndex for NoIndex {
    type Config = ();
    type Partial = ();
    type Totals = ();

    fn new((): (), _seeds: &IndexSeeds, (): ()) -> Self {
        Self
    }

    fn totals(&self) {}

    fn capacity(&self) -> IndexCapacity {
        IndexCapacity { entries_max: None, hits_per_packet_max: 1 }
    }

    fn find_burst(
        &mut self,
        _owner: &Owner,
        _burst: &IngressBurst<'_>,
        selected: PositionSet,
        hits: &mut [HitSlots; BURST],
    ) -> u32 {
        selected.positions().for_each(|position| hits[position].clear());
        0
    }

    fn find(&mut self, _owner: &Owner, _key: &FlowKey) -> Lookup<()> {
        Lookup::Miss(())
    }

    fn uncount_hit(&mut self, _position: usize, _hit: &HitSlots) {}

    fn handle_miss(&mut self, _owner: &mut Owner, upcall: Upcall<'_>, (): ()) -> UpcallResult {
        let traversals = vec![Arc::new(upcall.translate())];
        UpcallResult { traversals, entry: None, translations: 1 }
    }

    fn remove(&mut self, _entry: EntryRef) {}

    fn repair(
        &mut self,
        _owner: &mut Owner,
        _pipeline: &Pipeline,
        _old: &Reclaimed,
    ) -> (RepairOutcome, u64) {
        (RepairOutcome::Dropped, 0)
    }

    fn masks(&self) -> usize {
        0
    }

    fn publish(&self, _counters: &ThreadCounters) {}
}
