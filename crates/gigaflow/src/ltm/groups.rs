//! The rules of one tag in one stage: groups of one mask and length, and which of them to ask.
//!
//! Of several rules that match a packet any would be right, as each says what the tables say; the
//! longest leaves the most stages for the rest of the way. So groups of greater length are asked first,
//! and of equal length those that find most, as the megaflow cache does with its masks.
//!
//! # Short lists
//!
//! A packet that finds nothing in a stage has asked all groups there, and most packets find nothing in
//! most stages. So where groups are many, the bits that *all* of their masks have are looked up first,
//! in a table that knows the groups which have a rule with these bits. A rule matches only packets that
//! agree with it there. So a packet asks no group but those on its list, mostly one, and is done with a
//! single lookup if it has none.

use std::cmp::Reverse;

use shunt_flow::{
    FlowKey, FlowMask, SparseMask,
    hash::KeyHasher,
    layout::{FLOW_WORDS, HEADER_START},
    masked_table::{Candidate, MaskedTable},
};

use super::{
    EntryRef, LtmRule, Next, Tag, Walk,
    places::{FEW, Places},
};

/// The rules of one tag.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// By number; one that is empty may be used again.
    groups: Vec<Group>,
    /// The numbers of those that are not empty, of greater length first.
    order: Vec<u32>,
    /// Packets that were looked for since groups were put in order.
    asked: u32,
    lists: Option<ShortLists>,
}

/// An entry that a packet meets, and how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) entry: EntryRef,
    pub(super) next: Next,
    /// Whether the rule rewrites headers.
    pub(super) rewrites: bool,
}

/// The rules of one tag, mask and length.
#[derive(Debug)]
struct Group {
    /// A hash of mask and length: so few others are looked at where one is sought.
    name: u64,
    mask: SparseMask,
    length: u16,
    hits: u32,
    /// The entry, and how the packet goes on.
    rules: MaskedTable<2>,
}

/// Which groups have rules with the same bits where all masks have some.
#[derive(Debug)]
struct ShortLists {
    mask: SparseMask,
    /// The number of a list.
    table: MaskedTable<1>,
    lists: Vec<ShortList>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct ShortList {
    /// Those of greater length first.
    groups: Vec<Share>,
    asked: u32,
}

/// How many rules of a group a list stands for.
#[derive(Clone, Copy, Debug)]
struct Share {
    group: u32,
    rules_count: u32,
}

/// Words of a rule under a mask.
type Words = ([u64; FLOW_WORDS - HEADER_START], usize);

/// So many groups are asked without more ado.
const GROUPS_MIN: usize = 4;

/// Packets that ask groups before these are put in order.
const ASKED_PER_ORDERING: u32 = 1 << 12;

/// The bits of the last word of a rule above the next tag.
const END: u64 = 1 << 63;
const REWRITES: u64 = 1 << 62;

impl Groups {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many masks there are.
    pub(super) fn masks_count(&self) -> usize {
        self.order.len()
    }

    /// The longest rule that lives and matches.
    #[inline]
    pub(super) fn find(
        &self,
        hasher: &KeyHasher,
        key: &FlowKey,
        is_live: impl Fn(EntryRef) -> bool,
    ) -> Option<Step> {
        let ask = |group: u32| {
            let step = self.groups[group as usize].find(hasher, key);
            step.filter(|step| is_live(step.entry))
        };
        match &self.lists {
            None => self.order.iter().find_map(|group| ask(*group)),
            Some(lists) => lists.find(hasher, key)?.groups.iter().find_map(|one| ask(one.group)),
        }
    }

    /// Takes those packets on that meet a rule; the others are left in `missing`. The first rule that is
    /// found counts, also if it is dead.
    pub(super) fn find_few(
        &mut self,
        hasher: &KeyHasher,
        keys: &[FlowKey],
        walks: &mut [Walk],
        missing: &mut Places,
    ) {
        if self.lists.is_some() {
            return self.find_listed(hasher, keys, walks, missing);
        }
        self.asked += missing.count();
        for group in &self.order {
            if missing.first().is_none() {
                break;
            }
            let group = &mut self.groups[*group as usize];
            group.find_few(hasher, keys, walks, missing);
        }
        if self.asked >= ASKED_PER_ORDERING {
            self.asked = 0;
            self.put_in_order();
        }
    }

