//! Parts of header fields as the lanes of a learned index.
//!
//! A learned index compares numbers of at most 32 bits. Each rule of a table, and each megaflow of a
//! cache, is a box over the lanes of `CATALOGUE`. The low end of the box in a lane is the masked
//! value. The high end has all bits set that the mask leaves open. So a box contains every packet
//! that its mask and value cover. A box of a mask with gaps also contains other packets, so the
//! caller compares all bits.
//!
//! An index uses the [`LANES`] lanes in which the masks of the boxes have the most bits
//! ([`LaneSelection::choose`]).

use std::cmp::Reverse;

use shunt_flow::{FieldId, FlowKey, FlowMask, SparseMask, layout::FLOW_WORDS};
use shunt_nuevomatch::{BoxRule, Error, FieldMatch, KeySchema, PriorityRule};

/// Number of lanes of an index.
pub const LANES: usize = 5;

/// Number of lanes to choose from.
const CATALOGUE_LANES: usize = 14;

/// A part of a header field, at most 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    /// The index of the word of the key.
    word: u8,
    /// Number of bits below the part.
    shift: u8,
    /// Number of bits of the part.
    width: u8,
}

/// The lanes that an index may use.
///
/// The lanes of an IPv6 address are the end of the network's prefix and the end of the address,
/// which differ most.
const CATALOGUE: [Lane; CATALOGUE_LANES] = [
    Lane::of(FieldId::Ipv4Src, 0),
    Lane::of(FieldId::Ipv4Dst, 0),
    Lane::of(FieldId::TcpSrc, 0),
    Lane::of(FieldId::TcpDst, 0),
    Lane::of(FieldId::IpProto, 0),
    Lane::of(FieldId::EthSrc, 0),
    Lane::of(FieldId::EthDst, 0),
    Lane::of(FieldId::VlanTci, 0),
    Lane::of(FieldId::Ipv6Src, 64),
    Lane::of(FieldId::Ipv6Dst, 64),
    Lane::of(FieldId::Ipv6Src, 0),
    Lane::of(FieldId::Ipv6Dst, 0),
    Lane::of(FieldId::EthType, 0),
    Lane::of(FieldId::InPort, 0),
];

/// A mask and its value as a box over all lanes of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueBox {
    /// Value of each lane under the mask.
    low: [u32; CATALOGUE_LANES],
    /// Bits of each lane that the mask has.
    mask: [u32; CATALOGUE_LANES],
}

const _: () =
    assert!(size_of::<Option<CatalogueBox>>() == 116, "each rule has a box, so a box is small");

/// The lanes of an index, as positions in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSelection([u8; LANES]);

impl Lane {
    /// Returns the lane of a field from bit `first` on.
    ///
    /// Bit 0 is the least significant.
    const fn of(field: FieldId, first: u8) -> Self {
        let slot = field.slot();
        let word = if slot.width == 128 && first < 64 { slot.word + 1 } else { slot.word };
        let (shift, rest) = (slot.shift + first % 64, slot.width - first);
        Self { word, shift, width: if rest < 32 { rest } else { 32 } }
    }

    /// Returns the value of the lane in its word.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the value is masked to the width")]
    const fn of_word(self, word: u64) -> u32 {
        (word >> self.shift) as u32 & self.value_max()
    }

    /// Returns the largest value of the lane.
    const fn value_max(self) -> u32 {
        u32::MAX >> (32 - self.width)
    }
}

impl CatalogueBox {
    /// Returns the box of the packets that agree with `key` under `mask`.
    #[must_use]
    pub fn new(key: &FlowKey, mask: &SparseMask) -> Self {
        Self::of_words(mask.iter().map(|(index, bits)| (index, bits, key.words()[index] & bits)))
    }

    /// Returns the box of the words of a mask.
    ///
    /// Each word has its index, its mask and its masked value.
    #[must_use]
    pub fn of_words(words: impl Iterator<Item = (usize, u64, u64)>) -> Self {
        let mut own = Self { low: [0; CATALOGUE_LANES], mask: [0; CATALOGUE_LANES] };
        for (index, bits, value) in words {
            for (position, lane) in CATALOGUE.iter().enumerate() {
                if usize::from(lane.word) == index {
                    own.mask[position] = lane.of_word(bits);
                    own.low[position] = lane.of_word(value);
                }
            }
        }
        own
    }

    /// Returns the number of bits that the mask has in a lane.
    const fn bits(&self, position: usize) -> u32 {
        self.mask[position].count_ones()
    }
}

