//! Additions to the intended entries, and removals from them.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_gigaflow::{
    adaptive::ProbeResult,
    cache::Miss,
    ltm::{LtmEntryRef, LtmRule, Next, Store},
    offload::{OffloadCapabilities, OffloadDevice, Refusal},
};
use shunt_pipeline::{Time, Traversal};

use super::{
    OffloadAgent, OffloadCandidate,
    ledger::{NewEntry, OffloadEntry},
};
use crate::{
    evict::owner::Owner,
    forecast::{DeviceForecast, EntryForecast},
};

/// The entries of the owner, as a store that admits only rules the device can hold.
struct OwnerEntries<'a> {
    /// The entries and the version of the device.
    owner: &'a mut Owner,
    /// The abilities and limits of the device.
    capabilities: &'a OffloadCapabilities,
    /// The reason why the store did not admit the last rule.
    refusal: Option<Refusal>,
    /// The entries that were added.
    made: Vec<LtmEntryRef>,
}

impl<T: OffloadDevice> OffloadAgent<T> {
    /// Takes candidates from all rings in turn, and partitions their traversals.
    pub(super) fn take_candidates(&mut self) -> bool {
        let (rings, mut left) = (self.candidate_rings.len(), self.config.candidates_per_iteration);
        for step in 0..rings {
            let ring = (self.offered_first + step) % rings;
            while left > 0
                && let Ok(offer) = self.candidate_rings[ring].pop()
            {
                left -= 1;
                self.take_candidate(offer);
            }
        }
        self.offered_first = (self.offered_first + 1) % rings.max(1);
        left < self.config.candidates_per_iteration
    }

    /// Translates a candidate, and adds the missing entries for it.
    fn take_candidate(&mut self, offer: OffloadCandidate) {
        let OffloadCandidate { ref key, missed, forecast } = offer;
        let comes_in = key.bridge() == u64::from(self.config.bridge.number())
            && self.ports.as_ref().is_none_or(|ports| ports.contains(&key.in_port()));
        if !comes_in {
            self.status.candidates_elsewhere += 1;
            forecast.into_iter().for_each(DeviceForecast::skip);
            return;
        }
        if forecast.is_some() && self.judge.is_lost() {
            return;
        }
        if self.gigaflow.find(&self.owner, key, &mut self.walk) {
            self.status.candidates_known += 1;
            forecast.into_iter().for_each(|own| self.cover_forecast(own));
            return;
        }
        if forecast.is_none() {
            self.make_room_for_packet();
        } else if !self.admits_forecast() {
            return;
        }
        let made = self.partition_candidate(key);
        let traversal_no = self.pending_traversals.begin(missed, made.len());
        let origin = forecast.as_ref().map(|own| own.entry);
        made.iter().for_each(|entry| self.add_intended(*entry, traversal_no, origin));
        self.reclaim(None);
        forecast.into_iter().for_each(|own| self.forecasts.add(made.clone(), own));
    }

    /// Translates a packet under the owner's version (rule 5).
    /// Installs the entries of its traversal.
    ///
    /// Returns the new entries.
    fn partition_candidate(&mut self, key: &FlowKey) -> Vec<LtmEntryRef> {
        let miss = Miss {
            pipeline: &self.pipeline,
            key,
            start: None,
            version: self.owner.version(),
            now: self.now,
        };
        let mut stock = OwnerEntries {
            owner: &mut self.owner,
            capabilities: &self.capabilities,
            refusal: None,
            made: Vec::new(),
        };
        self.gigaflow.handle_miss(&mut stock, miss, ProbeResult::Missed);
        let OwnerEntries { refusal, made, .. } = stock;
        if let Some(refusal) = refusal {
            *self.status.refused.entry(refusal.into()).or_default() += 1;
        }
        made
    }

    /// Adds a new entry to the intended entries.
    /// The tags of an entry are held until the device has confirmed its removal.
    fn add_intended(
        &mut self,
        entry: LtmEntryRef,
        traversal_no: u64,
        forecast: Option<EntryForecast>,
    ) {
        let ltm = self.gigaflow.ltm_mut();
        let (Some(rule), Some(stage)) = (ltm.rule(entry.slot).cloned(), ltm.stage(entry.slot))
        else {
            return;
        };
        let Some(traversal) = self.owner.entries().traversal(entry.slot).map(Arc::clone) else {
            return;
        };
        for tag in tags(&rule) {
            ltm.hold_again(tag);
        }
        self.ledger.add(NewEntry { entry, stage, rule, traversal, traversal_no, forecast });
    }

    /// Removes the entries in `to_remove` while the ring of reports has room.
    /// The reports go to the eviction thread.
    pub(super) fn remove_pending(&mut self) -> bool {
        let before = self.to_remove.len();
        let owner = &mut self.owner;
        self.to_remove.retain(|entry| owner.is_live(*entry) && !owner.end(*entry));
        self.reclaim(None);
        self.to_remove.len() < before
    }

    /// Takes dead entries out of the chain, and marks them for removal from the device.
    ///
    /// `stale_since` is the time at which a version made these entries stale; `None` if none did.
    pub(super) fn reclaim(&mut self, stale_since: Option<Time>) {
        while let Some(reclaimed) = self.owner.entries_mut().reclaim() {
            let entry = LtmEntryRef::from(reclaimed.reference);
            self.gigaflow.ltm_mut().forget(entry);
            self.large_flows.forget(entry);
            // A lost device must not restore the removed entries later.
            if self.judge.is_lost()
                && let Some(index) = self.ledger.index(entry)
            {
                self.device.forget(index);
            }
            if let Some(offloaded) = self.ledger.mark_unwanted(entry, stale_since) {
                self.release_tags(&offloaded);
            }
        }
    }

    /// Releases the tags of an entry that the device has confirmed not to hold.
    pub(super) fn release_tags(&mut self, offloaded: &OffloadEntry) {
        for tag in tags(&offloaded.rule) {
            self.gigaflow.ltm_mut().release(tag);
        }
        self.pending_traversals.abandon(offloaded.traversal_no);
    }
}

/// Returns the tag that a rule matches, and the tag that it sets.
fn tags(rule: &LtmRule) -> impl Iterator<Item = shunt_gigaflow::ltm::Tag> {
    let next = match rule.next {
        Next::Tag(next) => Some(next),
        Next::End => None,
    };
    std::iter::once(rule.tag).chain(next)
}

impl Store for OwnerEntries<'_> {
    fn admits(&mut self, rule: &LtmRule) -> bool {
        self.refusal = self.capabilities.check(rule).err();
        self.refusal.is_none()
    }

    fn make(&mut self, traversal: &Arc<Traversal>, now: Time) -> Option<LtmEntryRef> {
        let entry = self.owner.make(traversal, now)?;
        self.made.push(entry);
        Some(entry)
    }

    fn end(&mut self, entry: LtmEntryRef) -> bool {
        self.owner.end(entry)
    }

    fn is_live(&self, entry: LtmEntryRef) -> bool {
        self.owner.is_live(entry)
    }

    fn used(&self, slot: u32) -> Time {
        self.owner.used(slot)
    }

    fn touch(&mut self, slot: u32, now: Time) {
        Store::touch(self.owner, slot, now);
    }
}
