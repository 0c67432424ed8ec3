//! The chain of stages in software, with the tags that packets have between the stages.
//!
//! A [`Walk`] looks up a packet in the stages one by one, and changes nothing. The walk collects
//! the entries that the packet matches, and applies their rewrites to a copy of the headers. The
//! caller executes the actions only if the packet hits. After a partial hit no action is executed
//! yet: the packet starts over, or it resumes in the pipeline at the tag where it missed.
//!
//! # Room
//!
//! Equal rules are one entry. A full stage evicts an entry according to the [`Eviction`] policy.
//! Any entry may be evicted at any time, because each remaining entry is correct on its own.
//!
//! A walk ignores an entry as soon as the [`Store`] has ended it. The chain unlinks an ended entry
//! when [`Ltm::forget`] is called, or when it finds the entry while it makes room.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_pipeline::{Time, Traversal};

use super::{
    Coverage, CoverageLink, Eviction, LtmEntryRef, LtmRule, Next, PartitionOrigin, Store, Tag,
    Walk,
    identity_index::IdentityIndex,
    partition_origin::{PartitionMember, first_table_of},
    stage_entries::{StageEntries, StageEntry, UseClass},
    table::{CHUNK_MAX, Chunk, ChunkMatches, LtmTable, PacketSet},
    victim_choice::VictimChoice,
};
use crate::{
    adaptive::Capacity,
    outline::{StateId, SubTraversalId, SubTraversalOutline},
    partition::{STAGES_MAX, StageId, StageSet, StageView},
    tag::{TagName, TagSpace, TagsFull},
};

/// A chain of stages in software, with its tags.
#[derive(Debug)]
pub struct Ltm {
    capacity: Capacity,
    victims: VictimChoice,
    /// The LTM table of each stage.
    stages: Vec<LtmTable>,
    stage_entries: StageEntries,
    tags: TagSpace,
    index: IdentityIndex,
    /// Number of entries that were made so far.
    made: u64,
    /// Number of entries that were evicted so far.
    evicted: u64,
}

/// The result of putting a rule into a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// The rule was inserted as a new entry.
    Fresh(LtmEntryRef),
    /// The stage holds an entry with an equal rule already.
    Shared(LtmEntryRef),
    /// The stage has no room, and no entry that may be evicted.
    Full,
    /// The store cannot make or end an entry now.
    Refused,
}

/// A rule to put into a stage.
#[derive(Debug)]
pub struct NewLtmEntry {
    /// The LTM rule of the entry.
    pub rule: LtmRule,
    /// The sub-traversal that was translated into the rule.
    pub traversal: Arc<Traversal>,
    /// The id of the sub-traversal, which policies compare.
    pub id: SubTraversalId,
    /// The stage that the rule is put into.
    pub stage: StageId,
    /// The partition that the entry belongs to.
    pub origin: PartitionOrigin,
}

/// A search for an entry that a planned sub-traversal can reuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryQuery<'a> {
    /// The identity of the sub-traversal.
    pub(crate) identity: u64,
    /// The stage to search.
    pub(crate) stage: StageId,
    /// The tag of the packet.
    pub(crate) tag: Tag,
    /// The current headers of the packet. Hidden words are ignored.
    pub(crate) key: &'a FlowKey,
    /// Number of visits of the sub-traversal.
    pub(crate) visits_count: u16,
    /// True if the sub-traversal is the last one of its traversal.
    pub(crate) is_last: bool,
}

/// Maximum number of entries that one call of `sort_stage` moves or unlinks.
const CHANCES_MAX: usize = 64;

impl Ltm {
    /// Creates empty stages. No tag of `tags` may be in use.
    #[must_use]
    pub fn new(capacity: Capacity, eviction: Eviction, tags: TagSpace, seed: u64) -> Self {
        let stages_count = capacity.stages_count.clamp(1, STAGES_MAX);
        Self {
            capacity: Capacity { stages_count, ..capacity },
            victims: VictimChoice::new(eviction, capacity, seed),
            stages: (0..stages_count).map(|_| LtmTable::new(seed)).collect(),
            stage_entries: StageEntries::new(stages_count),
            tags,
            index: IdentityIndex::new(capacity),
            made: 0,
            evicted: 0,
        }
    }

