//! The chain: stages that a packet walks, and the tags that it has in between.
//!
//! A walk changes nothing. It gathers the entries that the packet meets, and the headers that it has
//! by then; only whoever finds that it came to the end does what they say. A packet that misses
//! midway has done nothing, and starts over, or goes on in the tables at the tag where it stopped.
//!
//! # Room
//!
//! Rules that are equal are one entry. Where a stage is full, what its [`Eviction`] says makes room.
//! Any entry may go at any time: what is left is right on its own.

use std::sync::Arc;

use hashbrown::HashMap;
use shunt_flow::{FlowKey, Match};
use shunt_pipeline::{Time, Traversal};

use super::{
    EntryRef, Hits, LtmRule, Next, Tag,
    entry::{Entries, Entry},
    table::Table,
};
use crate::{
    adaptive::Capacity,
    partition::{STAGES_MAX, StageId, StageSet, Stages},
    tag::{Reuse, TagName, TagSpace, TagsFull},
    way::Candidate,
};

/// K stages in software, with their tags.
#[derive(Debug)]
pub struct Ltm {
    capacity: Capacity,
    eviction: Eviction,
    stages: Vec<Table>,
    entries: Entries,
    tags: TagSpace,
    /// Stages by the identity of what they hold.
    holders: HashMap<u64, StageSet, foldhash::fast::FixedState>,
    made: u64,
    /// Entries up to this number make room first.
    outdated: u64,
}

/// Which entry of a full stage makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// None, but for what is [outdated](Ltm::outdate): what does not fit is not cached.
    Never,
    /// The one that was used longest ago.
    #[default]
    LeastRecent,
    /// Of those that were used longest ago, the one that the fewest flows share.
    LeastShared,
}

/// The way of a packet through the chain. It is used again for the next packet.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    slots: Vec<u32>,
    /// The headers, if an entry has rewritten some.
    key: FlowKey,
    is_rewritten: bool,
    tag: Option<Tag>,
    is_hit: bool,
}

/// What became of a rule that was put into a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is an entry.
    Fresh(EntryRef),
    /// It was one already.
    Shared(EntryRef),
    /// There is no room.
    Full,
}

/// A rule to put into a stage.
#[derive(Clone, Debug)]
pub struct Candidacy {
    /// The rule.
    pub rule: LtmRule,
    /// The piece that it is.
    pub traversal: Arc<Traversal>,
    /// What policies call it.
    pub identity: u64,
}

/// How many of the least recent entries are compared by what they share.
const SHARING_SAMPLE: usize = 8;

impl Ltm {
    /// Empty stages; tags have so many bits.
    #[must_use]
    pub fn new(capacity: Capacity, eviction: Eviction, tag_bits: u8, seed: u64) -> Self {
        let stages_count = capacity.stages_count.clamp(1, STAGES_MAX);
        Self {
            capacity: Capacity { stages_count, ..capacity },
            eviction,
            stages: (0..stages_count).map(|_| Table::new(seed)).collect(),
            entries: Entries::new(stages_count),
            tags: TagSpace::new(tag_bits, Reuse::AtOnce, seed),
            holders: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
            made: 0,
            outdated: 0,
        }
    }

    /// Walks a packet through the stages, and says whether it came to the end of its way.
    pub fn find(&self, key: &FlowKey, walk: &mut Walk) -> bool {
        walk.begin(self.tags.start_of(key));
        for stage in &self.stages {
            let Some(tag) = walk.tag else { return false };
            let now = if walk.is_rewritten { &walk.key } else { key };
            let Some(slot) = stage.find(tag, now) else { continue };
            let Some(entry) = self.entries.get(slot) else { continue };
            walk.slots.push(slot);
            match entry.rule.next {
                Next::End => {
                    walk.is_hit = true;
                    return true;
                }
                Next::Tag(tag) => {
                    walk.tag = Some(tag);
                    walk.rewrite(key, &entry.rule.rewrite);
                }
            }
        }
        false
    }

    /// What an entry of a walk says; the walk has been made since an entry was last removed.
    #[must_use]
    pub fn rule(&self, slot: u32) -> Option<&LtmRule> {
        self.entries.get(slot).map(|entry| &entry.rule)
    }

    /// The stage of an entry of a walk.
    #[must_use]
    pub fn stage(&self, slot: u32) -> Option<StageId> {
        self.entries.get(slot).map(|entry| entry.stage)
    }

