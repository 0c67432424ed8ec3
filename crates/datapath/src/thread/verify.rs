//! Cached answers, compared with the tables while packets flow: law 1, watched on a live switch.
//!
//! Of the hits one in so many is chosen at random, and the packet is translated anew under the
//! version that its thread is at. What a hit does and what it credits must be what this translation
//! says. Where it is not, something is wrong with the switch: the difference is counted and told of,
//! the entries go, and the packet is treated as one that no cache knows.
//!
//! The pieces of a chain credit together what the whole does, but need not do it by the same actions:
//! at a cut, headers are written that the whole writes later, or never if another write undoes them,
//! and a state behind it leaves out what nothing reads. So what they do is compared by what comes of it:
//! see `trial`.
//!
//! A thread that verifies allocates and takes the lock of the tables, which a hit otherwise never
//! does; that is the price of the setting.

use std::sync::Arc;

use rtrb::Producer;
use shunt_pipeline::Traversal;

use super::{PacketThread, dry_run::Trial};
use crate::{
    cache::{HitSlots, split_mix},
    packet::buffer::Packet,
    thread::execute::Parsed,
};

/// A hit of which the tables said something else than the cache.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What made the entries that were hit, first to last.
    pub cached: Vec<Arc<Traversal>>,
    /// What the tables say; its key is that of the packet.
    pub fresh: Box<Traversal>,
}

/// Which hits are compared, and where to tell of those that differ.
pub(super) struct Verifier {
    /// One hit of so many; 0: none.
    pub(super) one_in: u32,
    random: u64,
    differences: Producer<Difference>,
}

impl Verifier {
    pub(super) const fn new(one_in: u32, seed: u64, differences: Producer<Difference>) -> Self {
        Self { one_in, random: seed, differences }
    }

    /// Whether the next hit is compared. Drawn at random: a counter would fall in step with traffic
    /// that repeats.
    pub(super) fn chooses(&mut self) -> bool {
        match self.one_in {
            0 => false,
            one_in => split_mix(&mut self.random).is_multiple_of(u64::from(one_in)),
        }
    }
}

impl PacketThread {
    /// Compares some hits of a burst; those of an entry that was wrong are misses from now on.
    pub(super) fn verify_burst(&mut self, count: usize) {
        for place in 0..count {
            let hit = self.batch.hits[place];
            if hit.is_miss() || !self.verifier.chooses() {
                continue;
            }
            let mut keys = std::mem::take(&mut self.batch.keys);
            let packets = std::mem::take(&mut self.batch.packets);
            let parsed = Parsed { key: &mut keys[place], layers: self.batch.layers[place] };
            if !self.is_right(&hit, &packets[place], &parsed) {
                let shares =
                    |other: &HitSlots| other.slots().iter().any(|slot| hit.slots().contains(slot));
                let hits = self.batch.hits[..count].iter_mut().filter(|other| shares(other));
                hits.for_each(HitSlots::clear);
            }
            (self.batch.keys, self.batch.packets) = (keys, packets);
        }
    }

    /// Whether live entries do to a packet what the tables say. If not, the difference is counted
    /// and told of, and the entries go; they live on only while their reports do not fit.
    pub(super) fn is_right(
        &mut self,
        hit: &HitSlots,
        packet: &Packet,
        parsed: &Parsed<'_>,
    ) -> bool {
        let (entries, version) = (self.caches.owner.entries(), self.caches.owner.version());
        let traversal = |slot: &u32| entries.traversal(*slot).map(Arc::clone);
        let cached: Vec<Arc<Traversal>> = hit.slots().iter().filter_map(traversal).collect();
        let Some(first) = cached.first() else { return false };
        let fresh = match &first.continuation {
            None => self.pipeline.translate(parsed.key, version),
            Some(continuation) => self.pipeline.resume(parsed.key, continuation, version),
        };
        self.counters.verified.add(1);
        let is_right = match &cached[..] {
            [one] => one.decides_like(&fresh),
            pieces => {
                let lists: Vec<_> = pieces.iter().map(|piece| &*piece.actions).collect();
                let limit = self.config.vlan_limit;
                let mut trial = Trial::new(&mut self.pool, &self.pipeline, version, limit);
                fresh.learnings.is_empty()
                    && fresh.credits_like(pieces)
                    && trial.do_the_same(&lists, &fresh.actions, packet, parsed)
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
        // One that finds no room is counted, and those before it say what is wrong.
        let _ = self.verifier.differences.push(Difference { cached, fresh: Box::new(fresh) });
        false
    }
}
