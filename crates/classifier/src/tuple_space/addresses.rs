//! Prefix tries over the network addresses of all rules of a table.
//!
//! A subtable has one prefix length per address field. Before the subtable is searched, the tries
//! show whether any rule of the table has the prefix of the packet with this length. If no rule has
//! this prefix, a few leading bits of the address prove its absence and exclude the subtable,
//! instead of whole words.
//!
//! A rule with holes in its mask is in a trie with the leading ones of the mask. A packet that
//! matches the rule also has this prefix.

use shunt_flow::{FieldId, FlowKey, FlowMask, SparseMask};

use super::blocks::Block;
use crate::trie::{Prefixes, Trie, leading_ones};

/// One trie per address field.
#[derive(Clone, Debug)]
pub(super) struct AddressTries {
    /// The tries of the IPv4 source and destination.
    ipv4: [Trie<u32>; IPV4_COUNT],
    /// The tries of the other address fields.
    ipv6: [Trie<u128>; FIELDS_COUNT - IPV4_COUNT],
}

/// The number of leading ones of a mask in each address field.
///
/// Zero means that the mask does not have the first bit of the field, and that its rules are not in
/// the trie.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrefixLengths([u8; FIELDS.len()]);

/// The results of the trie walks for one packet, computed at most once per field.
pub(super) struct AddressWalks<'a, 'k> {
    /// The tries of the table.
    tries: &'a AddressTries,
    /// The key that is looked up.
    key: &'k FlowKey,
    /// The two address fields of the packet, once they are known.
    sides: Option<[AddressSide; 2]>,
}

/// One of the two address fields of a packet, by its Ethernet type.
#[derive(Clone, Copy, Debug)]
struct AddressSide {
    /// Index of the field in `FIELDS`.
    field: usize,
    /// The result of the trie walk, once it was made.
    found: Option<Prefixes>,
}

impl AddressTries {
    /// Creates tries without addresses.
    pub(super) fn new() -> Self {
        Self { ipv4: [Trie::new(), Trie::new()], ipv6: [Trie::new(), Trie::new()] }
    }

    /// Adds the address prefixes of a rule to the tries.
    pub(super) fn insert(&mut self, key: &FlowKey, lengths: PrefixLengths) {
        for (index, length) in lengths.used() {
            let value = left_aligned(key.field(FIELDS[index]), FIELDS[index]);
            match self.ipv4.get_mut(index) {
                Some(trie) => trie.insert(value, length),
                None => self.ipv6[index - IPV4_COUNT].insert(value, length),
            }
        }
    }

    /// Removes the address prefixes of a rule from the tries.
    pub(super) fn remove(&mut self, key: &FlowKey, lengths: PrefixLengths) {
        for (index, length) in lengths.used() {
            let value = left_aligned(key.field(FIELDS[index]), FIELDS[index]);
            match self.ipv4.get_mut(index) {
                Some(trie) => trie.remove(value, length),
                None => self.ipv6[index - IPV4_COUNT].remove(value, length),
            }
        }
    }

    /// Returns the prefixes of a field of `key` that rules have.
    fn prefixes(&self, key: &FlowKey, index: usize) -> Prefixes {
        let value = left_aligned(key.field(FIELDS[index]), FIELDS[index]);
        match self.ipv4.get(index) {
            Some(trie) => trie.prefixes(value),
            None => self.ipv6[index - IPV4_COUNT].prefixes(value),
        }
    }

    /// Begins a lookup of the addresses of `key` in the tries.
    pub(super) fn walks<'a, 'k>(&'a self, key: &'k FlowKey) -> AddressWalks<'a, 'k> {
        let side = |field| AddressSide { field, found: None };
        let sides = fields_present(key).map(|fields| fields.map(side));
        AddressWalks { tries: self, key, sides }
    }
}

impl PrefixLengths {
    /// Returns the prefix lengths of the addresses in a mask.
    pub(super) fn of(mask: &SparseMask) -> Self {
        let mask = FlowMask::from(mask);
        Self(FIELDS.map(|field| leading_ones_count(&mask, field)))
    }

    /// Returns the address fields of the mask, each with its prefix length.
    pub(super) fn used(self) -> impl Iterator<Item = (usize, u8)> {
        self.0.into_iter().enumerate().filter(|(_, length)| *length > 0)
    }
}

impl AddressWalks<'_, '_> {
    /// Returns the slots of a block that the tries exclude.
    /// The source address excludes the first set, and the destination address the second.
    pub(super) fn excluded(&mut self, block: &Block) -> [u64; 2] {
        [0, 1].map(|side| self.select(block, side, |_| true))
    }

    /// Returns the slots that the first `counts` bits of the addresses exclude.
    pub(super) fn excluded_by(&mut self, block: &Block, counts: [u8; 2]) -> u64 {
        self.select(block, 0, |count| count <= counts[0])
            | self.select(block, 1, |count| count <= counts[1])
    }