    /// The names of entries of a walk.
    pub fn names<'a>(&'a self, slots: &'a [u32]) -> impl Iterator<Item = EntryRef> + 'a {
        slots.iter().filter_map(|slot| self.entries.named(*slot))
    }

    /// The traversal of an entry, in a walk or by name.
    #[must_use]
    pub fn traversal(&self, slot: u32) -> Option<&Arc<Traversal>> {
        self.entries.get(slot).map(|entry| &entry.traversal)
    }

    /// Counts a packet for every entry of its walk.
    pub fn hit(&mut self, walk: &Walk, bytes: u64, now: Time) {
        for slot in &walk.slots {
            if let Some(entry) = self.entries.get_mut(*slot) {
                entry.hits.packets += 1;
                entry.hits.bytes += bytes;
                entry.hits.used = now;
            }
            if self.eviction != Eviction::Never {
                self.entries.touch(*slot);
            }
        }
    }

    /// Hands over what was counted since it was last asked.
    pub fn take_hits(&mut self, mut credit: impl FnMut(&Traversal, Hits)) {
        let slots: Vec<u32> = self.entries.iter().map(|(entry, _)| entry.slot).collect();
        for slot in slots {
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            let hits = entry.hits;
            if hits.packets > 0 {
                entry.hits = Hits { used: hits.used, ..Hits::default() };
                credit(&entry.traversal, hits);
            }
        }
    }

    /// The tag of a name, to make a rule with. It is to be released when that is done.
    ///
    /// # Errors
    ///
    /// There are no tags left.
    pub fn hold(&mut self, name: &TagName) -> Result<Tag, TagsFull> {
        self.tags.hold(name)
    }

    /// Gives back what [`Self::hold`] gave.
    pub fn release(&mut self, tag: Tag) {
        self.tags.release(tag);
    }

    /// Its tags.
    #[must_use]
    pub const fn tags(&self) -> &TagSpace {
        &self.tags
    }

    /// Puts a rule into a stage. One that is there and says something else gives way to it, which is
    /// told.
    pub fn put(
        &mut self,
        candidacy: Candidacy,
        stage: StageId,
        now: Time,
        mut gone: impl FnMut(EntryRef, &Arc<Traversal>, Hits),
    ) -> Put {
        let Candidacy { rule, traversal, identity } = candidacy;
        let Some(table) = self.stages.get(stage.index()) else { return Put::Full };
        if let Some(slot) = table.find_exact(&rule) {
            if let Some(held) = self.entries.get_mut(slot).filter(|held| held.rule == rule) {
                held.shares += 1;
                held.hits.used = held.hits.used.max(now);
                if held.identity != identity {
                    let before = std::mem::replace(&mut held.identity, identity);
                    self.note_holder(before, stage, Held::No);
                    self.note_holder(identity, stage, Held::Yes);
                }
                if self.eviction != Eviction::Never {
                    self.entries.touch(slot);
                }
                return self.entries.named(slot).map_or(Put::Full, Put::Shared);
            }
            self.take_out(slot, &mut gone);
        }
        if self.is_full(stage) {
            return Put::Full;
        }
        self.tags.hold_again(rule.tag);
        if let Next::Tag(next) = rule.next {
            self.tags.hold_again(next);
        }
        self.made += 1;
        let hits = Hits { used: now, ..Hits::default() };
        let (shares, made) = (0, self.made);
        let entry = Entry { rule, traversal, stage, identity, shares, hits, made };
        let slot = self.entries.insert(entry);
        if let Some(entry) = self.entries.get(slot) {
            self.stages[stage.index()].insert(&entry.rule, slot);
        }
        self.note_holder(identity, stage, Held::Yes);
        self.entries.named(slot).map_or(Put::Full, Put::Fresh)
    }

    /// Takes out an entry; nothing happens if it is gone.
    pub fn remove(&mut self, entry: EntryRef) -> Option<(LtmRule, Hits)> {
        (self.entries.named(entry.slot)? == entry).then(|| self.remove_slot(entry.slot))?
    }

    /// Makes room for one entry more in a stage that is full, if anything may go, and tells what goes.
    /// Entries of `kept` stay.
    pub fn make_room(
        &mut self,
        stage: StageId,
        kept: &[EntryRef],
        mut gone: impl FnMut(EntryRef, &Arc<Traversal>, Hits),
    ) {
        if self.is_full(stage)
            && let Some(slot) = self.victim(stage, kept)
        {
            self.take_out(slot, &mut gone);
        }
    }

