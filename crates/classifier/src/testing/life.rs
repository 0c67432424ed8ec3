//! Generators of rules, keys and sequences of table operations, for property tests.
//!
//! Values are from small sets, and masks are from few kinds. So rules overlap, share subtables,
//! nest in the tries, differ in single bits, and match the keys.

use proptest::{prelude::*, sample::Index, sample::select};
use shunt_flow::{
    FieldId::{self, *},
    FlowKey, FlowMask, Match,
};

use crate::Priority;

/// One operation on a table.
#[derive(Clone, Debug)]
pub enum TableOp {
    /// Adds a rule, which is then the youngest.
    Insert(Match, Priority),
    /// Removes a rule, by its index among the rules that are not removed.
    Remove(Index),
    /// Replaces a rule that is not removed by a rule with the same match and rank.
    Modify(Index),
    /// Publishes the operations so far; later ones belong to the next version.
    Publish,
    /// Reclaims rules, with an oldest version this far behind the newest one.
    Reclaim(u64),
}

/// Generates sequences of up to `length_max` operations.
pub fn ops(length_max: usize) -> impl Strategy<Value = Vec<TableOp>> {
    let op = prop_oneof![
        8 => (matching(), priority()).prop_map(|(matching, priority)| TableOp::Insert(matching, priority)),
        3 => any::<Index>().prop_map(TableOp::Remove),
        1 => any::<Index>().prop_map(TableOp::Modify),
        3 => Just(TableOp::Publish),
        1 => (0u64..4).prop_map(TableOp::Reclaim),
    ];
    prop::collection::vec(op, 0..=length_max)
}

/// Generates few different priorities, including the lowest and the highest.
pub fn priority() -> impl Strategy<Value = Priority> {
    select(vec![0, 1, 2, 3, u16::MAX]).prop_map(Priority::new)
}

/// Generates matches with values of [`key`] and masks of few kinds.
pub fn matching() -> impl Strategy<Value = Match> {
    (key(), mask()).prop_map(|(key, mask)| Match::new(&key, &mask))
}

/// Generates keys with few values per field, also combinations that no packet has.
pub fn key() -> impl Strategy<Value = FlowKey> {
    let fields: Vec<_> = VALUES
        .iter()
        .map(|(field, values)| select(*values).prop_map(move |value| (*field, value)))
        .collect();
    fields.prop_map(|fields| {
        let mut key = FlowKey::ZERO;
        fields.into_iter().for_each(|(field, value)| key.set_field(field, value));
        key
    })
}

/// Generates keys in which any bit may be set.
pub fn noise() -> impl Strategy<Value = FlowKey> {
    any::<[u64; 27]>().prop_map(|words| {
        let mut key = FlowKey::ZERO;
        key.words_mut().iter_mut().zip(words.iter().cycle()).for_each(|(to, from)| *to = *from);
        key
    })
}

/// Generates masks of few kinds: whole fields, prefixes, masks with holes.
fn mask() -> impl Strategy<Value = FlowMask> {
    let bits = prop_oneof![
        4 => select(vec![0, 1, 7, 8, 9, 16, 24, 31, 32]).prop_map(MaskBits::Prefix),
        1 => Just(MaskBits::Holes),
    ];
    (select(SHAPES), bits.clone(), bits).prop_map(|(shape, first, second)| {
        let mut mask = FlowMask::EMPTY;
        shape.full.iter().for_each(|field| mask.add_field(*field));
        shape.partial.iter().zip([first, second]).for_each(|(field, bits)| {
            mask.add_bits(*field, bits.of(*field));
        });
        mask
    })
}

/// The bits of one field in a mask.
#[derive(Clone, Copy, Debug)]
enum MaskBits {
    /// The leading bits: this number of 32nds of the width of the field.
    Prefix(u32),
    Holes,
}

impl MaskBits {
    /// Returns the value of a field.
    fn of(self, field: FieldId) -> u128 {
        let width = u32::from(field.width());
        match self {
            Self::Prefix(length) => {
                let rest = u128::MAX.checked_shr(128 - width + width * length / 32).unwrap_or(0);
                field.value_max() & !rest
            }
            Self::Holes => 0xc000_00c0_0000_0000_8000_0000_c000_8081 & field.value_max(),
        }
    }
}

/// The fields of a mask: whole fields, and fields with some bits.
#[derive(Clone, Copy, Debug)]
struct MaskShape {
    /// Fields that are matched exactly.
    full: &'static [FieldId],
    /// Fields of which some bits are matched.
    partial: &'static [FieldId],
}

/// Fields of generated masks.
const SHAPES: &[MaskShape] = &[
    MaskShape { full: &[], partial: &[] },
    MaskShape { full: &[InPort], partial: &[] },
    MaskShape { full: &[Reg0, Metadata], partial: &[] },
    MaskShape { full: &[Reg0, InPort, EthType, IpProto], partial: &[] },
    MaskShape { full: &[EthDst, VlanTci], partial: &[] },
    MaskShape { full: &[EthType], partial: &[Ipv4Src] },
    MaskShape { full: &[EthType], partial: &[Ipv4Dst, Ipv4Src] },
    MaskShape { full: &[EthType, IpProto], partial: &[Ipv4Dst, TcpDst] },
    MaskShape { full: &[EthType, IpProto], partial: &[TcpSrc, TcpDst] },
    MaskShape { full: &[EthType, TcpFlags], partial: &[TcpDst] },
    MaskShape { full: &[InPort, EthType], partial: &[Ipv4Dst] },
    MaskShape { full: &[EthType, ArpOp], partial: &[ArpSpa, ArpTpa] },
    MaskShape { full: &[EthType], partial: &[Ipv6Src, Ipv6Dst] },
    MaskShape { full: &[EthType, IpProto, TcpDst], partial: &[Ipv6Dst] },
    MaskShape { full: &[], partial: &[Ipv4Dst, Ipv6Dst] },
    MaskShape { full: &[TcpFlags], partial: &[] },
];

/// IPv4 addresses of generated keys.
const IPV4: &[u128] =
    &[0, 0x0a00_0001, 0x0a00_0002, 0x0a01_0001, 0x0a80_0001, 0xc0a8_0001, 0xc0a8_0081];

/// IPv6 addresses of generated keys.
const IPV6: &[u128] = &[
    0,
    0xfd00_0000_0000_0000_0000_0000_0000_0001,
    0xfd00_0000_0000_0000_0000_0000_0000_0002,
    0xfd00_0001_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0000_8000_0000_0000_0001,
];

/// Values that generated keys have in each field.
const VALUES: &[(FieldId, &[u128])] = &[
    (InPort, &[1, 2]),
    (Reg0, &[0, 1]),
    (Metadata, &[0, 1]),
    (EthDst, &[0, 0x0200_0000_0001]),
    (EthType, &[0x0800, 0x0806, 0x86dd, 0x88cc]),
    (VlanTci, &[0, 0x1001]),
    (Ipv4Src, IPV4),
    (Ipv4Dst, IPV4),
    (Ipv6Src, IPV6),
    (Ipv6Dst, IPV6),
    (IpProto, &[6, 17]),
    (TcpSrc, &[0, 80, 0x8050, 1024]),
    (TcpDst, &[0, 80, 81, 443]),
    (TcpFlags, &[0, 2]),
];
