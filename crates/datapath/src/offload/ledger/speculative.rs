//! Speculative entries in the ledger, and the free room of the stages.

use shunt_gigaflow::ltm::LtmEntryRef;
use shunt_pipeline::Time;

use super::Ledger;

impl Ledger {
    /// Returns the time of the last known hit of an intended entry, if there is one.
    pub(in crate::offload) fn last_hit(&self, entry: LtmEntryRef) -> Option<Time> {
        let offloaded = self.offloaded_entries.get(&self.index(entry)?)?;
        (offloaded.totals().packets > 0).then_some(offloaded.used)
    }

    /// Returns whether a forecast made an entry that has no known hit.
    pub(in crate::offload) fn is_speculative(&self, entry: LtmEntryRef) -> bool {
        let offloaded = self.index(entry).and_then(|index| self.offloaded_entries.get(&index));
        offloaded.is_some_and(|own| own.forecast.is_some() && own.totals().packets == 0)
    }

    /// Returns whether every stage has more than 1/`divisor` of its entries free.
    ///
    /// Every stage counts with the capacity of the smallest stage, as in the chain of the agent.
    pub(in crate::offload) fn has_room(&self, divisor: usize) -> bool {
        let Some(stage_entries_max) = self.capacity.iter().copied().min() else { return false };
        let most = stage_entries_max - stage_entries_max / divisor;
        let stages = self.occupied.iter().zip(&self.inserts);
        stages.into_iter().all(|(occupied, inserts)| occupied + inserts.len() < most)
    }
}