    /// The stages that have room, or can make some.
    #[must_use]
    pub fn room_to_make(&self) -> StageSet {
        let all = StageSet::first_of(self.capacity.stages_count);
        let has_room =
            |stage: &StageId| !self.is_full(*stage) || self.victim(*stage, &[]).is_some();
        all.iter().filter(has_room).fold(StageSet::EMPTY, StageSet::with)
    }

    /// When the entry was used last that would make room in a stage; `None`: none may go.
    #[must_use]
    pub fn oldest_use(&self, stage: StageId) -> Option<Time> {
        let victim = self.entries.get(self.victim(stage, &[])?)?;
        Some(victim.hits.used)
    }

    /// Whether a stage has room for one entry more.
    #[must_use]
    pub fn has_room(&self, stage: StageId) -> bool {
        !self.is_full(stage)
    }

    /// What is there now is not what is made from now on: it makes room whatever the eviction says.
    pub const fn outdate(&mut self) {
        self.outdated = self.made;
    }

    /// Takes out entries that have not been used since `before`.
    pub fn expire(&mut self, before: Time, mut gone: impl FnMut(EntryRef, &Arc<Traversal>, Hits)) {
        let is_idle = |(_, entry): &(EntryRef, &Entry)| entry.hits.used < before;
        let idle: Vec<u32> =
            self.entries.iter().filter(is_idle).map(|(name, _)| name.slot).collect();
        idle.into_iter().for_each(|slot| self.take_out(slot, &mut gone));
    }

    /// Takes out the shorter entries that packets with this key meet under a tag: they would lead
    /// them past one that is longer.
    pub fn clear_the_way(
        &mut self,
        tag: Tag,
        key: &FlowKey,
        length: u16,
        mut gone: impl FnMut(EntryRef, &Arc<Traversal>, Hits),
    ) {
        for stage in 0..self.stages.len() {
            while let Some(slot) = self.stages[stage].find(tag, key)
                && self.entries.get(slot).is_some_and(|entry| entry.rule.length < length)
            {
                self.take_out(slot, &mut gone);
            }
        }
    }

    /// How many entries a stage has.
    #[must_use]
    pub fn len(&self, stage: StageId) -> usize {
        self.entries.count(stage)
    }

    /// How many entries there are.
    #[must_use]
    pub fn entries_count(&self) -> usize {
        self.entries.iter().count()
    }

    /// How often entries were found there when flows were installed.
    #[must_use]
    pub fn shares_count(&self) -> u64 {
        self.entries.iter().map(|(_, entry)| u64::from(entry.shares)).sum()
    }

    /// How many different ways lead from a beginning to an end through the entries: the rule space of
    /// the paper, counted.
    #[must_use]
    pub fn coverage(&self) -> u128 {
        // Ways from each tag to the end, by the stages from the last one on.
        let mut ways: HashMap<Tag, u128, foldhash::fast::FixedState> = HashMap::default();
        for stage in
            StageSet::first_of(self.capacity.stages_count).iter().collect::<Vec<_>>().iter().rev()
        {
            let mut here: HashMap<Tag, u128, foldhash::fast::FixedState> = HashMap::default();
            for (_, entry) in self.entries.oldest(*stage) {
                let behind = match entry.rule.next {
                    Next::End => 1,
                    Next::Tag(next) => ways.get(&next).copied().unwrap_or(0),
                };
                let all = here.entry(entry.rule.tag).or_default();
                *all = all.saturating_add(behind);
            }
            for (tag, count) in here {
                let all = ways.entry(tag).or_default();
                *all = all.saturating_add(count);
            }
        }
        let starts = |tag: &Tag| matches!(self.tags.name(*tag), Some(TagName::Start(_)));
        ways.iter()
            .filter(|(tag, _)| starts(tag))
            .fold(0, |all, (_, count)| all.saturating_add(*count))
    }

    /// All entries, with their stages.
    pub fn entries(&self) -> impl Iterator<Item = (EntryRef, StageId, &LtmRule)> {
        self.entries.iter().map(|(name, entry)| (name, entry.stage, &entry.rule))
    }

    /// Masks of all stages, those of different tags counted apart.
    #[must_use]
    pub fn masks_count(&self) -> usize {
        self.stages.iter().map(Table::masks_count).sum()
    }

