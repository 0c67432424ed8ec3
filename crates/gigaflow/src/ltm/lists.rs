//! Short lists: which groups of a family are worth asking.
//!
//! A packet that finds nothing in a family has asked all groups there, and most packets find nothing in
//! most families. So where groups are many, the bits that *all* of their masks have are looked up first,
//! in a table that knows the groups which have a rule with these bits. A rule matches only packets that
//! agree with it there. So a packet asks no group but those on its list, mostly one, and is done with a
//! single lookup if it has none.

use shunt_flow::{
    FlowKey, FlowMask, Match, SparseMask,
    hash::KeyHasher,
    layout::{FLOW_WORDS, HEADER_START},
    masked_table::{Candidate, MaskedTable},
};

use super::{
    Walk,
    family::Group,
    places::{FEW, Places},
};

/// Which groups have rules with the same bits where all masks have some.
#[derive(Debug)]
pub(super) struct ShortLists {
    mask: SparseMask,
    /// The number of a list.
    table: MaskedTable<1>,
    lists: Vec<ShortList>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct ShortList {
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

/// Packets that ask groups before these are put in order.
pub(super) const ASKED_PER_ORDERING: u32 = 1 << 12;

/// No list.
pub(super) const NO_LIST: u32 = u32::MAX;

impl ShortLists {
    /// Those of these groups.
    pub(super) fn of(hasher: &KeyHasher, groups: &[Group], order: &[u32]) -> Self {
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
                lists.add_words(hasher, &words, *number, groups);
            }
        }
        lists
    }

    #[inline]
    pub(super) fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<&ShortList> {
        let [list] = self.table.tail(self.table.find(hasher, key.words())?);
        self.lists.get(usize::try_from(list).ok()?)
    }

    /// The lists of packets, or [`NO_LIST`], by place. Answers which have one.
    #[expect(clippy::cast_possible_truncation, reason = "the number of a list")]
    pub(super) fn find_few(
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

    /// The `place`th group on a list.
    #[inline]
    pub(super) fn group(&self, list: u32, place: usize) -> Option<u32> {
        self.lists.get(list as usize)?.groups.get(place).map(|share| share.group)
    }

    /// A packet has asked groups of a list: now and then they are put in order.
    pub(super) fn note(&mut self, list: u32, groups: &mut [Group]) {
        let list = &mut self.lists[list as usize];
        list.asked += 1;
        if list.asked >= ASKED_PER_ORDERING {
            list.asked = 0;
            list.groups.sort_by_key(|share| groups[share.group as usize].rank());
            // What was long ago counts less and less.
            list.groups.iter().for_each(|share| groups[share.group as usize].hits /= 2);
        }
    }

    /// Whether rules with such masks have lists here.
    pub(super) fn takes(&self, matching: &Match) -> bool {
        matching.mask().has_all_of(&self.mask)
    }

    /// A rule with this match, which it [takes](Self::takes), has come to a group.
    pub(super) fn add(
        &mut self,
        hasher: &KeyHasher,
        matching: &Match,
        group: u32,
        groups: &[Group],
    ) {
        let words = words_under(&self.mask, matching.mask(), matching.value());
        self.add_words(hasher, &words, group, groups);
    }

    #[expect(clippy::cast_possible_truncation, reason = "fewer lists than rules")]
    fn add_words(&mut self, hasher: &KeyHasher, words: &Words, group: u32, groups: &[Group]) {
        let words = &words.0[..words.1];
        let list = match self.table.find_words(hasher, words) {
            Some(row) => self.table.tail(row)[0] as u32,
            None => {
                let list = self.free.pop().unwrap_or_else(|| {
                    self.lists.push(ShortList::default());
                    self.lists.len() as u32 - 1
                });
                self.table.put_new(hasher, words, [list.into()]);
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

    /// A rule with this match has gone from a group.
    pub(super) fn remove(&mut self, hasher: &KeyHasher, matching: &Match, group: u32) {
        let words = words_under(&self.mask, matching.mask(), matching.value());
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

impl ShortList {
    /// The groups to ask, in order.
    #[inline]
    pub(super) fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().map(|share| share.group)
    }
}

/// The rows of packets in a table, in the order of their places: all hashes, all slots, all rows.
pub(super) fn rows_of<const TAIL: usize>(
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
