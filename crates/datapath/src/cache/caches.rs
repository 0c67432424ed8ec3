//! The two caches of a packet thread over its entries.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_pipeline::{Time, Traversal};

use super::{Buried, EntryRef, ExactCache, ExactConfig, KeyHasher, MegaflowCache, Missing};
use crate::{
    BURST,
    owner::{InstallError, Owner},
};

/// Sizes of the caches of one packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Entries, those that wait to be buried included.
    pub entries_max: usize,
    /// The exact-match cache.
    pub exact: ExactConfig,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { entries_max: 65_536, exact: ExactConfig::default() }
    }
}

/// The caches of one packet thread.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) owner: Owner,
    exact: ExactCache,
    megaflow: MegaflowCache,
    hasher: KeyHasher,
    hashes: [u64; BURST],
    lines: [Option<u32>; BURST],
    trial: Trial,
    pub(crate) tally: CacheTally,
}

/// What the caches count, in plain words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheTally {
    pub(crate) exact_hits: u64,
    pub(crate) exact_misses: u64,
    pub(crate) exact_inserts: u64,
    pub(crate) megaflow_hits: u64,
    pub(crate) megaflow_misses: u64,
    pub(crate) megaflow_inserts: u64,
    pub(crate) probes: u64,
}

/// Whether the exact-match cache is worth asking, judged by what the wildcard cache costs.
#[derive(Debug)]
struct Trial {
    asks_exact: bool,
    packets: u32,
    probes: u32,
}

/// Packets in the wildcard cache after which the trial is judged.
const PACKETS_PER_TRIAL: u32 = 1 << 14;

/// Probes on average from which on the exact-match cache is faster.
const PROBES_WORTH_EXACT: u32 = 2;

impl Trial {
    #[expect(clippy::cast_possible_truncation, reason = "at most BURST")]
    fn count(&mut self, packets: usize, probes: u32, may_ask: bool) {
        self.packets += packets as u32;
        self.probes += probes;
        if self.packets >= PACKETS_PER_TRIAL {
            self.asks_exact = may_ask && self.probes / self.packets >= PROBES_WORTH_EXACT;
            (self.packets, self.probes) = (0, 0);
        }
    }
}

/// No slot.
pub(crate) const NOT_FOUND: u32 = u32::MAX;

impl Caches {
    pub(crate) fn new(config: &CacheConfig, owner: Owner, seed: u64) -> Self {
        let hasher = KeyHasher::new(seed);
        Self {
            owner,
            exact: ExactCache::new(config.exact, seed),
            megaflow: MegaflowCache::new(hasher.clone(), seed),
            hasher,
            hashes: [0; BURST],
            lines: [None; BURST],
            trial: Trial { asks_exact: config.exact.insert_inverse != 0, packets: 0, probes: 0 },
            tally: CacheTally::default(),
        }
    }

    /// Looks up the packets of a burst as they are at ingress; `found` says which live slot was found
    /// at each place, or [`NOT_FOUND`].
    pub(crate) fn find_burst(&mut self, keys: &[FlowKey], found: &mut [u32; BURST]) {
        let mut missing = Missing::default();
        let asks_exact = self.trial.asks_exact;
        if asks_exact {
            self.find_exact(keys, found, &mut missing);
        } else {
            (0..keys.len()).for_each(|place| missing.push(place));
        }
        if missing.is_empty() {
            return;
        }
        let asked = missing.clone();
        let entries = self.owner.entries();
        let is_live = |entry| entries.is_live(entry);
        let probes = self.megaflow.find_burst(keys, &mut missing, found, is_live);
        self.tally.probes += u64::from(probes);
        self.tally.megaflow_misses += missing.len() as u64;
        self.tally.megaflow_hits += (asked.len() - missing.len()) as u64;
        missing.places().for_each(|place| found[place] = NOT_FOUND);
        self.trial.count(asked.len(), probes, self.exact.is_on());
        if asks_exact {
            self.insert_exact(keys, found, &asked);
        }
    }

    /// Looks up one packet in the wildcard cache alone: one that waited, or was recirculated.
    pub(crate) fn find(&mut self, key: &FlowKey) -> Option<EntryRef> {
        let entries = self.owner.entries();
        let found = self.megaflow.find(key, |entry| entries.is_live(entry));
        self.tally.megaflow_hits += u64::from(found.is_some());
        self.tally.megaflow_misses += u64::from(found.is_none());
        found
    }

    /// Makes an entry for all packets that fare as `traversal` did.
    ///
    /// # Errors
    ///
    /// As [`Owner::install`].
    pub(crate) fn install(
        &mut self,
        traversal: &Arc<Traversal>,
        now: Time,
    ) -> Result<EntryRef, InstallError> {
        let entry = self.owner.install(Arc::clone(traversal), now)?;
        let key = FlowKey::from(&traversal.key);
        let home = self.megaflow.insert(&key, &traversal.mask, entry);
        self.owner.entries_mut().set_home(entry.slot, home);
        self.tally.megaflow_inserts += 1;
        Ok(entry)
    }

    /// Ends one dead entry; `None` when there is none.
    pub(crate) fn bury(&mut self) -> Option<Buried> {
        let buried = self.owner.entries_mut().bury()?;
        if let Some(home) = buried.home {
            self.megaflow.remove(home, buried.reference);
        }
        Some(buried)
    }

    /// Number of masks in the wildcard cache.
    pub(crate) fn masks(&self) -> usize {
        self.megaflow.subtables()
    }

    /// One pass for each kind of memory: hashes, tags, lines, entries.
    fn find_exact(&mut self, keys: &[FlowKey], found: &mut [u32; BURST], missing: &mut Missing) {
        for (hash, key) in self.hashes.iter_mut().zip(keys) {
            *hash = ExactCache::hash(&self.hasher, key);
        }
        for (line, hash) in self.lines.iter_mut().zip(&self.hashes[..keys.len()]) {
            *line = self.exact.candidate(*hash);
        }
        let mut confirmed = [None; BURST];
        for ((confirmed, line), key) in confirmed.iter_mut().zip(&self.lines).zip(keys) {
            *confirmed = line.and_then(|line| self.exact.confirm(line, key));
        }
        let entries = self.owner.entries();
        for (place, entry) in confirmed.into_iter().enumerate().take(keys.len()) {
            match entry {
                Some(entry) if entries.is_live(entry) => found[place] = entry.slot,
                _ => missing.push(place),
            }
        }
        self.tally.exact_misses += missing.len() as u64;
        self.tally.exact_hits += (keys.len() - missing.len()) as u64;
    }

    /// Puts some of what only the wildcard cache knew into the exact-match cache.
    fn insert_exact(&mut self, keys: &[FlowKey], found: &[u32; BURST], asked: &Missing) {
        for place in asked.places() {
            if let Some(entry) = self.owner.entries().live_at(found[place])
                && self.exact.chooses()
            {
                self.exact.insert(self.hashes[place], &keys[place], entry);
                self.tally.exact_inserts += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_match_cache_is_asked_while_the_wildcard_cache_needs_many_probes() {
        let mut trial = Trial { asks_exact: true, packets: 0, probes: 0 };
        let mut run = |probes_per_packet: u32, may_ask| {
            for _ in 0..PACKETS_PER_TRIAL / 32 {
                trial.count(32, 32 * probes_per_packet, may_ask);
            }
            trial.asks_exact
        };
        assert!(!run(1, true));
        assert!(run(2, true));
        assert!(run(30, true));
        assert!(!run(30, false), "it is off");
    }
}
