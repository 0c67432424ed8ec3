//! Prefix tries over the network addresses of all rules of a table.
//!
//! Before a subtable is searched, the tries say whether any rule of the table has the prefix that
//! the packet has at the subtable's prefix length. If none has, the subtable is excluded by those
//! leading bits of the address that prove it, instead of by whole words.
//!
//! A rule whose mask has holes is in a trie with the leading ones of its mask: a rule that matches
//! has that prefix, whatever else it looks at.

use std::ops::Range;

use shunt_flow::{FieldId, FlowKey, FlowMask, SparseMask};

use crate::trie::{Prefixes, Trie, leading_ones};

/// One trie per address field.
#[derive(Clone, Debug)]
pub(super) struct AddressTries {
    tries: [Trie; FIELDS.len()],
}

/// For each address field the number of leading ones of a mask; zero says that the mask does not
/// look at the first bit, and its rules are not in the trie.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrefixLengths([u8; FIELDS.len()]);

/// What the tries say of one packet, asked for at most once per field.
pub(super) struct AddressWalks<'a> {
    tries: &'a AddressTries,
    key: &'a FlowKey,
    fields: Range<usize>,
    found: [Option<Prefixes>; FIELDS.len()],
    /// For each field a number of leading bits that the lookup depends on already, so that a
    /// proof within them is free.
    paid_bits: [u8; FIELDS.len()],
}

impl AddressTries {
    pub(super) fn new() -> Self {
        Self { tries: FIELDS.map(|_| Trie::new()) }
    }

    pub(super) fn insert(&mut self, key: &FlowKey, lengths: PrefixLengths) {
        for (index, length) in lengths.used() {
            self.tries[index].insert(left_aligned(key.field(FIELDS[index]), FIELDS[index]), length);
        }
    }

    pub(super) fn remove(&mut self, key: &FlowKey, lengths: PrefixLengths) {
        for (index, length) in lengths.used() {
            self.tries[index].remove(left_aligned(key.field(FIELDS[index]), FIELDS[index]), length);
        }
    }

    pub(super) fn walks<'a>(&'a self, key: &'a FlowKey) -> AddressWalks<'a> {
        AddressWalks {
            tries: self,
            key,
            fields: fields_present(key),
            found: [None; FIELDS.len()],
            paid_bits: [0; FIELDS.len()],
        }
    }
}

impl PrefixLengths {
    #[expect(clippy::cast_possible_truncation, reason = "at most 128")]
    pub(super) fn of(mask: &SparseMask) -> Self {
        let mask = FlowMask::from(mask);
        Self(FIELDS.map(|field| left_aligned(mask.field(field), field).leading_ones() as u8))
    }

    fn used(self) -> impl Iterator<Item = (usize, u8)> {
        self.0.into_iter().enumerate().filter(|(_, length)| *length > 0)
    }
}

impl AddressWalks<'_> {
    /// Whether bits that are paid for prove that no rule with prefixes of these lengths matches.
    pub(super) fn exclude_free(&mut self, lengths: PrefixLengths) -> bool {
        self.fields.clone().any(|index| {
            let absence = self.absence(index, lengths);
            absence.is_some_and(|bits_count| bits_count <= self.paid_bits[index])
        })
    }

    /// Whether the tries prove that no rule with prefixes of these lengths matches. If so, adds
    /// the proof to `mask`: of the fields that prove it, the one that adds the fewest bits.
    pub(super) fn exclude(&mut self, lengths: PrefixLengths, mask: &mut FlowMask) -> bool {
        let proofs = self.fields.clone().filter_map(|index| {
            let count = self.absence(index, lengths)?;
            let bits = leading_bits(FIELDS[index], count);
            let added_count = (bits & !mask.field(FIELDS[index])).count_ones();
            Some((index, count, added_count))
        });
        let cheapest = proofs.min_by_key(|(_, _, added_count)| *added_count);
        let Some((index, count, _)) = cheapest else { return false };
        // The proof stands without the type, but an address without its type is nothing that a
        // match of OpenFlow, or a table in hardware, could say.
        mask.add_field(FieldId::EthType);
        mask.add_bits(FIELDS[index], leading_bits(FIELDS[index], count));
        self.paid_bits[index] = self.paid_bits[index].max(count);
        true
    }

    /// If no rule of the table has the packet's prefix of the length that a mask has in a field:
    /// how many leading bits prove that.
    fn absence(&mut self, index: usize, lengths: PrefixLengths) -> Option<u8> {
        let length = lengths.0[index];
        if length == 0 { None } else { self.prefixes(index).absence(length) }
    }

    fn prefixes(&mut self, index: usize) -> Prefixes {
        let walk = || {
            self.tries.tries[index]
                .prefixes(left_aligned(self.key.field(FIELDS[index]), FIELDS[index]))
        };
        *self.found[index].get_or_insert_with(walk)
    }
}

/// The fields that have a trie. ARP's addresses share their places with those of IPv4, and so
/// their tries.
const FIELDS: [FieldId; 4] =
    [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::Ipv6Src, FieldId::Ipv6Dst];

/// Which of [`FIELDS`] a packet of this Ethernet type has.
fn fields_present(key: &FlowKey) -> Range<usize> {
    match key.field(FieldId::EthType) {
        0x0800 | 0x0806 | 0x8035 => 0..2,
        0x86dd => 2..4,
        _ => 0..0,
    }
}

fn left_aligned(value: u128, field: FieldId) -> u128 {
    value << (u128::BITS - u32::from(field.width()))
}

/// The first `count` bits of a field, right-aligned.
fn leading_bits(field: FieldId, count: u8) -> u128 {
    leading_ones(count) >> (u128::BITS - u32::from(field.width()))
}