    /// Looks up a packet in the stages one by one, and returns whether it hits.
    pub fn find(&self, store: &impl Store, key: &FlowKey, walk: &mut Walk) -> bool {
        walk.begin(self.tags.start_of(key));
        for stage in 0..self.stages.len() {
            if walk.is_over() {
                break;
            }
            self.step(stage, key, walk, |entry| store.is_live(entry));
        }
        walk.is_hit()
    }

    /// Looks up many packets in the stages; returns the number of hash table lookups.
    ///
    /// All packets are looked up in one stage before the next stage, and in one mask group before
    /// the next group. So the processor cache misses of many packets overlap. All packets must
    /// arrive on one bridge and have no hidden state.
    ///
    /// `walks` gets the entries that each packet hit. Only packets at the indexes that
    /// `is_selected` accepts are looked up, and the walk of any other packet stays empty. At the
    /// end, the store is asked whether the matched entries are live. A packet that matched a dead
    /// entry is looked up once more, which is rare.
    pub fn find_burst(
        &mut self,
        store: &impl Store,
        keys: &[FlowKey],
        walks: &mut [Walk],
        is_selected: impl Fn(usize) -> bool,
    ) -> u32 {
        let few =
            keys.chunks(CHUNK_MAX).zip(walks.chunks_mut(CHUNK_MAX)).zip((0..).step_by(CHUNK_MAX));
        few.map(|((keys, walks), start)| {
            self.find_chunk(store, keys, walks, |packet| is_selected(start + packet))
        })
        .sum()
    }

    /// Looks up a chunk of packets, stage by stage.
    fn find_chunk(
        &mut self,
        store: &impl Store,
        keys: &[FlowKey],
        walks: &mut [Walk],
        is_selected: impl Fn(usize) -> bool,
    ) -> u32 {
        let start = keys.first().and_then(|key| self.tags.start_of(key));
        for (packet, (key, walk)) in keys.iter().zip(&mut *walks).enumerate() {
            debug_assert_eq!(
                self.tags.start_of(key),
                start,
                "all packets of a burst have one bridge and no hidden state"
            );
            walk.begin(start.filter(|_| is_selected(packet)));
        }
        let mut probes = 0;
        for stage in &mut self.stages {
            let (mut waiting, mut found) = (PacketSet::EMPTY, ChunkMatches::EMPTY);
            let going = |(_, walk): &(usize, &Walk)| !walk.is_over();
            walks
                .iter()
                .enumerate()
                .take(keys.len())
                .filter(going)
                .for_each(|(packet, _)| waiting.push(packet));
            while let Some(tag) = waiting.first().and_then(|packet| walks[packet].tag()) {
                let alike = waiting.take(|packet| walks[packet].tag() == Some(tag));
                let chunk = Chunk { keys, walks: &*walks };
                stage.find_chunk(tag, chunk, alike, &mut found);
            }
            probes += found.probes;
            for ((key, walk), found) in keys.iter().zip(&mut *walks).zip(found.longest()) {
                let Some(found) = found else { continue };
                walk.follow(found.matched);
                if let Some(slot) = walk.take_rewriting()
                    && let Some(stage_entry) = self.stage_entries.get(slot)
                {
                    walk.rewrite(key, &stage_entry.rule.rewrite);
                }
            }
        }
        for (key, walk) in keys.iter().zip(walks) {
            if !walk.entries().all(|entry| store.is_live(entry)) {
                self.find(store, key, walk);
            }
        }
        probes
    }

    /// Looks up a packet in one stage, and follows the entry that it matches.
    #[inline]
    fn step(
        &self,
        stage: usize,
        key: &FlowKey,
        walk: &mut Walk,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) {
        let Some(tag) = walk.tag() else { return };
        let found = self.stages[stage].find(tag, walk.key(key), is_live);
        let Some(matched) = found else { return };
        walk.follow(matched);
        if let Some(slot) = walk.take_rewriting()
            && let Some(stage_entry) = self.stage_entries.get(slot)
        {
            walk.rewrite(key, &stage_entry.rule.rewrite);
        }
    }

    /// Returns the rule of an entry that a walk matched.
    /// No entry may have been inserted since the walk.
    #[must_use]
    pub fn rule(&self, slot: u32) -> Option<&LtmRule> {
        self.stage_entries.get(slot).map(|stage_entry| &stage_entry.rule)
    }