    /// As [`Self::find_few`], of groups that have lists: all packets look up their list, then all of
    /// them the first group on theirs, and so on.
    fn find_listed(
        &mut self,
        hasher: &KeyHasher,
        keys: &[FlowKey],
        walks: &mut [Walk],
        missing: &mut Places,
    ) {
        let Self { groups, lists: Some(lists), .. } = self else { return };
        let mut list_of = [0; FEW];
        let mut asking = lists.find_few(hasher, (keys, walks), *missing, &mut list_of);
        let mut is_found = [false; FEW];
        let mut round = 0;
        while asking.first().is_some() {
            let (mut group_of, mut tags) = ([0_u32; FEW], [0; FEW]);
            for (turn, place) in asking.iter().enumerate() {
                let group = lists.lists[list_of[place] as usize].groups[round].group;
                group_of[turn] = group;
                let key = walks[place].key(&keys[place]).words();
                tags[turn] = groups[group as usize].rules.tag(hasher, key);
            }
            let mut candidates = [Candidate::NONE; FEW];
            for (turn, _) in asking.iter().enumerate() {
                candidates[turn] = groups[group_of[turn] as usize].rules.candidate(tags[turn]);
            }
            let mut left = Places::NONE;
            for (turn, place) in asking.iter().enumerate() {
                let (group, key) = (&mut groups[group_of[turn] as usize], &keys[place]);
                let key = walks[place].key(key).words();
                if let Some(row) = group.rules.confirm(candidates[turn], tags[turn], key) {
                    group.hits = group.hits.saturating_add(1);
                    is_found[place] = true;
                    walks[place].go(group.step(row));
                } else if lists.lists[list_of[place] as usize].groups.len() > round + 1 {
                    left.push(place);
                }
            }
            asking = left;
            round += 1;
        }
        for place in missing.iter().filter(|place| list_of[*place] != NO_LIST) {
            lists.note(list_of[place], groups);
        }
        missing.take(|place| is_found[place]);
    }

    /// The slot of the rule with just this match and length, whose group is called so.
    pub(super) fn find_exact(&self, hasher: &KeyHasher, rule: &LtmRule, name: u64) -> Option<u32> {
        let group = &self.groups[self.number_of(rule, name)? as usize];
        let row = group.rules.find_words(hasher, rule.matching.value())?;
        Some(group.step(row).entry.slot)
    }

    /// Adds a rule; there is none with its match and length.
    pub(super) fn insert(
        &mut self,
        hasher: &KeyHasher,
        rule: &LtmRule,
        name: u64,
        entry: EntryRef,
    ) {
        let known = self.number_of(rule, name);
        let number = known.unwrap_or_else(|| self.add_group(Group::new(rule, name)));
        self.groups[number as usize].insert(hasher, rule, entry);
        match &mut self.lists {
            Some(lists) if rule.matching.mask().has_all_of(&lists.mask) => {
                let words = words_under(&lists.mask, rule.matching.mask(), rule.matching.value());
                lists.add(hasher, &words, number, &self.groups);
            }
            None if self.order.len() <= GROUPS_MIN => {}
            _ => self.lists = Some(ShortLists::of(hasher, &self.groups, &self.order)),
        }
    }

    /// Takes out a rule, whose group is called so.
    pub(super) fn remove(&mut self, hasher: &KeyHasher, rule: &LtmRule, name: u64) {
        let Some(number) = self.number_of(rule, name) else { return };
        let group = &mut self.groups[number as usize];
        let Some(row) = group.rules.find_words(hasher, rule.matching.value()) else { return };
        group.rules.remove(hasher, row);
        if group.rules.is_empty() {
            self.order.retain(|own| *own != number);
        }
        if self.order.is_empty() {
            *self = Self::default();
        } else if let Some(lists) = &mut self.lists {
            let words = words_under(&lists.mask, rule.matching.mask(), rule.matching.value());
            lists.remove(hasher, &words, number);
        }
    }

    fn number_of(&self, rule: &LtmRule, name: u64) -> Option<u32> {
        let is_it = |number: &&u32| self.groups[**number as usize].is_of(rule, name);
        self.order.iter().find(is_it).copied()
    }

