//! The caches of a packet thread over its entries: an exact-match cache in front of a wildcard cache, which
//! has whole ways, or pieces in a chain of stages.
//!
//! Which of them it is can be changed while packets flow. What the cache before had made is still
//! right; it is only not found any more, and goes the way of entries that nobody uses.

use std::{iter, sync::Arc};

use shunt_flow::FlowKey;
use shunt_gigaflow::{
    cache::{Config as ChainConfig, Miss},
    ltm::Link,
};
use shunt_pipeline::{InstallNo, Pipeline, Time, Traversal};

use super::{
    CacheConfig, EntryRef, ExactCache, Found, KeyHasher, MegaflowCache, Missing, Reclaimed,
    Sampled, Wildcard,
    chain::{self, Chain, ChainTotals},
};
use crate::{evict::owner::Owner, metrics::CHAIN_MAX, packet::buffer::BURST};

/// The caches of one packet thread.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) owner: Owner,
    config: CacheConfig,
    exact: ExactCache,
    index: Index,
    /// Entries up to this one are of a cache that was there before.
    outdated: InstallNo,
    hasher: KeyHasher,
    seed: u64,
    hashes: [u64; BURST],
    lines: [Option<u32>; BURST],
    trial: Trial,
    sampled: Sampled,
    /// How many of the dead may be buried: in a burst, no more than were dead before it, as what its
    /// packets have found is still to be done to them.
    reclaims_left: usize,
    /// How many entries there are to be when nothing is left of the cache before; 0: nothing is.
    limit: usize,
    /// What chains that were replaced have counted.
    chain_totals: ChainTotals,
    pub(crate) tally: CacheTally,
    /// Places of the last burst, a bit each, that the exact-match cache answered.
    exact_places: u64,
}

/// The wildcard cache.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a packet thread has one")]
enum Index {
    Megaflow(MegaflowCache),
    Gigaflow(Box<Chain>),
}

/// What the slow path says of a packet.
pub(crate) struct Answer {
    /// The pieces of its way, first to last; all of it in one, as a rule.
    pub(crate) pieces: Vec<Arc<Traversal>>,
    /// The entry that stands for all of them, if one was made.
    pub(crate) entry: Option<EntryRef>,
    /// How often the packet went through the tables for it, all of its way or a part.
    pub(crate) translations: u64,
}

/// An entry that waited to be made anew, and does so no more.
pub(crate) struct Renewal {
    /// What is left of it.
    pub(crate) reclaimed: Reclaimed,
    /// What became of it.
    pub(crate) repaired: Repaired,
    /// How often a packet like its first went through the tables for it, all of its way or a part.
    pub(crate) translations: u64,
}

/// What became of an entry that waited to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repaired {
    /// It is there again, and does what it did.
    Same,
    /// It is there again, and does something else.
    Changed,
    /// There is one that takes its packets.
    Covered,
    /// It is not there: it would teach, there is no room, or it is of a chain and not its beginning.
    Dropped,
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

impl Repaired {
    pub(super) const fn of(is_same: bool) -> Self {
        if is_same { Self::Same } else { Self::Changed }
    }
}

/// Slots beyond what a chain holds, for entries that wait to be buried.
const RETIRED_MAX: usize = 1024;

/// Caches that know no packet.
struct Empty {
    exact: ExactCache,
    index: Index,
    /// Entries that there may be.
    limit: usize,
}

impl Empty {
    fn of(config: &CacheConfig, hasher: &KeyHasher, (seed, totals): (u64, ChainTotals)) -> Self {
        let (limit, pieces_max, index) = match config.wildcard {
            Wildcard::Megaflow => {
                let megaflow = MegaflowCache::new(hasher.clone(), seed);
                (config.entries_max, 1, Index::Megaflow(megaflow))
            }
            Wildcard::Gigaflow(own) => {
                let chain = Chain::new(ChainConfig { seed, ..own }, totals);
                let limit = chain.entries_max().saturating_add(RETIRED_MAX);
                (limit, chain.pieces_max(), Index::Gigaflow(Box::new(chain)))
            }
        };
        Self { exact: ExactCache::new(config.exact, pieces_max, seed), index, limit }
    }
}