    /// Adds the proof that a slot of a block is excluded.
    ///
    /// If both addresses exclude the slot, the proof uses the address that adds fewer bits.
    pub(super) fn prove(&mut self, block: &Block, slot: u64, mask: &mut FlowMask) {
        let proofs = [0, 1].into_iter().filter_map(|side| {
            let prefixes = self.prefixes(block, side)?;
            let mut lengths = block.lengths(self.field(side)).iter();
            let (length, _) = lengths.find(|(_, members)| members & slot != 0)?;
            let count = prefixes.absence(*length)?;
            Some((self.added_bits_count(side, count, mask), side, count))
        });
        if let Some((_, side, count)) = proofs.min() {
            self.add(side, count, mask);
        }
    }

    /// Returns the number of leading bits of each address that a mask has.
    /// The numbers are 0 if the mask does not have the Ethernet type.
    pub(super) fn counts_in(&self, mask: &FlowMask) -> [u8; 2] {
        let has_type = mask.field(FieldId::EthType) == FieldId::EthType.value_max();
        let Some(sides) = self.sides.filter(|_| has_type) else { return [0; 2] };
        sides.map(|side| leading_ones_count(mask, FIELDS[side.field]))
    }

    /// Returns the number of bits that [`Self::add`] would add.
    /// Bits of the Ethernet type are not counted.
    fn added_bits_count(&self, side: usize, count: u8, mask: &FlowMask) -> u32 {
        let field = FIELDS[self.field(side)];
        (leading_bits(field, count) & !mask.field(field)).count_ones()
    }

    /// Adds `count` leading bits of one of the addresses to a mask.
    ///
    /// The Ethernet type is added too. The proof does not need it, but neither an OpenFlow match
    /// nor a hardware table can match an address without the type.
    fn add(&self, side: usize, count: u8, mask: &mut FlowMask) {
        let Some(sides) = self.sides else { return };
        mask.add_field(FieldId::EthType);
        let field = FIELDS[sides[side].field];
        mask.add_bits(field, leading_bits(field, count));
    }

    /// Returns the slots with a prefix length that the address does not have.
    ///
    /// `wanted` selects prefix lengths by the number of bits that prove their absence.
    fn select(&mut self, block: &Block, side: usize, wanted: impl Fn(u8) -> bool) -> u64 {
        let Some(prefixes) = self.prefixes(block, side) else { return 0 };
        let is_selected = |length| prefixes.absence(length).is_some_and(&wanted);
        let lengths = block.lengths(self.field(side)).iter();
        lengths.fold(0, |slots, (length, members)| {
            slots | if is_selected(*length) { *members } else { 0 }
        })
    }

    /// Returns the result of a trie walk, if a slot of the block has a prefix length.
    fn prefixes(&mut self, block: &Block, side: usize) -> Option<Prefixes> {
        let Self { tries, key, sides } = self;
        let side = &mut sides.as_mut()?[side];
        if block.lengths(side.field).is_empty() {
            return None;
        }
        Some(*side.found.get_or_insert_with(|| tries.prefixes(key, side.field)))
    }

    /// Returns the index of the address field of a side: source or destination.
    fn field(&self, side: usize) -> usize {
        self.sides.map_or(0, |sides| sides[side].field)
    }
}

/// Returns the bits of a mask in each address field, for fields with any bits.
pub(super) fn address_parts(mask: &SparseMask) -> impl Iterator<Item = SparseMask> + use<> {
    let mask = FlowMask::from(mask);
    let part = move |field| {
        let mut part = FlowMask::EMPTY;
        part.add_bits(field, mask.field(field));
        SparseMask::from(&part)
    };
    FIELDS.into_iter().map(part).filter(|part| !part.is_empty())
}

/// Number of address fields.
pub(super) const FIELDS_COUNT: usize = 4;
/// Number of address fields of 32 bits, which are the first ones.
const IPV4_COUNT: usize = 2;

/// The fields that have a trie.
///
/// ARP addresses are in the same words of a key as IPv4 addresses, so they share the tries of IPv4.
const FIELDS: [FieldId; FIELDS_COUNT] =
    [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::Ipv6Src, FieldId::Ipv6Dst];

/// Returns the two [`FIELDS`] that a packet of this Ethernet type has.
fn fields_present(key: &FlowKey) -> Option<[usize; 2]> {
    match key.field(FieldId::EthType) {
        0x0800 | 0x0806 | 0x8035 => Some([0, 1]),
        0x86dd => Some([2, 3]),
        _ => None,
    }
}

/// Returns the number of leading one bits of a field of a mask.
#[expect(clippy::cast_possible_truncation, reason = "the value is at most 128")]
fn leading_ones_count(mask: &FlowMask, field: FieldId) -> u8 {
    left_aligned(mask.field(field), field).leading_ones() as u8
}

/// Moves the value of a field to the highest bits.
fn left_aligned(value: u128, field: FieldId) -> u128 {
    value << (u128::BITS - u32::from(field.width()))
}

/// Returns the first `count` bits of a field, right-aligned.
fn leading_bits(field: FieldId, count: u8) -> u128 {
    leading_ones(count) >> (u128::BITS - u32::from(field.width()))
}
