//! Short lists of the mask groups of a family that can match a packet.
//!
//! Without short lists, a packet that misses in a family has searched all mask groups of the
//! family, and most packets miss in most families. So a family with many groups first looks up the
//! bits that *all* of its masks have in common. A table maps the values of these common bits to a
//! list of the groups that have a rule with these values. A rule can match only packets with the
//! same values in the common bits. So a packet searches only the groups on the list of its values,
//! usually a single group. If the values of a packet have no list, no rule can match, and the
//! search ends after one lookup.

use shunt_flow::{
    FlowKey, FlowMask, Match, SparseMask,
    hash::KeyHasher,
    layout::{FLOW_WORDS, HEADER_START},
    masked_table::{MaskedTable, RowCandidate},
};

use super::{
    family::MaskGroup,
    packet_set::{CHUNK_MAX, Chunk, PacketSet},
};

/// Lists of the groups that have rules with the same values in the common bits.
#[derive(Debug)]
pub(super) struct ShortLists {
    /// The bits that all masks of the family have in common.
    mask: SparseMask,
    /// The number of the list for each value of the common bits.
    table: MaskedTable<1>,
    lists: Vec<ShortList>,
    /// The numbers of the unused lists.
    free: Vec<u32>,
}

/// The groups of one value of the common bits, searched one by one.
#[derive(Debug, Default)]
pub(super) struct ShortList {
    /// The groups in the order of search: groups of greater length first.
    groups: Vec<ListedGroup>,
    /// Number of lookups since the groups were last sorted.
    lookups: u32,
}

/// A group on a list, and the number of its rules that have the values of the list.
#[derive(Clone, Copy, Debug)]
struct ListedGroup {
    /// The number of the group in its family.
    group: u32,
    /// Number of rules of the group with the values of the list.
    rules_count: u32,
}

/// The masked words of a rule, and the number of words.
type MaskedWords = ([u64; FLOW_WORDS - HEADER_START], usize);

/// Number of lookups after which groups are sorted again.
pub(super) const LOOKUPS_PER_ORDERING: u32 = 1 << 12;

/// The list number of a packet that has no list.
pub(super) const NO_LIST: u32 = u32::MAX;