impl LaneSelection {
    /// Chooses the lanes in which the masks of the boxes have the most bits.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the catalogue has few positions")]
    pub fn choose<'a>(boxes: impl Iterator<Item = &'a CatalogueBox>) -> Self {
        let mut bits = [0_u64; CATALOGUE_LANES];
        for own in boxes {
            for (position, sum) in bits.iter_mut().enumerate() {
                *sum += u64::from(own.bits(position));
            }
        }
        let mut positions: [u8; CATALOGUE_LANES] = std::array::from_fn(|position| position as u8);
        positions.sort_by_key(|position| Reverse(bits[usize::from(*position)]));
        Self(std::array::from_fn(|index| positions[index]))
    }

    /// Returns the widths of the lanes in bits.
    #[must_use]
    pub fn widths(self) -> [u32; LANES] {
        self.lanes().map(|lane| lane.width.into())
    }

    /// Returns the lanes of a key.
    #[must_use]
    #[inline]
    pub fn of_key(self, key: &[u64; FLOW_WORDS]) -> [u32; LANES] {
        self.lanes().map(|lane| lane.of_word(key[usize::from(lane.word)]))
    }

    /// Returns a box over the lanes.
    #[must_use]
    pub fn project(self, own: &CatalogueBox, value: u32) -> BoxRule<LANES> {
        let positions = self.0.map(usize::from);
        let low = positions.map(|position| own.low[position]);
        let high = positions.map(|position| {
            own.low[position] | !own.mask[position] & CATALOGUE[position].value_max()
        });
        BoxRule { low, high, value }
    }

    /// Returns the fields of the lanes, one for each.
    ///
    /// # Panics
    ///
    /// Never: lanes have 32 bits at most.
    #[must_use]
    #[expect(clippy::expect_used, reason = "lanes have 32 bits at most")]
    pub fn schema(self) -> KeySchema {
        KeySchema::new(&self.widths()).expect("a lane has at most 32 bits")
    }

    /// Returns a rule over the lanes that matches the bits of the mask in these lanes.
    ///
    /// # Errors
    ///
    /// [`Error::Priority`] if the priority is too large.
    pub fn rule(
        self,
        schema: &KeySchema,
        own: &CatalogueBox,
        priority: u32,
        value: u32,
    ) -> Result<PriorityRule<LANES>, Error> {
        let fields = self.0.map(|position| {
            let (low, mask) = (own.low[usize::from(position)], own.mask[usize::from(position)]);
            FieldMatch::Mask { value: low.into(), mask: mask.into() }
        });
        PriorityRule::new(schema, &fields, priority, value)
    }

    /// Returns the bits of a word of the key that lie in a lane.
    #[must_use]
    pub fn bits_of_word(self, word: usize) -> u64 {
        let own = self.lanes().into_iter().filter(|lane| usize::from(lane.word) == word);
        own.fold(0, |bits, lane| bits | u64::from(lane.value_max()) << lane.shift)
    }

    /// Adds bits of the lanes to a mask.
    pub(crate) fn add_bits(self, bits: [u32; LANES], mask: &mut FlowMask) {
        for (lane, bits) in self.lanes().into_iter().zip(bits) {
            mask.words_mut()[usize::from(lane.word)] |= u64::from(bits) << lane.shift;
        }
    }

    /// Returns the selected lanes.
    #[inline]
    fn lanes(self) -> [Lane; LANES] {
        self.0.map(|position| CATALOGUE[usize::from(position)])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fields of generated matches.
    const FIELDS: [FieldId; 6] = [
        FieldId::Ipv4Src,
        FieldId::Ipv6Dst,
        FieldId::TcpDst,
        FieldId::EthDst,
        FieldId::IpProto,
        FieldId::InPort,
    ];

    /// Generates a value for each field.
    fn values() -> impl Strategy<Value = [u128; FIELDS.len()]> {
        proptest::array::uniform(any::<u128>())
    }

    /// Returns a key with some values.
    fn key(values: &[u128; FIELDS.len()]) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for (field, value) in FIELDS.iter().zip(values) {
            key.set_field(*field, value & field.slot().value_max());
        }
        key
    }

    /// Generates selections of lanes.
    fn selections() -> impl Strategy<Value = LaneSelection> {
        let positions: Vec<u8> = (0..14).collect();
        prop::sample::subsequence(positions, LANES)
            .prop_map(|chosen| LaneSelection(chosen.try_into().unwrap()))
    }

    proptest! {
        #[test]
        fn an_index_range_contains_its_whole_megaflow(
            own in values(),
            other in values(),
            bits in values(),
            selection in selections(),
        ) {
            let mut mask = FlowMask::EMPTY;
            for (field, bits) in FIELDS.iter().zip(bits) {
                mask.add_bits(*field, bits & field.slot().value_max());
            }
            // The key has the bits of the megaflow under the mask, and arbitrary bits elsewhere.
            let mut covered = key(&other);
            for (index, bits) in SparseMask::from(&mask).iter() {
                let words = covered.words_mut();
                words[index] = words[index] & !bits | key(&own).words()[index] & bits;
            }
            let catalogue = CatalogueBox::new(&key(&own), &SparseMask::from(&mask));
            let rule = selection.project(&catalogue, 7);
            let lanes = selection.of_key(covered.words());
            for ((low, high), lane) in rule.low.iter().zip(rule.high).zip(lanes) {
                prop_assert!((*low..=high).contains(&lane));
            }
        }
    }

    #[test]
    fn the_lanes_with_most_fixed_bits_are_chosen() {
        let mut mask = FlowMask::EMPTY;
        for field in [FieldId::EthDst, FieldId::Ipv6Src, FieldId::TcpDst, FieldId::IpProto] {
            mask.add_bits(field, field.slot().value_max());
        }
        let own = CatalogueBox::new(&FlowKey::ZERO, &SparseMask::from(&mask));
        let LaneSelection(mut positions) = LaneSelection::choose([own].iter());
        positions.sort_unstable();
        assert_eq!(positions, [3, 4, 6, 8, 10]);
    }
}
