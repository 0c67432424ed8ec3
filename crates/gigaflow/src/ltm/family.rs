//! Groups of rules: those of one mask and length, and families of groups whose masks have bits in the
//! same words.
//!
//! In a family groups of greater length are asked first, and of equal length those that find most, as
//! the megaflow cache does with its masks; where they are many, no more than are on [`ShortLists`].

use std::cmp::Reverse;

use shunt_flow::{
    FlowKey, SparseMask, WordMap,
    hash::KeyHasher,
    masked_table::{Candidate, MaskedTable},
};

use super::{
    LtmEntryRef, LtmRule, Next, Tag, Walk,
    groups::{Found, FoundFew, Step},
    lists::{ASKED_PER_ORDERING, NO_LIST, ShortLists, rows_of},
    places::{FEW, Places},
};

/// Groups whose masks have bits in the same words.
#[derive(Debug)]
pub(super) struct Family {
    words: WordMap,
    length_max: u16,
    /// By number; one that is empty may be used again.
    groups: Vec<Group>,
    /// The numbers of those that are not empty, of greater length first.
    order: Vec<u32>,
    /// Packets that were looked for since groups were put in order.
    asked: u32,
    lists: Option<ShortLists>,
}

/// The rules of one tag, mask and length.
#[derive(Debug)]
pub(super) struct Group {
    /// A hash of mask and length: so few others are looked at where one is sought.
    name: u64,
    pub(super) mask: SparseMask,
    pub(super) length: u16,
    pub(super) hits: u32,
    /// The entry, and how the packet goes on.
    pub(super) rules: MaskedTable<2>,
}

/// So many groups are asked without more ado.
const GROUPS_MIN: usize = 2;

/// The bits of the last word of a rule above the next tag.
const END: u64 = 1 << 63;
const REWRITES: u64 = 1 << 62;

impl Family {
    /// The one that a rule belongs to, without any rule.
    pub(super) fn of(rule: &LtmRule) -> Self {
        Self {
            words: rule.matching.mask().map(),
            length_max: 0,
            groups: Vec::new(),
            order: Vec::new(),
            asked: 0,
            lists: None,
        }
    }