impl Caches {
    pub(crate) fn new(config: &CacheConfig, mut owner: Owner, seed: u64) -> Self {
        let hasher = KeyHasher::new(seed);
        let Empty { exact, index, limit } =
            Empty::of(config, &hasher, (seed, ChainTotals::default()));
        owner.entries_mut().set_limit(limit);
        Self {
            outdated: owner.last_install(),
            owner,
            config: *config,
            exact,
            index,
            hasher,
            seed,
            hashes: [0; BURST],
            lines: [None; BURST],
            trial: Trial { asks_exact: config.exact.insert_inverse != 0, packets: 0, probes: 0 },
            sampled: Sampled::NONE,
            reclaims_left: usize::MAX,
            limit: 0,
            chain_totals: ChainTotals::default(),
            tally: CacheTally::default(),
            exact_places: 0,
        }
    }

    /// Another wildcard cache takes the place of the one that is there, if it differs.
    pub(crate) fn replace(&mut self, wildcard: Wildcard) {
        if self.config.wildcard != wildcard {
            self.config.wildcard = wildcard;
            self.begin_repair();
        }
    }

    fn begin_repair(&mut self) {
        if let Index::Gigaflow(chain) = &self.index {
            self.chain_totals = chain.totals();
        }
        let of = (self.seed, self.chain_totals);
        let Empty { exact, index, limit } = Empty::of(&self.config, &self.hasher, of);
        (self.exact, self.index) = (exact, index);
        self.limit = limit;
        // What is there keeps its room, or there would be none for what is made in its place.
        let most = limit.max(self.config.entries_max).saturating_mul(2);
        let entries = self.owner.entries_mut();
        let both = limit.saturating_add(entries.len() + entries.retired());
        entries.set_limit(both.min(most));
        self.outdated = self.owner.last_install();
    }

