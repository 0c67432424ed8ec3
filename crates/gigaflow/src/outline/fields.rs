//! Coupling fields, sets of coupling fields, and connected groups of them.

use std::fmt;

use shunt_flow::{
    FieldId, SparseMask,
    layout::{FLOW_WORDS, HEADER_START},
};

/// A header field that couples the steps that consult it.
///
/// If two steps consult the same address, the values that they match depend on each other. So one
/// sub-traversal should have both steps. Fields that hardly depend on others (the Ethernet type,
/// the ingress port, TTL, hidden state) couple no steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coupling {
    /// The steps consult the Ethernet source address.
    EthSrc,
    /// The steps consult the Ethernet destination address.
    EthDst,
    /// The source address of IPv4, IPv6 or ARP.
    IpSrc,
    /// The destination address of IPv4, IPv6 or ARP.
    IpDst,
    /// The steps consult the IP protocol.
    IpProto,
    /// The source port of TCP, UDP or SCTP, or the type of ICMP.
    TpSrc,
    /// The destination port of TCP, UDP or SCTP, or the code of ICMP.
    TpDst,
    /// The steps consult VLAN tags.
    Vlan,
    /// The steps consult MPLS labels.
    Mpls,
}

impl Coupling {
    /// All fields that couple steps.
    pub const ALL: [Self; 9] = [
        Self::EthSrc,
        Self::EthDst,
        Self::IpSrc,
        Self::IpDst,
        Self::IpProto,
        Self::TpSrc,
        Self::TpDst,
        Self::Vlan,
        Self::Mpls,
    ];

    /// Returns the name of the field in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EthSrc => "eth_src",
            Self::EthDst => "eth_dst",
            Self::IpSrc => "ip_src",
            Self::IpDst => "ip_dst",
            Self::IpProto => "ip_proto",
            Self::TpSrc => "tp_src",
            Self::TpDst => "tp_dst",
            Self::Vlan => "vlan",
            Self::Mpls => "mpls",
        }
    }

    /// Returns the fields of a flow key that this coupling field covers.
    const fn fields(self) -> &'static [FieldId] {
        use FieldId as Id;
        match self {
            Self::EthSrc => &[Id::EthSrc],
            Self::EthDst => &[Id::EthDst],
            Self::IpSrc => &[Id::Ipv4Src, Id::Ipv6Src, Id::ArpSpa],
            Self::IpDst => &[Id::Ipv4Dst, Id::Ipv6Dst, Id::ArpTpa],
            Self::IpProto => &[Id::IpProto],
            Self::TpSrc => &[Id::TcpSrc, Id::UdpSrc, Id::SctpSrc, Id::IcmpType, Id::Icmpv6Type],
            Self::TpDst => &[Id::TcpDst, Id::UdpDst, Id::SctpDst, Id::IcmpCode, Id::Icmpv6Code],
            Self::Vlan => &[Id::VlanTci, Id::VlanTci1],
            Self::Mpls => &[Id::MplsLabel, Id::MplsLse1, Id::MplsLse2],
        }
    }
}

/// A set of coupling fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSet(u16);

impl FieldSet {
    /// The set without fields.
    pub const EMPTY: Self = Self(0);

    /// Creates the set of these fields.
    #[must_use]
    pub fn of(fields: &[Coupling]) -> Self {
        fields.iter().fold(Self::EMPTY, |set, field| set.with(*field))
    }

    /// Returns the coupling fields that have a bit in `mask`.
    #[must_use]
    pub fn consulted(mask: &SparseMask) -> Self {
        mask.headers().fold(Self::EMPTY, |set, (word, bits)| set.union(Self::of_bits(word, bits)))
    }

    /// Returns the coupling fields that have one of these bits of one header word.
    #[inline]
    pub(crate) fn of_bits(word: usize, bits: u64) -> Self {
        let coupled = COUPLED.get(word.wrapping_sub(HEADER_START)).unwrap_or(&NONE_COUPLED);
        coupled.iter().fold(
            Self::EMPTY,
            |set, (field, own)| {
                if bits & field != 0 { set.union(*own) } else { set }
            },
        )
    }

    /// Returns this set with one more field.
    #[must_use]
    pub const fn with(self, field: Coupling) -> Self {
        Self(self.0 | 1 << field as u16)
    }

    /// Returns whether this field is in the set.
    #[must_use]
    pub const fn contains(self, field: Coupling) -> bool {
        self.0 & 1 << field as u16 != 0
    }

    /// Returns the set as bits, one per coupling field.
    pub(super) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns whether the set has no field.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a field is in both sets.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether this set has all fields of the other one.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns the fields that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the fields of the set.
    pub fn iter(self) -> impl Iterator<Item = Coupling> {
        Coupling::ALL.into_iter().filter(move |field| self.contains(*field))
    }

    /// Returns the fields of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for FieldSet {
    /// Writes the names of the fields, separated by commas.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Coupling::as_str).collect();
        formatter.pad(&names.join(", "))
    }
}