    pub(super) const fn words(&self) -> WordMap {
        self.words
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The length of its longest rules.
    #[inline]
    pub(super) const fn length_max(&self) -> u16 {
        self.length_max
    }

    /// How many masks there are.
    pub(super) const fn masks_count(&self) -> usize {
        self.order.len()
    }

    /// The longest of its rules that lives and matches.
    #[inline]
    pub(super) fn find(
        &self,
        hasher: &KeyHasher,
        key: &FlowKey,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) -> Option<Found> {
        let ask = |group: u32| {
            let found = self.groups[group as usize].find(hasher, key);
            found.filter(|found| is_live(found.step.entry))
        };
        match &self.lists {
            None => self.order.iter().find_map(|group| ask(*group)),
            Some(lists) => lists.find(hasher, key)?.groups().find_map(ask),
        }
    }

    /// Notes what it has for these packets where that is longer than what was found.
    pub(super) fn find_few(
        &mut self,
        hasher: &KeyHasher,
        packets: (&[FlowKey], &[Walk]),
        asking: Places,
        found: &mut FoundFew,
    ) {
        if self.lists.is_some() {
            return self.find_listed(hasher, packets, asking, found);
        }
        self.asked += asking.count();
        let mut missing = asking;
        for group in &self.order {
            if missing.first().is_none() {
                break;
            }
            self.groups[*group as usize].find_few(hasher, packets, &mut missing, found);
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
        (keys, walks): (&[FlowKey], &[Walk]),
        asking: Places,
        found: &mut FoundFew,
    ) {
        let Self { groups, lists: Some(lists), .. } = self else { return };
        let mut list_of = [0; FEW];
        found.probes += asking.count();
        let with_list = lists.find_few(hasher, (keys, walks), asking, &mut list_of);
        let mut asking = with_list;
        let mut round = 0;
        while asking.first().is_some() {
            found.probes += asking.count();
            let (mut group_of, mut tags) = ([0_u32; FEW], [0; FEW]);
            for (turn, place) in asking.iter().enumerate() {
                let group = lists.group(list_of[place], round).unwrap_or_default();
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
                let group = &mut groups[group_of[turn] as usize];
                let key = walks[place].key(&keys[place]).words();
                if let Some(row) = group.rules.confirm(candidates[turn], tags[turn], key) {
                    group.hits = group.hits.saturating_add(1);
                    found.note(place, group.found(row));
                } else if lists.group(list_of[place], round + 1).is_some() {
                    left.push(place);
                }
            }
            asking = left;
            round += 1;
        }
        for place in with_list.iter().filter(|place| list_of[*place] != NO_LIST) {
            lists.note(list_of[place], groups);
        }
    }

    /// The slot of the rule with just this match and length, whose group is called so.
    pub(super) fn find_exact(&self, hasher: &KeyHasher, rule: &LtmRule, name: u64) -> Option<u32> {
        let group = &self.groups[self.number_of(rule, name)? as usize];
        let row = group.rules.find_words(hasher, rule.matching.value())?;
        Some(group.found(row).step.entry.slot)
    }

    /// Adds a rule; there is none with its match and length.
    pub(super) fn insert(
        &mut self,
        hasher: &KeyHasher,
        rule: &LtmRule,
        name: u64,
        entry: LtmEntryRef,
    ) {
        let known = self.number_of(rule, name);
        let number = known.unwrap_or_else(|| self.add_group(Group::new(rule, name)));
        self.groups[number as usize].insert(hasher, rule, entry);
        self.length_max = self.length_max.max(rule.length);
        match &mut self.lists {
            Some(lists) if lists.takes(&rule.matching) => {
                lists.add(hasher, &rule.matching, number, &self.groups);
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
            let first = self.order.first().map(|own| self.groups[*own as usize].length);
            self.length_max = first.unwrap_or_default();
        }
        if let Some(lists) = &mut self.lists {
            lists.remove(hasher, &rule.matching, number);
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

    pub(super) const fn rank(&self) -> (Reverse<u16>, Reverse<u32>) {
        (Reverse(self.length), Reverse(self.hits))
    }

    #[inline]
    fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<Found> {
        self.rules.find(hasher, key.words()).map(|row| self.found(row))
    }

    fn find_few(
        &mut self,
        hasher: &KeyHasher,
        packets: (&[FlowKey], &[Walk]),
        missing: &mut Places,
        found: &mut FoundFew,
    ) {
        let mut rows = [None; FEW];
        found.probes += missing.count();
        rows_of(&self.rules, hasher, packets, *missing, &mut rows);
        let mut left = Places::NONE;
        for (row, place) in rows.into_iter().zip(missing.iter()) {
            match row {
                Some(row) => found.note(place, self.found(row)),
                None => left.push(place),
            }
        }
        self.hits = self.hits.saturating_add(missing.count() - left.count());
        *missing = left;
    }

    #[inline]
    fn found(&self, row: u32) -> Found {
        let [entry, next] = self.rules.tail(row);
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
        let (slot, generation, tag) = (entry as u32, (entry >> 32) as u32, next as u32);
        let then = if next & END == 0 { Next::Tag(Tag::new(tag)) } else { Next::End };
        let entry = LtmEntryRef { slot, generation };
        let step = Step { entry, next: then, rewrites: next & REWRITES != 0 };
        Found { length: self.length, step }
    }

    fn insert(&mut self, hasher: &KeyHasher, rule: &LtmRule, entry: LtmEntryRef) {
        let next = match rule.next {
            Next::Tag(tag) => u64::from(tag.number()),
            Next::End => END,
        };
        let rewrites = if rule.rewrite.mask().is_empty() { 0 } else { REWRITES };
        let entry = u64::from(entry.generation) << 32 | u64::from(entry.slot);
        self.rules.put_new(hasher, rule.matching.value(), [entry, next | rewrites]);
    }
}
