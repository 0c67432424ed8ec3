//! What comes to be meant to be in the target, and what is not meant to be there any more.

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
    ledger::{NewEntry, Piece},
};
use crate::evict::owner::Owner;

/// The entries of the owner, as its chain sees them: it admits what the target can hold.
struct Stock<'a> {
    owner: &'a mut Owner,
    capabilities: &'a OffloadCapabilities,
    /// Why the rule that was judged last is not admitted.
    refusal: Option<Refusal>,
    made: Vec<LtmEntryRef>,
}

impl<T: OffloadDevice> OffloadAgent<T> {
    /// Takes packets that no cache knew, rings taking turns, and cuts their ways.
    pub(super) fn take_candidates(&mut self) -> bool {
        let (rings, mut left) = (self.offers.len(), self.config.candidates_per_iteration);
        for step in 0..rings {
            let ring = (self.offered_first + step) % rings;
            while left > 0
                && let Ok(offer) = self.offers[ring].pop()
            {
                left -= 1;
                self.take_candidate(&offer);
            }
        }
        self.offered_first = (self.offered_first + 1) % rings.max(1);
        left < self.config.candidates_per_iteration
    }

    fn take_candidate(&mut self, offer: &OffloadCandidate) {
        let key = &offer.key;
        let comes_in = key.bridge() == u64::from(self.config.bridge.number())
            && self.ports.as_ref().is_none_or(|ports| ports.contains(&key.in_port()));
        if !comes_in {
            self.status.candidates_elsewhere += 1;
            return;
        }
        if self.gigaflow.find(&self.owner, key, &mut self.walk) {
            self.status.candidates_known += 1;
            return;
        }
        let made = self.cut(key);
        let way = self.ways.begin(offer.missed, made.len());
        made.into_iter().for_each(|entry| self.mean(entry, way));
        self.reclaim(None);
    }

    /// Translates a packet under the version that the owner is at (rule 5), whatever version it missed
    /// under, and makes entries of its way. Answers with those that are new.
    fn cut(&mut self, key: &FlowKey) -> Vec<LtmEntryRef> {
        let miss = Miss {
            pipeline: &self.pipeline,
            key,
            start: None,
            version: self.owner.version(),
            now: self.now,
        };
        let mut stock = Stock {
            owner: &mut self.owner,
            capabilities: &self.capabilities,
            refusal: None,
            made: Vec::new(),
        };
        self.gigaflow.handle_miss(&mut stock, miss, ProbeResult::Missed);
        let Stock { refusal, made, .. } = stock;
        if let Some(refusal) = refusal {
            *self.status.refused.entry(refusal.into()).or_default() += 1;
        }
        made
    }

    /// An entry that was just made is meant to be in the target. Its tags stay held until it is
    /// confirmed gone from there.
    fn mean(&mut self, entry: LtmEntryRef, way: u64) {
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
        self.ledger.add(NewEntry { entry, stage, rule, traversal, way });
    }

    /// Ends the entries that are to be ended, as far as the eviction thread can be told.
    pub(super) fn end_what_waits(&mut self) -> bool {
        let before = self.to_end.len();
        let owner = &mut self.owner;
        self.to_end.retain(|entry| owner.is_live(*entry) && !owner.end(*entry));
        self.reclaim(None);
        self.to_end.len() < before
    }

    /// Takes entries that are dead out of the chain, and dooms their pieces. `stale_since`: a version
    /// made them stale.
    pub(super) fn reclaim(&mut self, stale_since: Option<Time>) {
        while let Some(reclaimed) = self.owner.entries_mut().reclaim() {
            let entry = LtmEntryRef::from(reclaimed.reference);
            self.gigaflow.ltm_mut().forget(entry);
            // What is lost is not to come back with what goes now.
            if self.judge.is_lost()
                && let Some(index) = self.ledger.index(entry)
            {
                self.target.forget(index);
            }
            if let Some(piece) = self.ledger.doom(entry, stale_since) {
                self.let_go(&piece);
            }
        }
    }

    /// A piece is confirmed gone, or never went in.
    pub(super) fn let_go(&mut self, piece: &Piece) {
        for tag in tags(&piece.rule) {
            self.gigaflow.ltm_mut().release(tag);
        }
        self.ways.give_up(piece.way);
    }
}

/// The tags of a rule, in and out.
fn tags(rule: &LtmRule) -> impl Iterator<Item = shunt_gigaflow::ltm::Tag> {
    let next = match rule.next {
        Next::Tag(next) => Some(next),
        Next::End => None,
    };
    std::iter::once(rule.tag).chain(next)
}

impl Store for Stock<'_> {
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