    /// How large it is.
    #[must_use]
    pub const fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn is_full(&self, stage: StageId) -> bool {
        self.entries.count(stage) >= self.capacity.stage_entries_max
    }

    fn victim(&self, stage: StageId, kept: &[EntryRef]) -> Option<u32> {
        let is_free = |(slot, _): &(u32, &Entry)| kept.iter().all(|kept| kept.slot != *slot);
        let mut oldest = self.entries.oldest(stage).filter(is_free);
        let victim = match self.eviction {
            Eviction::Never => oldest.next().filter(|(_, entry)| entry.made <= self.outdated),
            Eviction::LeastRecent => oldest.next(),
            Eviction::LeastShared => {
                oldest.take(SHARING_SAMPLE).min_by_key(|(_, entry)| (entry.shares, entry.made))
            }
        };
        victim.map(|(slot, _)| slot)
    }

    fn take_out(&mut self, slot: u32, gone: &mut impl FnMut(EntryRef, &Arc<Traversal>, Hits)) {
        let Some(name) = self.entries.named(slot) else { return };
        let traversal = self.entries.get(slot).map(|entry| Arc::clone(&entry.traversal));
        if let (Some(traversal), Some((_, hits))) = (traversal, self.remove_slot(slot)) {
            gone(name, &traversal, hits);
        }
    }

    fn remove_slot(&mut self, slot: u32) -> Option<(LtmRule, Hits)> {
        let Entry { rule, stage, identity, hits, .. } = self.entries.remove(slot)?;
        if let Some(table) = self.stages.get_mut(stage.index()) {
            table.remove(&rule);
        }
        self.note_holder(identity, stage, Held::No);
        self.tags.release(rule.tag);
        if let Next::Tag(next) = rule.next {
            self.tags.release(next);
        }
        Some((rule, hits))
    }

    fn note_holder(&mut self, identity: u64, stage: StageId, held: Held) {
        let stages = self.holders.entry(identity).or_default();
        *stages = match held {
            Held::Yes => stages.with(stage),
            Held::No => stages.without(StageSet::EMPTY.with(stage)),
        };
        if *stages == StageSet::EMPTY {
            self.holders.remove(&identity);
        }
    }
}

/// Whether a stage holds something.
#[derive(Clone, Copy)]
enum Held {
    Yes,
    No,
}

impl Stages for Ltm {
    fn count(&self) -> u8 {
        self.capacity.stages_count
    }

    fn holders(&self, piece: &Candidate) -> StageSet {
        self.holders.get(&piece.identity).copied().unwrap_or_default()
    }

    fn room(&self) -> StageSet {
        let all = StageSet::first_of(self.capacity.stages_count);
        all.iter().filter(|stage| !self.is_full(*stage)).fold(StageSet::EMPTY, StageSet::with)
    }
}

impl Walk {
    fn begin(&mut self, tag: Option<Tag>) {
        self.slots.clear();
        (self.is_rewritten, self.is_hit, self.tag) = (false, false, tag);
    }

    /// The entries that the packet met, first to last.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Whether the packet came to the end of its way.
    #[must_use]
    pub const fn is_hit(&self) -> bool {
        self.is_hit
    }

    /// The tag that the packet has where it missed; `None`: no packet begins as it does.
    #[must_use]
    pub const fn tag(&self) -> Option<Tag> {
        self.tag
    }

    /// The headers of the packet where it missed, with the hidden words that it came with.
    #[must_use]
    pub const fn key<'a>(&'a self, ingress: &'a FlowKey) -> &'a FlowKey {
        if self.is_rewritten { &self.key } else { ingress }
    }

    fn rewrite(&mut self, ingress: &FlowKey, rewrite: &Match) {
        if rewrite.mask().is_empty() {
            return;
        }
        if !self.is_rewritten {
            self.key.clone_from(ingress);
            self.is_rewritten = true;
        }
        let words = self.key.words_mut();
        for ((index, mask), value) in rewrite.mask().iter().zip(rewrite.value()) {
            words[index] = words[index] & !mask | value;
        }
    }
}

impl Eviction {
    /// Every policy of eviction.
    pub const ALL: [Self; 3] = [Self::Never, Self::LeastRecent, Self::LeastShared];

    /// The name as users write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::LeastRecent => "least-recent",
            Self::LeastShared => "least-shared",
        }
    }
}