    #[expect(clippy::cast_possible_truncation, reason = "fewer groups than rules")]
    fn add_group(&mut self, group: Group) -> u32 {
        let length = group.length;
        let number = match self.groups.iter().position(|group| group.rules.is_empty()) {
            Some(number) => {
                self.groups[number] = group;
                number as u32
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        let groups = &self.groups;
        let place = self.order.partition_point(|own| groups[*own as usize].length >= length);
        self.order.insert(place, number);
        number
    }

    fn put_in_order(&mut self) {
        let groups = &mut self.groups;
        self.order.sort_by_key(|number| groups[*number as usize].rank());
        // What was long ago counts less and less.
        groups.iter_mut().for_each(|group| group.hits /= 2);
    }
}

impl Group {
    fn new(rule: &LtmRule, name: u64) -> Self {
        let (mask, length) = (rule.matching.mask().clone(), rule.length);
        let rules = MaskedTable::new(&mask);
        Self { name, mask, length, hits: 0, rules }
    }

    fn is_of(&self, rule: &LtmRule, name: u64) -> bool {
        self.name == name && self.length == rule.length && self.mask == *rule.matching.mask()
    }

    const fn rank(&self) -> (Reverse<u16>, Reverse<u32>) {
        (Reverse(self.length), Reverse(self.hits))
    }

    #[inline]
    fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<Step> {
        self.rules.find(hasher, key.words()).map(|row| self.step(row))
    }

    fn find_few(
        &mut self,
        hasher: &KeyHasher,
        keys: &[FlowKey],
        walks: &mut [Walk],
        missing: &mut Places,
    ) {
        let mut rows = [None; FEW];
        rows_of(&self.rules, hasher, (keys, walks), *missing, &mut rows);
        let mut left = Places::NONE;
        for (row, place) in rows.into_iter().zip(missing.iter()) {
            match row {
                Some(row) => walks[place].go(self.step(row)),
                None => left.push(place),
            }
        }
        self.hits = self.hits.saturating_add(missing.count() - left.count());
        *missing = left;
    }

    #[inline]
    fn step(&self, row: u32) -> Step {
        let [entry, next] = self.rules.tail(row);
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
        let (slot, generation, tag) = (entry as u32, (entry >> 32) as u32, next as u32);
        let then = if next & END == 0 { Next::Tag(Tag::new(tag)) } else { Next::End };
        Step { entry: EntryRef { slot, generation }, next: then, rewrites: next & REWRITES != 0 }
    }

    fn insert(&mut self, hasher: &KeyHasher, rule: &LtmRule, entry: EntryRef) {
        let next = match rule.next {
            Next::Tag(tag) => u64::from(tag.number()),
            Next::End => END,
        };
        let rewrites = if rule.rewrite.mask().is_empty() { 0 } else { REWRITES };
        let entry = u64::from(entry.generation) << 32 | u64::from(entry.slot);
        self.rules.put(hasher, rule.matching.value(), [entry, next | rewrites]);
    }
}

/// No list.
const NO_LIST: u32 = u32::MAX;

impl ShortLists {
    /// Those of these groups.
    fn of(hasher: &KeyHasher, groups: &[Group], order: &[u32]) -> Self {
        let mut common = FlowMask::EMPTY;
        common.words_mut().fill(u64::MAX);
        for number in order {
            let mask = FlowMask::from(&groups[*number as usize].mask);
            common.words_mut().iter_mut().zip(mask.words()).for_each(|(own, word)| *own &= word);
        }
        let mask = SparseMask::from(&common);
        let table = MaskedTable::new(&mask);
        let mut lists = Self { mask, table, lists: Vec::new(), free: Vec::new() };
        for number in order {
            let group = &groups[*number as usize];
            for row in group.rules.rows() {
                let words = words_under(&lists.mask, &group.mask, group.rules.words_of(row));
                lists.add(hasher, &words, *number, groups);
            }
        }
        lists
    }

    #[inline]
    fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<&ShortList> {
        let [list] = self.table.tail(self.table.find(hasher, key.words())?);
        self.lists.get(usize::try_from(list).ok()?)
    }

    /// The lists of packets, or [`NO_LIST`], by place. Answers which have one.
    #[expect(clippy::cast_possible_truncation, reason = "the number of a list")]
    fn find_few(
        &self,
        hasher: &KeyHasher,
        packets: (&[FlowKey], &[Walk]),
        missing: Places,
        list_of: &mut [u32; FEW],
    ) -> Places {
        let mut rows = [None; FEW];
        rows_of(&self.table, hasher, packets, missing, &mut rows);
        let mut with_list = Places::NONE;
        for (row, place) in rows.into_iter().zip(missing.iter()) {
            list_of[place] = row.map_or(NO_LIST, |row| self.table.tail(row)[0] as u32);
            if row.is_some() {
                with_list.push(place);
            }
        }
        with_list
    }

    /// A packet has asked groups of a list: now and then they are put in order.
    fn note(&mut self, list: u32, groups: &mut [Group]) {
        let list = &mut self.lists[list as usize];
        list.asked += 1;
        if list.asked >= ASKED_PER_ORDERING {
            list.asked = 0;
            list.groups.sort_by_key(|share| groups[share.group as usize].rank());
            // What was long ago counts less and less.
            list.groups.iter().for_each(|share| groups[share.group as usize].hits /= 2);
        }
    }

    /// A rule with these words has come to a group.
    #[expect(clippy::cast_possible_truncation, reason = "fewer lists than rules")]
    fn add(&mut self, hasher: &KeyHasher, words: &Words, group: u32, groups: &[Group]) {
        let words = &words.0[..words.1];
        let list = match self.table.find_words(hasher, words) {
            Some(row) => self.table.tail(row)[0] as u32,
            None => {
                let list = self.free.pop().unwrap_or_else(|| {
                    self.lists.push(ShortList::default());
                    self.lists.len() as u32 - 1
                });
                self.table.put(hasher, words, [list.into()]);
                list
            }
        };
        let shares = &mut self.lists[list as usize].groups;
        match shares.iter_mut().find(|share| share.group == group) {
            Some(share) => share.rules_count += 1,
            None => {
                let length = |number: u32| groups[number as usize].length;
                let place = shares.partition_point(|share| length(share.group) >= length(group));
                shares.insert(place, Share { group, rules_count: 1 });
            }
        }
    }

    /// A rule with these words has gone from a group.
    fn remove(&mut self, hasher: &KeyHasher, words: &Words, group: u32) {
        let Some(row) = self.table.find_words(hasher, &words.0[..words.1]) else { return };
        #[expect(clippy::cast_possible_truncation, reason = "the number of a list")]
        let number = self.table.tail(row)[0] as u32;
        let list = &mut self.lists[number as usize];
        if let Some(place) = list.groups.iter().position(|share| share.group == group) {
            list.groups[place].rules_count -= 1;
            if list.groups[place].rules_count == 0 {
                list.groups.remove(place);
            }
        }
        if list.groups.is_empty() {
            list.asked = 0;
            self.free.push(number);
            self.table.remove(hasher, row);
        }
    }
}

/// The rows of packets in a table, in the order of their places: all hashes, all slots, all rows.
fn rows_of<const TAIL: usize>(
    table: &MaskedTable<TAIL>,
    hasher: &KeyHasher,
    (keys, walks): (&[FlowKey], &[Walk]),
    places: Places,
    rows: &mut [Option<u32>; FEW],
) {
    let words = |place: usize| walks[place].key(&keys[place]).words();
    let mut tags = [0; FEW];
    for (tag, place) in tags.iter_mut().zip(places.iter()) {
        *tag = table.tag(hasher, words(place));
    }
    let mut candidates = [Candidate::NONE; FEW];
    for (turn, _) in places.iter().enumerate() {
        candidates[turn] = table.candidate(tags[turn]);
    }
    for (turn, place) in places.iter().enumerate() {
        rows[turn] = table.confirm(candidates[turn], tags[turn], words(place));
    }
}

/// The words of a rule under a part of its mask.
fn words_under<'a>(
    part: &SparseMask,
    mask: &SparseMask,
    values: impl IntoIterator<Item = &'a u64>,
) -> Words {
    let (mut words, mut count) = ([0; FLOW_WORDS - HEADER_START], 0);
    let mut values = mask.map().iter().zip(values);
    for (index, bits) in part.iter() {
        if let Some((_, value)) = values.find(|(own, _)| *own == index) {
            words[count] = value & bits;
            count += 1;
        }
    }
    (words, count)
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
