//! Verification: compares sampled cache hits with a new translation.
//!
//! Verification checks invariant 1 on a running switch. The thread translates one random hit in
//! `verify_one_in` at its current version. The actions and the credited rules of the hit must be
//! those of this translation. A mismatch is a bug of the switch: the thread counts and reports it,
//! removes the entries, and handles the packet as a miss. The translation finds its rules by tuple
//! space search alone, so no learned index decides both.
//!
//! A chain of LTM entries credits the same rules as the whole traversal, but its actions may
//! differ. At a partition point, an LTM entry writes headers that the whole traversal writes later,
//! or never if another write follows; continuations omit fields that later tables do not read. So
//! the actions are compared by their effects on a copy of the packet: see `dry_run`.
//!
//! Verification allocates memory and takes the lock of the tables, which other hits never do.

mod dry_run;

use std::sync::Arc;

use rtrb::Producer;
use shunt_pipeline::Traversal;

use self::dry_run::DryRun;
use super::PacketThread;
use crate::{
    cache::{HitSlots, split_mix},
    packet::buffer::Packet,
    thread::execute::ParsedPacket,
};

/// A cache hit that differs from a new translation of its packet.
#[derive(Clone, Debug)]
pub struct CacheMismatch {
    /// The traversals of the entries that the packet hit, first to last.
    ///
    /// Empty if the tables decided the packet without a cache.
    pub cached: Vec<Arc<Traversal>>,
    /// The new translation, which contains the flow key of the packet.
    pub fresh: Box<Traversal>,
}

/// Samples hits to compare, and reports mismatches.
pub(super) struct Verifier {
    /// One hit in `one_in` is compared; with 0, none.
    pub(super) one_in: u32,
    /// State of the pseudo-random number generator.
    random: u64,
    /// The ring of mismatches that were found.
    differences: Producer<CacheMismatch>,
}

impl Verifier {
    /// Creates a verifier that samples one hit in `one_in`.
    pub(super) const fn new(one_in: u32, seed: u64, differences: Producer<CacheMismatch>) -> Self {
        Self { one_in, random: seed, differences }
    }

    /// Puts a mismatch into the ring to the control plane.
    pub(super) fn report(&mut self, mismatch: CacheMismatch) {
        // If the ring is full, earlier mismatches already reveal the bug.
        let _ = self.differences.push(mismatch);
    }

    /// Returns whether to compare the next hit with a translation.
    ///
    /// The choice is random, because a counter would synchronize with periodic traffic.
    pub(super) fn chooses(&mut self) -> bool {
        match self.one_in {
            0 => false,
            one_in => split_mix(&mut self.random).is_multiple_of(u64::from(one_in)),
        }
    }
}

impl PacketThread {
    /// Compares sampled hits of a burst; turns all hits of wrong entries into misses.
    pub(super) fn verify_burst(&mut self, count: usize) {
        for place in 0..count {
            let hit = self.batch.hits[place];
            if hit.is_miss() || !self.verifier.chooses() {
                continue;
            }
            let mut keys = std::mem::take(&mut self.batch.keys);
            let packets = std::mem::take(&mut self.batch.packets);
            let parsed = ParsedPacket { key: &mut keys[place], layers: self.batch.layers[place] };
            if !self.is_right(&hit, &packets[place], &parsed) {
                let shares =
                    |other: &HitSlots| other.slots().iter().any(|slot| hit.slots().contains(slot));
                let hits = self.batch.hits[..count].iter_mut().filter(|other| shares(other));
                hits.for_each(HitSlots::clear);
            }
            (self.batch.keys, self.batch.packets) = (keys, packets);
        }
    }

    /// Returns whether entries have the same result as a new translation of the packet.
    ///
    /// Counts and reports a mismatch, and removes the entries. The entries stay if the ring of
    /// reports to the eviction thread is full.
    pub(super) fn is_right(
        &mut self,
        hit: &HitSlots,
        packet: &Packet,
        parsed: &ParsedPacket<'_>,
    ) -> bool {
        let (entries, version) = (self.caches.owner.entries(), self.caches.owner.version());
        let traversal = |slot: &u32| entries.traversal(*slot).map(Arc::clone);
        let cached: Vec<Arc<Traversal>> = hit.slots().iter().filter_map(traversal).collect();
        let Some(first) = cached.first() else { return false };
        let start = first.continuation.as_ref();
        let fresh = self.pipeline.translate_by_tuple_space(parsed.key, start, version);
        self.counters.verified.add(1);
        let is_right = match &cached[..] {
            [one] => one.decides_like(&fresh),
            parts => {
                let lists: Vec<_> = parts.iter().map(|part| &*part.actions).collect();
                let limit = self.config.vlan_limit;
                let mut dry_run = DryRun::new(&mut self.pool, &self.pipeline, version, limit);
                fresh.learnings.is_empty()
                    && fresh.credits_like(parts)
                    && dry_run.have_same_effects(&lists, &fresh.actions, packet, parsed)
            }
        };
        if is_right {
            return true;
        }
        self.counters.differences.add(1);
        for slot in hit.slots() {
            if let Some(entry) = self.caches.owner.entries().live_at(*slot) {
                self.caches.owner.expire(entry);
            }
        }
        self.verifier.report(CacheMismatch { cached, fresh: Box::new(fresh) });
        false
    }
}