impl ShortLists {
    /// Creates the short lists of the groups of a family.
    pub(super) fn of(hasher: &KeyHasher, groups: &[MaskGroup], order: &[u32]) -> Self {
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

    /// Returns the short list of rules for a key.
    #[inline]
    pub(super) fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<&ShortList> {
        let [list] = self.table.tail(self.table.find(hasher, key.words())?);
        self.lists.get(usize::try_from(list).ok()?)
    }

    /// Finds the list number of each pending packet, or [`NO_LIST`].
    ///
    /// Returns the packets that have a list.
    #[expect(clippy::cast_possible_truncation, reason = "the value is the number of a list")]
    pub(super) fn find_chunk(
        &self,
        hasher: &KeyHasher,
        chunk: Chunk<'_>,
        pending: PacketSet,
        list_of: &mut [u32; CHUNK_MAX],
    ) -> PacketSet {
        let mut rows = [None; CHUNK_MAX];
        rows_of(&self.table, hasher, chunk, pending, &mut rows);
        let mut with_list = PacketSet::EMPTY;
        for (row, packet) in rows.into_iter().zip(pending.iter()) {
            list_of[packet] = row.map_or(NO_LIST, |row| self.table.tail(row)[0] as u32);
            if row.is_some() {
                with_list.push(packet);
            }
        }
        with_list
    }

    /// Returns the group at an index of a list.
    #[inline]
    pub(super) fn group(&self, list: u32, index: usize) -> Option<u32> {
        self.lists.get(list as usize)?.groups.get(index).map(|listed| listed.group)
    }

    /// Counts a lookup of a list, and sorts it every [`LOOKUPS_PER_ORDERING`] lookups.
    pub(super) fn note(&mut self, list: u32, groups: &mut [MaskGroup]) {
        let list = &mut self.lists[list as usize];
        list.lookups += 1;
        if list.lookups >= LOOKUPS_PER_ORDERING {
            list.lookups = 0;
            list.groups.sort_by_key(|listed| groups[listed.group as usize].rank());
            // Halving reduces the weight of old hits.
            list.groups.iter().for_each(|listed| groups[listed.group as usize].hits /= 2);
        }
    }

    /// Returns whether the mask of a rule has all common bits.
    pub(super) fn has_common_bits_of(&self, matching: &Match) -> bool {
        matching.mask().has_all_of(&self.mask)
    }

    /// Adds a rule of a group to the list of its values.
    ///
    /// The mask of the rule must have [all common bits](Self::has_common_bits_of).
    pub(super) fn add(
        &mut self,
        hasher: &KeyHasher,
        matching: &Match,
        group: u32,
        groups: &[MaskGroup],
    ) {
        let words = words_under(&self.mask, matching.mask(), matching.value());
        self.add_words(hasher, &words, group, groups);
    }

    /// Adds a group to the list of these masked words.
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer lists than rules")]
    fn add_words(
        &mut self,
        hasher: &KeyHasher,
        words: &MaskedWords,
        group: u32,
        groups: &[MaskGroup],
    ) {
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
        let listed_groups = &mut self.lists[list as usize].groups;
        match listed_groups.iter_mut().find(|listed| listed.group == group) {
            Some(listed) => listed.rules_count += 1,
            None => {
                let length = |number: u32| groups[number as usize].length;
                let position =
                    listed_groups.partition_point(|listed| length(listed.group) >= length(group));
                listed_groups.insert(position, ListedGroup { group, rules_count: 1 });
            }
        }
    }

    /// Removes a rule of a group from the list of its values.
    pub(super) fn remove(&mut self, hasher: &KeyHasher, matching: &Match, group: u32) {
        let words = words_under(&self.mask, matching.mask(), matching.value());
        let Some(row) = self.table.find_words(hasher, &words.0[..words.1]) else { return };
        #[expect(clippy::cast_possible_truncation, reason = "the value is the number of a list")]
        let number = self.table.tail(row)[0] as u32;
        let list = &mut self.lists[number as usize];
        if let Some(index) = list.groups.iter().position(|listed| listed.group == group) {
            list.groups[index].rules_count -= 1;
            if list.groups[index].rules_count == 0 {
                list.groups.remove(index);
            }
        }
        if list.groups.is_empty() {
            list.lookups = 0;
            self.free.push(number);
            self.table.remove(hasher, row);
        }
    }
}

impl ShortList {
    /// Returns the groups of the list in the order of search.
    #[inline]
    pub(super) fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().map(|listed| listed.group)
    }
}

/// Finds the row of each packet of a set in a table, in the order of the set.
///
/// All hashes are computed first, then all slots are read, then all rows, so that processor cache
/// misses overlap.
pub(super) fn rows_of<const TAIL: usize>(
    table: &MaskedTable<TAIL>,
    hasher: &KeyHasher,
    chunk: Chunk<'_>,
    packets: PacketSet,
    rows: &mut [Option<u32>; CHUNK_MAX],
) {
    let words = |packet: usize| chunk.key(packet).words();
    let mut tags = [0; CHUNK_MAX];
    for (tag, packet) in tags.iter_mut().zip(packets.iter()) {
        *tag = table.tag(hasher, words(packet));
    }
    let mut candidates = [RowCandidate::NONE; CHUNK_MAX];
    for (index, _) in packets.iter().enumerate() {
        candidates[index] = table.candidate(tags[index]);
    }
    for (index, packet) in packets.iter().enumerate() {
        rows[index] = table.confirm(candidates[index], tags[index], words(packet));
    }
}

/// Returns the words of a rule with this mask, masked by `part`.
fn words_under<'a>(
    part: &SparseMask,
    mask: &SparseMask,
    values: impl IntoIterator<Item = &'a u64>,
) -> MaskedWords {
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