    /// Drops up to so many entries of a cache that was there before; answers whether some were left.
    pub(crate) fn clear_out(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let Some(entry) = self.oldest_outdated() else { return false };
            if !self.owner.expire(entry) {
                return true;
            }
        }
        let is_left = self.oldest_outdated().is_some();
        if !is_left && self.limit != 0 {
            let limit = std::mem::take(&mut self.limit);
            self.owner.entries_mut().set_limit(limit);
        }
        is_left
    }

    fn oldest_outdated(&self) -> Option<EntryRef> {
        let (entry, number) = self.owner.entries().oldest()?;
        (number <= self.outdated).then_some(entry)
    }

    /// Whether nothing is left of a cache that was there before.
    pub(crate) fn is_cleared_out(&self) -> bool {
        self.oldest_outdated().is_none()
    }

    /// Whether entries are so many that idle ones are to go soon. A chain makes room by itself.
    pub(crate) fn is_crowded(&self) -> bool {
        let entries = self.owner.entries().len();
        matches!(self.index, Index::Megaflow(_)) && entries > self.config.entries_max / 8 * 7
    }

    /// Looks up the packets of a burst as they are at ingress; `found` says at each place what was
    /// found.
    pub(crate) fn find_burst(&mut self, keys: &[FlowKey], found: &mut [Found; BURST]) {
        let mut missing = Missing::default();
        self.exact_places = 0;
        let asks_exact = self.trial.asks_exact;
        if asks_exact {
            self.find_exact(keys, found, &mut missing);
        } else {
            (0..keys.len()).for_each(|place| missing.push(place));
        }
        if !missing.is_empty() {
            let probes = self.find_wildcard(keys, found, missing.clone());
            self.trial.count(missing.len(), probes, self.exact.is_on());
            if asks_exact {
                self.insert_exact(keys, found, &missing);
            }
        }
        if let Index::Gigaflow(chain) = &mut self.index {
            self.sampled = chain.draw(&found[..keys.len()]);
        }
    }

    /// Looks up the packets at places that the exact-match cache does not know. Answers how many tables
    /// were asked, once per packet.
    fn find_wildcard(
        &mut self,
        keys: &[FlowKey],
        found: &mut [Found; BURST],
        mut missing: Missing,
    ) -> u32 {
        let megaflow = match &mut self.index {
            Index::Megaflow(megaflow) => megaflow,
            Index::Gigaflow(chain) => {
                let is_asked = |place: usize| self.exact_places >> place & 1 == 0;
                return chain.find_burst(&self.owner, keys, found, is_asked);
            }
        };
        let (asked, entries) = (missing.len(), self.owner.entries());
        let probes = megaflow.find_burst(keys, &mut missing, |place, entry| {
            let is_hit = entries.is_live(entry);
            if is_hit {
                found[place].set_one(entry.slot);
            }
            is_hit
        });
        self.tally.probes += u64::from(probes);
        self.tally.megaflow_misses += missing.len() as u64;
        self.tally.megaflow_hits += (asked - missing.len()) as u64;
        missing.places().for_each(|place| found[place].clear());
        probes
    }

    /// The hit at a place of the last burst was none: its packet waits, and is looked up again.
    pub(crate) fn put_off(&mut self, place: usize, found: &Found) {
        match &mut self.index {
            _ if self.exact_places >> place & 1 != 0 => self.tally.exact_hits -= 1,
            Index::Gigaflow(chain) => chain.put_off(found),
            Index::Megaflow(_) => self.tally.megaflow_hits -= 1,
        }
    }

    /// Looks up one packet in the wildcard cache alone: one that waited, or was recirculated. If it
    /// misses, [`Self::miss`] is to be told next.
    pub(crate) fn find(&mut self, key: &FlowKey) -> Found {
        let mut found = Found::default();
        match &mut self.index {
            Index::Gigaflow(chain) => {
                chain.find(&self.owner, key, &mut found);
                self.sampled = Sampled::NONE;
                if chain.is_sampled() && !found.is_miss() {
                    self.sampled.push(0);
                }
            }
            Index::Megaflow(megaflow) => {
                let entries = self.owner.entries();
                let entry = megaflow.find(key, |entry| entries.is_live(entry));
                self.tally.megaflow_hits += u64::from(entry.is_some());
                self.tally.megaflow_misses += u64::from(entry.is_none());
                entry.into_iter().for_each(|entry| found.set_one(entry.slot));
            }
        }
        found
    }

    /// Which of the packets that were looked up just now are to be shown to [`Self::observe`].
    pub(crate) const fn take_sampled(&mut self) -> Sampled {
        std::mem::replace(&mut self.sampled, Sampled::NONE)
    }

    /// Shows a packet that hit to whatever learns from such packets where to cut.
    pub(crate) fn observe(&mut self, miss: Miss<'_>) {
        if let Index::Gigaflow(chain) = &mut self.index {
            chain.observe(miss);
        }
    }

    /// Translates the packet that was looked up last, and makes entries for all packets that fare as
    /// it does; none for what teaches.
    pub(crate) fn miss(&mut self, miss: Miss<'_>) -> Answer {
        let megaflow = match &mut self.index {
            Index::Gigaflow(chain) => return chain.miss(&mut self.owner, miss),
            Index::Megaflow(megaflow) => megaflow,
        };
        let traversal = Arc::new(chain::translate(miss.pipeline, &miss));
        let mut entry = None;
        if traversal.learnings.is_empty()
            && let Ok(made) = self.owner.install(Arc::clone(&traversal), miss.now)
        {
            let home = megaflow.insert(&FlowKey::from(&traversal.key), &traversal.mask, made);
            self.owner.entries_mut().set_home(made.slot, home);
            self.tally.megaflow_inserts += 1;
            entry = Some(made);
        }
        Answer { pieces: vec![traversal], entry, translations: 1 }
    }

    /// Whether there is so little room left for a miss that the dead are to be buried first.
    pub(crate) fn wants_burials(&self) -> bool {
        let entries = self.owner.entries();
        entries.room() < 2 * CHAIN_MAX && entries.retired() > 0
    }

    /// A burst begins, or ends: until it has ended, only those that are dead by now are buried.
    pub(crate) fn hold_reclaims(&mut self, holds: bool) {
        let dead = self.owner.entries().buriable();
        self.reclaims_left = if holds { dead } else { usize::MAX };
    }

    /// Gives up some of those that wait to be made anew, as [`Entries::give_up`](super::Entries) says.
    /// They were dead before any burst that is under way, and are buried before what died in it.
    pub(crate) fn give_up(&mut self, count: usize, until: Option<Time>) -> usize {
        let given_up = self.owner.entries_mut().give_up(count, until);
        self.reclaims_left = self.reclaims_left.saturating_add(given_up);
        given_up
    }

    /// Ends one dead entry; `None` when there is none that may be.
    pub(crate) fn reclaim(&mut self) -> Option<Reclaimed> {
        self.reclaims_left = self.reclaims_left.checked_sub(1)?;
        let reclaimed = self.owner.entries_mut().reclaim()?;
        self.unlink(&reclaimed);
        Some(reclaimed)
    }

    fn unlink(&mut self, reclaimed: &Reclaimed) {
        match (&mut self.index, reclaimed.home) {
            (Index::Megaflow(megaflow), Some(home)) => megaflow.remove(home, reclaimed.reference),
            (Index::Gigaflow(chain), _) => chain.forget(reclaimed.reference),
            // A piece of a chain that is gone.
            (Index::Megaflow(_), None) => {}
        }
    }

    /// Ends the entry that was hit last of those that wait to be made anew, and makes it anew under
    /// the version of its owner. `None` when there is none.
    pub(crate) fn repair(&mut self, pipeline: &Pipeline) -> Option<Renewal> {
        let reclaimed = self.owner.entries_mut().reclaim_pending()?;
        self.unlink(&reclaimed);
        let (repaired, translations) = match &mut self.index {
            Index::Gigaflow(chain) => {
                let before = chain.totals().1.translations;
                let repaired = chain.repair(&mut self.owner, pipeline, &reclaimed);
                (repaired, chain.totals().1.translations - before)
            }
            Index::Megaflow(_) if reclaimed.home.is_some() => {
                let repaired = self.repair_megaflow(pipeline, &reclaimed);
                (repaired, u64::from(repaired != Repaired::Covered))
            }
            // What a piece says is true only of packets with its tag.
            Index::Megaflow(_) => (Repaired::Dropped, 0),
        };
        Some(Renewal { reclaimed, repaired, translations })
    }

    fn repair_megaflow(&mut self, pipeline: &Pipeline, old: &Reclaimed) -> Repaired {
        let Index::Megaflow(megaflow) = &mut self.index else { return Repaired::Dropped };
        let (key, entries) = (FlowKey::from(&old.traversal.key), self.owner.entries());
        if megaflow.find(&key, |entry| entries.is_live(entry)).is_some() {
            return Repaired::Covered;
        }
        let fresh = Arc::new(pipeline.translate_again(&old.traversal, self.owner.version()));
        if !fresh.learnings.is_empty() {
            return Repaired::Dropped;
        }
        let Ok(made) = self.owner.install(Arc::clone(&fresh), old.used) else {
            return Repaired::Dropped;
        };
        let home = megaflow.insert(&key, &fresh.mask, made);
        self.owner.entries_mut().set_home(made.slot, home);
        self.tally.megaflow_inserts += 1;
        Repaired::of(old.traversal.actions == fresh.actions)
    }

    /// Number of masks in the wildcard cache.
    pub(crate) fn masks(&self) -> usize {
        match &self.index {
            Index::Megaflow(megaflow) => megaflow.subtables(),
            Index::Gigaflow(chain) => chain.masks(),
        }
    }

    /// Where a live entry stands in the chain, if it is a piece of it.
    pub(crate) fn link(&self, entry: EntryRef) -> Option<Link> {
        self.chain()?.link(entry)
    }

    /// The chain, if that is what knows packets.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        match &self.index {
            Index::Megaflow(_) => None,
            Index::Gigaflow(chain) => Some(chain),
        }
    }

    /// One pass for each kind of memory: hashes, tags, lines, entries.
    fn find_exact(&mut self, keys: &[FlowKey], found: &mut [Found; BURST], missing: &mut Missing) {
        for (hash, key) in self.hashes.iter_mut().zip(keys) {
            *hash = ExactCache::hash(&self.hasher, key);
        }
        for (line, hash) in self.lines.iter_mut().zip(&self.hashes[..keys.len()]) {
            *line = self.exact.candidate(*hash);
        }
        self.lines[..keys.len()].iter().flatten().for_each(|line| self.exact.fetch(*line));
        let mut confirmed = [None; BURST];
        for ((confirmed, line), key) in confirmed.iter_mut().zip(&self.lines).zip(keys) {
            *confirmed = line.and_then(|line| self.exact.confirm(line, key));
        }
        let entries = self.owner.entries();
        for (place, (first, line)) in
            confirmed.into_iter().zip(&self.lines).enumerate().take(keys.len())
        {
            let is_hit = first.zip(*line).is_some_and(|(first, line)| {
                found[place].clear();
                let further = self.exact.further(line);
                iter::once(first).chain(further).all(|entry| {
                    found[place].push(entry.slot);
                    entries.is_live(entry)
                })
            });
            if is_hit {
                self.exact_places |= 1 << place;
            } else {
                missing.push(place);
            }
        }
        self.tally.exact_misses += missing.len() as u64;
        self.tally.exact_hits += (keys.len() - missing.len()) as u64;
    }

    /// Puts some of what only the wildcard cache knew into the exact-match cache.
    fn insert_exact(&mut self, keys: &[FlowKey], found: &[Found; BURST], asked: &Missing) {
        let entries = self.owner.entries();
        for place in asked.places() {
            if found[place].is_miss() || !self.exact.chooses() {
                continue;
            }
            let (mut names, mut count) = ([ExactCache::NO_ENTRY; CHAIN_MAX], 0);
            for name in found[place].slots().iter().map_while(|slot| entries.live_at(*slot)) {
                names[count] = name;
                count += 1;
            }
            // A part of a walk says nothing of its end.
            if count == found[place].slots().len() {
                self.exact.insert(self.hashes[place], &keys[place], &names[..count]);
                self.tally.exact_inserts += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shunt_pipeline::{OwnerId, Pipeline};

    use super::*;

    #[test]
    fn what_a_burst_may_have_found_is_buried_when_it_is_over() {
        let ((reports, _coordinator), (learn_requests, _control)) =
            (rtrb::RingBuffer::new(16), rtrb::RingBuffer::new(1));
        let (pipeline, key) = (Pipeline::new(1), FlowKey::ZERO);
        let version = pipeline.version();
        let owner = Owner::new(OwnerId(0), version, 4, reports, learn_requests);
        let mut caches = Caches::new(&CacheConfig::default(), owner, 1);
        let dead = |caches: &mut Caches| {
            let now = Time::ZERO;
            let miss = Miss { pipeline: &pipeline, key: &key, start: None, version, now };
            let entry = caches.miss(miss).entry.unwrap();
            assert!(caches.owner.expire(entry));
            entry
        };
        let before = dead(&mut caches);
        caches.hold_reclaims(true);
        let found = dead(&mut caches);
        assert_eq!(caches.reclaim().map(|reclaimed| reclaimed.reference), Some(before));
        assert!(caches.reclaim().is_none(), "a packet of the burst may have found it");
        caches.hold_reclaims(false);
        assert_eq!(caches.reclaim().map(|reclaimed| reclaimed.reference), Some(found));
    }

    #[test]
    fn what_waits_to_be_made_anew_is_given_up_before_what_a_burst_may_have_found() {
        let ((reports, _coordinator), (learn_requests, _control)) =
            (rtrb::RingBuffer::new(16), rtrb::RingBuffer::new(1));
        let (pipeline, key) = (Pipeline::new(1), FlowKey::ZERO);
        let version = pipeline.version();
        let owner = Owner::new(OwnerId(0), version, 8, reports, learn_requests);
        let mut caches = Caches::new(&CacheConfig::default(), owner, 1);
        let now = Time::ZERO;
        let mut made = || {
            let miss = Miss { pipeline: &pipeline, key: &key, start: None, version, now };
            caches.miss(miss).entry.unwrap()
        };
        let [first, second, found] = [made(), made(), made()];
        for fallen in [first, second] {
            assert!(caches.owner.entries_mut().evict_for_repair(fallen, now));
        }
        caches.hold_reclaims(true);
        assert!(caches.owner.expire(found));
        assert!(caches.reclaim().is_none(), "those that fell are still to be made anew");
        let reference = |reclaimed: Reclaimed| reclaimed.reference;
        assert_eq!((caches.give_up(1, None), caches.reclaim().map(reference)), (1, Some(first)));
        assert!(caches.reclaim().is_none(), "a packet of the burst may have found it");
        assert_eq!((caches.give_up(8, None), caches.reclaim().map(reference)), (1, Some(second)));
        assert!(caches.reclaim().is_none());
        caches.hold_reclaims(false);
        assert_eq!(caches.reclaim().map(reference), Some(found));
    }

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
