//! Cached answers, compared with the tables while packets flow: law 1, watched on a live switch.
//!
//! Of the hits one in so many is chosen at random, and the packet is translated anew under the
//! version that its thread is at. What a hit does and what it credits must be what this translation
//! says. Where it is not, something is wrong with the switch: the difference is counted and told of,
//! the entry goes, and the packet is treated as one that no cache knows.
//!
//! A thread that verifies allocates and takes the lock of the tables, which a hit otherwise never
//! does; that is the price of the setting.

use std::sync::Arc;

use rtrb::Producer;
use shunt_flow::FlowKey;
use shunt_pipeline::Traversal;

use super::PacketThread;
use crate::cache::{NOT_FOUND, split_mix};

/// A hit of which the tables said something else than the cache.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What made the entry that was hit.
    pub cached: Arc<Traversal>,
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
            let slot = self.batch.found[place];
            if slot == NOT_FOUND || !self.verifier.chooses() {
                continue;
            }
            let keys = std::mem::take(&mut self.batch.keys);
            if !self.is_right(slot, &keys[place]) {
                let hits = self.batch.found[..count].iter_mut().filter(|found| **found == slot);
                hits.for_each(|found| *found = NOT_FOUND);
            }
            self.batch.keys = keys;
        }
    }

    /// Whether a live entry does to a packet what the tables say. If not, the difference is counted
    /// and told of, and the entry goes; it lives on only while its report does not fit.
    pub(super) fn is_right(&mut self, slot: u32, key: &FlowKey) -> bool {
        let entries = self.caches.owner.entries();
        let (Some(entry), Some(cached)) = (entries.live_at(slot), entries.traversal(slot)) else {
            return false;
        };
        let (cached, version) = (Arc::clone(cached), self.caches.owner.version());
        let fresh = match &cached.continuation {
            None => self.pipeline.translate(key, version),
            Some(continuation) => self.pipeline.resume(key, continuation, version),
        };
        self.counters.verified.add(1);
        if cached.says_as(&fresh) {
            return true;
        }
        self.counters.differences.add(1);
        self.caches.owner.expire(entry);
        // One that finds no room is counted, and those before it say what is wrong.
        let _ = self.verifier.differences.push(Difference { cached, fresh: Box::new(fresh) });
        false
    }
}