/// The bits of each header word that belong to coupling fields, with the field.
const COUPLED: [[(u64, FieldSet); COUPLED_MAX]; FLOW_WORDS - HEADER_START] = coupling_table();

/// The list without any coupled fields.
const NONE_COUPLED: [(u64, FieldSet); COUPLED_MAX] = [(0, FieldSet::EMPTY); COUPLED_MAX];

/// Maximum number of coupling fields in one word.
const COUPLED_MAX: usize = 3;

/// Returns the bits of each header word that belong to coupled fields.
const fn coupling_table() -> [[(u64, FieldSet); COUPLED_MAX]; FLOW_WORDS - HEADER_START] {
    let mut words = [[(0, FieldSet::EMPTY); COUPLED_MAX]; FLOW_WORDS - HEADER_START];
    let mut at = 0;
    while at < Coupling::ALL.len() {
        let (coupling, mut field) = (Coupling::ALL[at], 0);
        let own = FieldSet::EMPTY.with(coupling);
        while field < coupling.fields().len() {
            let slot = coupling.fields()[field].slot();
            let word = slot.word as usize - HEADER_START;
            if slot.width == 128 {
                add_bits(&mut words[word], u64::MAX, own);
                add_bits(&mut words[word + 1], u64::MAX, own);
            } else {
                let ones = u64::MAX >> (64 - slot.width);
                add_bits(&mut words[word], ones << slot.shift, own);
            }
            field += 1;
        }
        at += 1;
    }
    words
}

/// Adds mask bits of a word to the pair of their coupling field, or as a new pair.
const fn add_bits(word: &mut [(u64, FieldSet); COUPLED_MAX], bits: u64, own: FieldSet) {
    let mut at = 0;
    while !word[at].1.is_empty() && word[at].1.0 != own.0 {
        at += 1;
    }
    word[at] = (word[at].0 | bits, own);
}

/// The connected groups of the coupling fields of a sequence of steps.
///
/// Two fields are in one group if a step consulted both, or if both are in one group with a third
/// field.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldGroups {
    /// The groups, of which only the first `count` are in use.
    sets: [FieldSet; Coupling::ALL.len()],
    /// Number of groups in use.
    count: u8,
}

impl FieldGroups {
    pub(super) const NONE: Self = Self { sets: [FieldSet::EMPTY; Coupling::ALL.len()], count: 0 };

    /// Adds a step that consulted these coupling fields.
    ///
    /// Groups are disjoint, so there are at most as many groups as coupling fields.
    pub(super) fn add(&mut self, fields: FieldSet) {
        let known = self.sets();
        if fields.is_empty() || known.iter().any(|set| set.includes(fields)) {
            return;
        }
        let (mut joined, mut kept) = (fields, 0_u8);
        for at in 0..usize::from(self.count) {
            let set = self.sets[at];
            if set.intersects(fields) {
                joined = joined.union(set);
            } else {
                self.sets[usize::from(kept)] = set;
                kept += 1;
            }
        }
        self.sets[usize::from(kept)] = joined;
        self.count = kept + 1;
    }

    /// Adds the groups of another sequence of steps.
    pub(super) fn join(&mut self, other: &Self) {
        for set in other.sets() {
            self.add(*set);
        }
    }

    /// Returns whether all fields of the steps are in one group.
    pub(super) const fn is_connected(&self) -> bool {
        self.count <= 1
    }

    /// Returns the set of fields of each group.
    pub(super) fn sets(&self) -> &[FieldSet] {
        &self.sets[..usize::from(self.count)]
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::FlowMask;

    use super::*;

    #[test]
    fn a_set_displays_the_names_of_its_fields() {
        let set = FieldSet::of(&[Coupling::TpDst, Coupling::IpSrc]);
        assert_eq!(
            (set.to_string(), FieldSet::EMPTY.to_string()),
            ("ip_src, tp_dst".into(), String::new())
        );
        let other = FieldSet::of(&[Coupling::TpDst, Coupling::Mpls]);
        assert_eq!(set.intersection(other), FieldSet::of(&[Coupling::TpDst]));
    }

    #[test]
    fn fields_of_all_protocols_relate_alike() {
        let consulted = |field| {
            let mut mask = FlowMask::EMPTY;
            mask.add_field(field);
            FieldSet::consulted(&SparseMask::from(&mask))
        };
        for field in [FieldId::Ipv4Dst, FieldId::Ipv6Dst] {
            assert_eq!(consulted(field), FieldSet::of(&[Coupling::IpDst]), "{field:?}");
        }
        assert_eq!(consulted(FieldId::UdpDst), consulted(FieldId::TcpDst));
        assert_eq!(consulted(FieldId::VlanVid), FieldSet::of(&[Coupling::Vlan]));
        for field in [FieldId::Reg0, FieldId::EthType, FieldId::InPort, FieldId::NwTtl] {
            assert_eq!(consulted(field), FieldSet::EMPTY, "{field:?}");
        }
    }
}