    /// Returns a matched entry as a member of the partition that the walk forms.
    pub(crate) fn partition_member(&self, slot: u32) -> Option<PartitionMember<'_>> {
        self.stage_entries.get(slot).map(|stage_entry| PartitionMember {
            first_table: stage_entry.first_table,
            stage: stage_entry.stage,
            rule: &stage_entry.rule,
        })
    }

    /// Returns the stage of an entry that a walk matched.
    #[must_use]
    pub fn stage(&self, slot: u32) -> Option<StageId> {
        self.stage_entries.get(slot).map(|stage_entry| stage_entry.stage)
    }

    /// Returns the references of the entries that a walk matched.
    pub fn names<'a>(&'a self, slots: &'a [u32]) -> impl Iterator<Item = LtmEntryRef> + 'a {
        slots.iter().filter_map(|slot| self.stage_entries.named(*slot))
    }

    /// Returns the tag of a state, and adds one holder of the tag.
    ///
    /// The caller [releases](Self::release) the tag later.
    ///
    /// # Errors
    ///
    /// Fails if no tags are left.
    pub fn hold(&mut self, name: &TagName) -> Result<Tag, TagsFull> {
        self.tags.hold(name)
    }

    /// Adds one holder to a tag that is held already.
    pub fn hold_again(&mut self, tag: Tag) {
        self.tags.hold_again(tag);
    }

    /// Frees the first `count` retired tags, because no packet has them any more.
    pub fn free_retired(&mut self, count: u64) {
        self.tags.free_retired(count);
    }

    /// Releases a tag after [`Self::hold`] or [`Self::hold_again`].
    pub fn release(&mut self, tag: Tag) {
        self.tags.release(tag);
    }

    /// Returns the tag space of the chain.
    #[must_use]
    pub const fn tags(&self) -> &TagSpace {
        &self.tags
    }

    /// Puts a rule into a stage.
    ///
    /// The rule replaces an entry with the same tag, match and length but another effect. A full
    /// stage evicts an entry if its eviction policy allows one, but no entry of `kept`.
    pub fn put(
        &mut self,
        store: &mut impl Store,
        new: NewLtmEntry,
        kept: &[LtmEntryRef],
        now: Time,
    ) -> PutResult {
        let stage = new.stage;
        let Some(table) = self.stages.get(stage.index()) else { return PutResult::Full };
        let mask_hash = table.mask_hash_of(&new.rule);
        if let Some(slot) = table.find_exact(&new.rule, mask_hash) {
            if let Some(shared) = self.share(store, slot, &new, now) {
                return PutResult::Shared(shared);
            }
            if !self.evict(store, slot) {
                return PutResult::Refused;
            }
        }
        if self.is_full(stage) && store.has_room() {
            self.make_room(store, stage, kept);
        }
        if self.is_full(stage) {
            return PutResult::Full;
        }
        let NewLtmEntry { rule, traversal, id, origin, .. } = new;
        let Some(entry) = store.make(&traversal, now) else { return PutResult::Refused };
        // The stage may still link the former entry of the slot.
        self.unlink(entry.slot);
        self.tags.hold_again(rule.tag);
        if let Next::Tag(next) = rule.next {
            self.tags.hold_again(next);
        }
        self.made += 1;
        self.stages[stage.index()].insert(&rule, mask_hash, entry);
        let (shares, made, generation) = (0, self.made, entry.generation);
        let first_table = first_table_of(&traversal);
        let stage_entry = StageEntry {
            rule,
            generation,
            stage,
            id,
            origin,
            first_table,
            shares,
            made,
            placed: now,
        };
        self.stage_entries.insert(entry.slot, stage_entry, self.victims.class_of_new(id));
        self.index.add(id, stage, entry.slot);
        PutResult::Fresh(entry)
    }

    /// Shares the entry in a slot if the entry is live and equals the rule.
    fn share(
        &mut self,
        store: &mut impl Store,
        slot: u32,
        new: &NewLtmEntry,
        now: Time,
    ) -> Option<LtmEntryRef> {
        let name = self.stage_entries.named(slot).filter(|name| store.is_live(*name))?;
        let stored = self.stage_entries.get_mut(slot).filter(|stored| stored.rule == new.rule)?;
        stored.shares += 1;
        store.touch(slot, now);
        let (stage, before) = (stored.stage, std::mem::replace(&mut stored.id, new.id));
        if before != new.id {
            self.index.remove(before, stage, slot);
            self.index.add(new.id, stage, slot);
        }
        Some(name)
    }

    /// Finds a live entry for a planned sub-traversal, and marks it as used now.
    pub(crate) fn reuse(
        &mut self,
        store: &mut impl Store,
        query: &EntryQuery<'_>,
        now: Time,
    ) -> Option<LtmEntryRef> {
        let serves = |slot: &u32| {
            self.stage_entries.get(*slot).is_some_and(|stage_entry| {
                let LtmRule { tag, length, matching, next, .. } = &stage_entry.rule;
                (*tag, *length) == (query.tag, query.visits_count)
                    && (*next == Next::End) == query.is_last
                    && matching.matches(query.key)
            })
        };
        let slot = self.index.slots(query.identity, query.stage).find(serves)?;
        let name = self.stage_entries.named(slot).filter(|name| store.is_live(*name))?;
        self.stage_entries.share(slot);
        store.touch(slot, now);
        Some(name)
    }

    /// Counts one more flow that shares the entries of a walk.
    pub(crate) fn share_walked(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.stage_entries.share(*slot));
    }

    /// Unlinks an entry that the store has ended.
    ///
    /// Does nothing if it is unlinked already.
    pub fn forget(&mut self, entry: LtmEntryRef) {
        if self.stage_entries.named(entry.slot) == Some(entry) {
            self.unlink(entry.slot);
        }
    }

    /// Makes room for one more entry in a full stage, if an entry may be evicted.
    fn make_room(&mut self, store: &mut impl Store, stage: StageId, kept: &[LtmEntryRef]) {
        self.sort_stage(store, stage);
        if self.is_full(stage)
            && let Some(slot) = self.victims.victim(&self.stage_entries, stage, kept)
        {
            self.evict(store, slot);
        }
    }

    /// Sets whether the flows of an entry are large, as the owner of the chain knows.
    ///
    /// A full stage evicts entries of large flows last, as long as they are no more than half of it.
    pub fn set_large(&mut self, entry: LtmEntryRef, is_large: bool, now: Time) {
        let slot = entry.slot;
        if self.stage_entries.named(slot) != Some(entry) || !self.victims.depends_on_use() {
            return;
        }
        let was_large = self.stage_entries.class(slot) == Some(UseClass::Large);
        if was_large != is_large {
            let class = if is_large { UseClass::Large } else { UseClass::Used };
            self.stage_entries.put_last(slot, now, class);
        }
    }

    /// Returns the last use of the entry that a stage would evict next.
    #[must_use]
    pub fn oldest_use(&mut self, store: &impl Store, stage: StageId) -> Option<Time> {
        self.sort_stage(store, stage);
        self.victims.victim(&self.stage_entries, stage, &[]).map(|slot| store.used(slot))
    }

    /// Returns whether a stage has room for one more entry.
    #[must_use]
    pub fn has_room(&self, stage: StageId) -> bool {
        !self.is_full(stage)
    }

    /// Marks all entries as outdated, so that every [`Eviction`] policy may evict them.
    pub const fn mark_outdated(&mut self) {
        self.victims.mark_outdated(self.made);
    }

    /// Returns the stages that hold a sub-traversal with this identity.
    #[must_use]
    pub fn holders_of(&self, identity: u64) -> StageSet {
        self.index.stages(identity)
    }

    /// Returns the number of entries of a stage.
    #[must_use]
    pub fn len(&self, stage: StageId) -> usize {
        self.stage_entries.len(stage)
    }

    /// Returns the number of entries of all stages.
    #[must_use]
    pub fn entries_count(&self) -> usize {
        StageSet::first_of(self.capacity.stages_count).iter().map(|stage| self.len(stage)).sum()
    }

    /// Returns the number of entries that were evicted or replaced so far.
    #[must_use]
    pub const fn evicted_count(&self) -> u64 {
        self.evicted
    }

    /// Returns how often newly installed flows shared the present entries.
    #[must_use]
    pub fn shares_count(&self) -> u64 {
        self.stage_entries.iter().map(|(_, stage_entry)| u64::from(stage_entry.shares)).sum()
    }

    /// Returns the rule-space coverage of the entries.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let links: Vec<CoverageLink> =
            self.stage_entries.iter().filter_map(|(name, _)| self.link(name.slot)).collect();
        Coverage::of(&links)
    }

    /// Returns the tags and the partition of an entry, for the rule-space coverage.
    #[must_use]
    pub fn link(&self, slot: u32) -> Option<CoverageLink> {
        let StageEntry { rule, stage, origin, .. } = self.stage_entries.get(slot)?;
        // The first tag of a recirculated packet names a continuation: its traversal began earlier.
        let is_start = matches!(self.tags.name(rule.tag), Some(TagName::Start(_)));
        Some(CoverageLink {
            stage: *stage,
            tag: rule.tag,
            next: rule.next,
            is_start,
            origin: *origin,
        })
    }

    /// Returns all entries with their stages and rules.
    pub fn entries(&self) -> impl Iterator<Item = (LtmEntryRef, StageId, &LtmRule)> {
        self.stage_entries
            .iter()
            .map(|(name, stage_entry)| (name, stage_entry.stage, &stage_entry.rule))
    }

    /// Returns the number of masks of a stage, summed over the tags.
    #[must_use]
    pub fn masks_of(&self, stage: StageId) -> usize {
        self.stages.get(stage.index()).map_or(0, LtmTable::masks_count)
    }

    /// Returns the number of masks of all stages, summed over the tags.
    #[must_use]
    pub fn masks_count(&self) -> usize {
        self.stages.iter().map(LtmTable::masks_count).sum()
    }

    /// Returns the number and the size of the stages.
    #[must_use]
    pub const fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Returns whether a stage has no room for another entry.
    fn is_full(&self, stage: StageId) -> bool {
        self.len(stage) >= self.capacity.stage_entries_max
    }

    /// Moves used entries of a stage to the end of the order, and unlinks dead ones.
    ///
    /// The sort stops at the first live entry that was not used since it was placed in the order.
    fn sort_stage(&mut self, store: &impl Store, stage: StageId) {
        for _ in 0..CHANCES_MAX {
            let class = self.victims.class_to_evict(&self.stage_entries, stage);
            let Some((slot, stage_entry)) = self.stage_entries.oldest(stage, class).next() else {
                return;
            };
            let (name, used) =
                (LtmEntryRef { slot, generation: stage_entry.generation }, store.used(slot));
            if !store.is_live(name) {
                self.unlink(slot);
            } else if self.victims.depends_on_use() && used > stage_entry.placed {
                self.stage_entries.put_last(slot, used, class.after_use());
            } else {
                return;
            }
        }
    }

    /// Ends and unlinks an entry; returns false if the store keeps the entry.
    fn evict(&mut self, store: &mut impl Store, slot: u32) -> bool {
        let Some(name) = self.stage_entries.named(slot) else { return true };
        if store.is_live(name) {
            if !store.end(name) {
                return false;
            }
            self.evicted += 1;
            if let Some(stage_entry) = self.stage_entries.get(slot) {
                self.victims.note_evicted(stage_entry.id);
            }
        }
        self.unlink(slot);
        true
    }

    /// Removes an entry from its stage, and releases its tags.
    fn unlink(&mut self, slot: u32) {
        let Some(StageEntry { rule, stage, id, .. }) = self.stage_entries.remove(slot) else {
            return;
        };
        if let Some(table) = self.stages.get_mut(stage.index()) {
            table.remove(&rule);
        }
        self.index.remove(id, stage, slot);
        self.tags.release(rule.tag);
        if let Next::Tag(next) = rule.next {
            self.tags.release(next);
        }
    }
}

impl StageView for Ltm {
    fn count(&self) -> u8 {
        self.capacity.stages_count
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        self.holders_of(sub_traversal.identity)
    }

    fn may_begin(&self, state: StateId) -> bool {
        self.index.has_entry_from(state)
    }

    fn room(&self) -> StageSet {
        let all = StageSet::first_of(self.capacity.stages_count);
        all.iter().filter(|stage| !self.is_full(*stage)).fold(StageSet::EMPTY, StageSet::with)
    }
}
