//! A chain of stages as the cache of a packet thread: pieces of traversals that flows share.
//!
//! Where to cut, what a piece says and how a packet walks is [`shunt_gigaflow`]'s. The entries are the
//! [`Owner`]'s, like those of any cache: it reports them, an advance drops them, and a hit counts there.
//! So there is one home of what is hot, and one generation by which an entry that went is known.
//!
//! A packet that misses midway has done nothing. It goes on in the tables where it missed, or starts
//! over if what is left cannot be kept apart; either way it fares as its version says.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Config, Counts, Gigaflow, Miss},
    ltm::{Link, Walk},
    partition::StageId,
};
use shunt_pipeline::{Pipeline, Traversal};

use super::{Answer, EntryRef, Found, Reclaimed, Repaired, Sampled};
use crate::{
    evict::owner::Owner,
    metrics::{CHAIN_MAX, ChainCounters},
    packet::buffer::BURST,
};

/// The chain of a packet thread.
#[derive(Debug)]
pub(crate) struct Chain {
    gigaflow: Gigaflow,
    walk: Walk,
    /// Those of a burst.
    walks: Box<[Walk]>,
    /// Whether the packet that was looked up last was drawn for the duel.
    is_sampled: bool,
    pub(crate) tally: ChainTally,
}

/// What a chain counts, in plain words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChainTally {
    /// Packets that came to the end of their way.
    pub(crate) hits: u64,
    /// Packets that met no entry.
    pub(crate) misses: u64,
    /// Packets that met some, and no end.
    pub(crate) partial: u64,
    /// Entries that hits met, one after the other.
    pub(crate) steps: u64,
}

/// All that chains of a packet thread have counted.
pub(crate) type ChainTotals = (ChainTally, Counts);

impl Chain {
    /// An empty chain. It goes on counting where the one before it stopped, if there was one.
    pub(crate) fn new(config: Config, (tally, counts): ChainTotals) -> Self {
        let mut gigaflow = Gigaflow::new(bounded(config));
        gigaflow.count_on(counts);
        let walks = vec![Walk::default(); BURST].into_boxed_slice();
        Self { gigaflow, walk: Walk::default(), walks, is_sampled: false, tally }
    }

    /// What it has counted.
    pub(crate) const fn totals(&self) -> ChainTotals {
        (self.tally, self.gigaflow.counts())
    }

    /// How many entries its stages hold.
    pub(crate) fn entries_max(&self) -> usize {
        let Capacity { stages_count, stage_entries_max } = self.gigaflow.ltm().capacity();
        stage_entries_max.saturating_mul(stages_count.into())
    }

    /// How many entries a packet meets at most.
    pub(crate) fn pieces_max(&self) -> usize {
        self.gigaflow.ltm().capacity().stages_count.into()
    }

    /// Walks a packet through the stages. If it comes to no end, nothing was found, and
    /// [`Self::miss`] is to be told next.
    pub(crate) fn find(&mut self, owner: &Owner, key: &FlowKey, found: &mut Found) {
        self.is_sampled = self.gigaflow.draws();
        self.gigaflow.find(owner, key, &mut self.walk);
        self.tally.count(&self.walk, found);
    }

    /// Walks those packets of a burst through the stages, in step, that are asked for. Answers how many
    /// tables were asked, once per packet.
    pub(crate) fn find_burst(
        &mut self,
        owner: &Owner,
        keys: &[FlowKey],
        found: &mut [Found; BURST],
        is_asked: impl Fn(usize) -> bool,
    ) -> u32 {
        let walks = &mut self.walks[..keys.len()];
        let probes = self.gigaflow.find_burst(owner, keys, walks, &is_asked);
        for (place, (walk, found)) in walks.iter().zip(found).enumerate() {
            if is_asked(place) {
                self.tally.count(walk, found);
            }
        }
        probes
    }

    /// Which of the packets of a burst that hit, here or in front of it, are to be shown to
    /// [`Self::observe`].
    pub(crate) fn draw(&mut self, found: &[Found]) -> Sampled {
        let mut sampled = Sampled::NONE;
        for (place, found) in found.iter().enumerate() {
            if self.gigaflow.draws() && !found.is_miss() {
                sampled.push(place);
            }
        }
        sampled
    }

    /// What a packet of a burst has found is looked up again.
    pub(crate) fn put_off(&mut self, found: &Found) {
        self.tally.hits -= 1;
        self.tally.steps -= found.slots().len() as u64;
    }

    /// Whether the packet that was looked up last is to be shown to [`Self::observe`], if it hit.
    pub(crate) const fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Shows a packet that hit to the duel.
    pub(crate) fn observe(&mut self, miss: Miss<'_>) {
        self.gigaflow.observe(miss);
    }

    /// Translates the packet that was looked up last, from where it missed or from its beginning, and
    /// makes entries for those that come after it.
    pub(crate) fn miss(&mut self, owner: &mut Owner, miss: Miss<'_>) -> Answer {
        let met: Vec<EntryRef> = self.gigaflow.ltm().names(self.walk.slots()).collect();
        let traversal = |entry: &EntryRef| owner.entries().traversal(entry.slot).map(Arc::clone);
        let mut pieces: Vec<Arc<Traversal>> = met.iter().filter_map(traversal).collect();
        let probe = if self.is_sampled { ProbeResult::Sampled } else { ProbeResult::Missed };
        let before = self.gigaflow.counts().translations;
        if let Some(rest) = self.gigaflow.go_on(owner, miss, &self.walk, probe) {
            met.iter().for_each(|entry| owner.touch(*entry, miss.now));
            pieces.push(rest);
        } else {
            let whole = self.gigaflow.start_over(owner, miss, &self.walk, probe);
            pieces = vec![whole];
        }
        let translations = self.gigaflow.counts().translations - before;
        Answer { pieces, entry: None, translations }
    }

    /// Makes the pieces of the way anew that an entry was the first of. Those behind it are not made
    /// anew by themselves: where they begin, packets still come, and miss midway.
    pub(crate) fn repair(
        &mut self,
        owner: &mut Owner,
        pipeline: &Pipeline,
        old: &Reclaimed,
    ) -> Repaired {
        if old.traversal.continuation.is_some() {
            return Repaired::Dropped;
        }
        let (key, mut walk) = (FlowKey::from(&old.traversal.key), Walk::default());
        if self.gigaflow.find(owner, &key, &mut walk) {
            return Repaired::Covered;
        }
        let (version, now) = (owner.version(), old.used);
        let miss = Miss { pipeline, key: &key, start: None, version, now };
        self.gigaflow.miss(owner, miss, ProbeResult::Anew);
        if !self.gigaflow.find(owner, &key, &mut walk) {
            return Repaired::Dropped;
        }
        let first = walk.slots().first().and_then(|slot| owner.entries().traversal(*slot));
        Repaired::of(first.is_some_and(|own| {
            own.actions == old.traversal.actions && own.next == old.traversal.next
        }))
    }

    /// An entry is gone for good.
    pub(crate) fn forget(&mut self, entry: EntryRef) {
        self.gigaflow.ltm_mut().forget(entry);
    }

    /// Where an entry stands among the others.
    pub(crate) fn link(&self, entry: EntryRef) -> Option<Link> {
        let ltm = self.gigaflow.ltm();
        let is_own = ltm.names(&[entry.slot]).next() == Some(entry);
        if is_own { ltm.link(entry.slot) } else { None }
    }

    /// Masks of all stages.
    pub(crate) fn masks(&self) -> usize {
        self.gigaflow.ltm().masks_count()
    }

    /// Lets everybody see the counts.
    pub(crate) fn publish(&self, counters: &ChainCounters) {
        let (tally, counts, ltm) = (self.tally, self.gigaflow.counts(), self.gigaflow.ltm());
        for (counter, count) in [
            (&counters.hits, tally.hits),
            (&counters.steps, tally.steps),
            (&counters.misses, tally.misses),
            (&counters.partial, tally.partial),
            (&counters.resumed, counts.resumed),
            (&counters.made, counts.made),
            (&counters.shared, counts.shared),
            (&counters.evicted, counts.evicted),
            (&counters.teaching, counts.teaching),
            (&counters.near_bounds, counts.near_bounds),
            (&counters.without_tags, counts.without_tags),
            (&counters.without_room, counts.without_room),
            (&counters.refused, counts.refused),
            (&counters.tags, ltm.tags().len() as u64),
        ] {
            counter.set(count);
        }
        for (stage, own) in (0..).map_while(StageId::new).zip(&counters.stages) {
            own.entries.set(ltm.len(stage) as u64);
            own.masks.set(ltm.masks_of(stage) as u64);
        }
    }
}

impl ChainTally {
    /// Counts a walk; `found` says what it found, if it came to an end.
    #[inline]
    fn count(&mut self, walk: &Walk, found: &mut Found) {
        let slots = walk.slots();
        if walk.is_hit() {
            self.hits += 1;
            self.steps += slots.len() as u64;
            found.set(slots);
            return;
        }
        found.clear();
        self.misses += u64::from(slots.is_empty());
        self.partial += u64::from(!slots.is_empty());
    }
}

/// Translates a packet as a miss says, without a cache.
pub(crate) fn translate(pipeline: &Pipeline, miss: &Miss<'_>) -> Traversal {
    match miss.start {
        None => pipeline.translate(miss.key, miss.version),
        Some(start) => pipeline.resume(miss.key, start, miss.version),
    }
}

/// What is asked for, as far as one walk can go.
fn bounded(config: Config) -> Config {
    let stages_max = u8::try_from(CHAIN_MAX).unwrap_or(u8::MAX);
    let stages_count = config.capacity.stages_count.clamp(1, stages_max);
    let stage_entries_max = config.capacity.stage_entries_max.max(1);
    Config { capacity: Capacity { stages_count, stage_entries_max }, ..config }
}
