//! What a partition policy needs to know of a traversal.
//!
//! A [`Way`] is a traversal with everything left out that does not decide where it is cut: for each
//! step (one table lookup with the actions behind it) the header fields it looked at and a hash of
//! what it saw, and for each boundary between two steps the name of the state there, if the way may
//! be cut there at all.
//!
//! # Legs
//!
//! Policies do not think in steps but in *legs*: the runs of steps between boundaries that are open.
//! A boundary is closed where the hidden state has no name, or where a name would cost more than it
//! wins; whoever builds the way knows that. A way has at most [`LEGS_MAX`] legs: what comes after the
//! last of them belongs to it, so that a traversal of thousands of visits costs no more time and
//! memory than one of a hundred.
//!
//! # Identities
//!
//! Two pieces are one cache entry if they begin at the same cut and every step of them saw the same.
//! Policies compare identities, which are hashes of just that; the hashes of the steps come from
//! outside, with a seed of the caller's. An identity never decides what a packet meets: two pieces
//! with one identity cost sharing, or a place in a stage, and nothing else.

use std::ops::Range;

use shunt_flow::{
    FieldId, SparseMask,
    layout::{FLOW_WORDS, HEADER_START},
};

/// A field that couples the steps that look at it.
///
/// Steps that look at one address see the same few of its values together, so that they are better
/// kept in one piece. What says little about which other values come along (the Ethernet type, the
/// ingress port, TTL, hidden state) couples nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coupling {
    /// The Ethernet source.
    EthSrc,
    /// The Ethernet destination.
    EthDst,
    /// The source address of IPv4, IPv6 or ARP.
    IpSrc,
    /// The destination address of IPv4, IPv6 or ARP.
    IpDst,
    /// The protocol behind IP.
    IpProto,
    /// The source port of TCP, UDP or SCTP, or the type of ICMP.
    TpSrc,
    /// The destination port of TCP, UDP or SCTP, or the code of ICMP.
    TpDst,
    /// VLAN tags.
    Vlan,
    /// MPLS labels.
    Mpls,
}

impl Coupling {
    /// Every coupling field.
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

    /// The fields of a flow key that are this one, in whichever protocol.
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
    /// No field.
    pub const EMPTY: Self = Self(0);

    /// The set of these fields.
    #[must_use]
    pub fn of(fields: &[Coupling]) -> Self {
        fields.iter().fold(Self::EMPTY, |set, field| set.with(*field))
    }

    /// The coupling fields of which a lookup consulted at least a bit.
    #[must_use]
    pub fn consulted(mask: &SparseMask) -> Self {
        let headers =
            mask.iter().filter_map(|(word, bits)| Some((word.checked_sub(HEADER_START)?, bits)));
        headers.fold(Self::EMPTY, |set, (header, bits)| {
            let own = COUPLED[header].iter().filter(|(field, _)| bits & field != 0);
            own.fold(set, |set, (_, own)| set.union(*own))
        })
    }

    /// This set and one more field.
    #[must_use]
    pub const fn with(self, field: Coupling) -> Self {
        Self(self.0 | 1 << field as u16)
    }

    /// Whether this field is in the set.
    #[must_use]
    pub const fn contains(self, field: Coupling) -> bool {
        self.0 & 1 << field as u16 != 0
    }

    /// Whether the set has no field.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether some field is in both sets.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all fields of the other set are in this one.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The fields of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The bits of each header word that couple, and as what.
const COUPLED: [[(u64, FieldSet); COUPLED_MAX]; FLOW_WORDS - HEADER_START] = coupled();

/// Coupling fields that share a word.
const COUPLED_MAX: usize = 3;

const fn coupled() -> [[(u64, FieldSet); COUPLED_MAX]; FLOW_WORDS - HEADER_START] {
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

/// Adds bits of a word to those of the same coupling field, or behind the others.
const fn add_bits(word: &mut [(u64, FieldSet); COUPLED_MAX], bits: u64, own: FieldSet) {
    let mut at = 0;
    while !word[at].1.is_empty() && word[at].1.0 != own.0 {
        at += 1;
    }
    word[at] = (word[at].0 | bits, own);
}

/// The name of the state between two steps: of the table that comes next, or of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cut(u32);

impl Cut {
    /// Behind the last step.
    pub const END: Self = Self(u32::MAX);

    /// The cut with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// One step of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The coupling fields it looked at.
    pub fields: FieldSet,
    /// A hash of everything that makes it this step and no other: what it matched under which mask,
    /// and what it did. Seeded by who builds the way.
    pub identity: u64,
}

/// A traversal, as far as partition policies look at it.
///
/// It is built in the order of the packet's way, and its memory is used again by [`Way::begin`]:
///
/// ```
/// use shunt_gigaflow::way::{Coupling, Cut, FieldSet, Step, Way};
///
/// let ethernet = FieldSet::of(&[Coupling::EthSrc, Coupling::EthDst]);
/// let mut way = Way::new();
/// way.begin(Cut::new(0));
/// way.step(Step { fields: ethernet, identity: 17 });
/// way.cut(Cut::new(3));
/// way.step(Step { fields: FieldSet::EMPTY, identity: 4 });
/// // No cut here: these two stay together.
/// way.step(Step { fields: FieldSet::of(&[Coupling::IpDst]), identity: 9 });
/// assert_eq!((way.steps_count(), way.legs_count()), (3, 2));
/// ```
#[derive(Clone, Debug)]
pub struct Way {
    legs: Vec<Leg>,
    steps_count: u16,
    start: Cut,
    next: Option<Cut>,
}

/// Steps that no piece divides.
#[derive(Clone, Copy, Debug)]
struct Leg {
    /// The cut that it begins at.
    cut: Cut,
    /// One past its last step.
    end: u16,
    /// What its steps saw.
    identity: u64,
    /// How its fields hang together.
    groups: Groups,
}

impl Way {
    /// A way without a step.
    #[must_use]
    pub const fn new() -> Self {
        Self { legs: Vec::new(), steps_count: 0, start: Cut::END, next: None }
    }

    /// Forgets what was there, and begins at `start`.
    pub fn begin(&mut self, start: Cut) {
        self.legs.clear();
        self.steps_count = 0;
        self.start = start;
        self.next = Some(start);
    }

    /// Says that the way may be cut in front of the next step, where the state is called `name`.
    pub const fn cut(&mut self, name: Cut) {
        self.next = Some(name);
    }

    /// Adds a step. What comes after [`STEPS_MAX`] steps belongs to the last of them.
    pub fn step(&mut self, step: Step) {
        self.steps_count = self.steps_count.saturating_add(1);
        let cut = self.next.take().filter(|_| self.legs.len() < LEGS_MAX);
        if let Some(cut) = cut {
            self.legs.push(Leg { cut, end: 0, identity: IDENTITY, groups: Groups::NONE });
        }
        if let Some(leg) = self.legs.last_mut() {
            leg.end = self.steps_count;
            leg.identity = fold(leg.identity, step.identity);
            leg.groups.add(step.fields);
        }
    }

    /// Where the way begins.
    #[must_use]
    pub const fn start(&self) -> Cut {
        self.start
    }

    /// How many steps it has.
    #[must_use]
    pub const fn steps_count(&self) -> u16 {
        self.steps_count
    }

    /// How many legs it has, which is how many pieces it can have.
    #[must_use]
    pub fn legs_count(&self) -> usize {
        self.legs.len()
    }

    /// The name of the state in front of leg `leg`, or behind the last one.
    pub(crate) fn cut_before(&self, leg: usize) -> Cut {
        self.legs.get(leg).map_or(Cut::END, |leg| leg.cut)
    }

    /// The first step of leg `leg`, or one past the last step.
    pub(crate) fn step_before(&self, leg: usize) -> u16 {
        leg.checked_sub(1).and_then(|before| self.legs.get(before)).map_or(0, |leg| leg.end)
    }

    /// The pieces that begin with leg `first`, shortest first.
    pub(crate) fn candidates(&self, first: usize) -> Candidates<'_> {
        let legs = self.legs.get(first..).unwrap_or_default();
        Candidates {
            legs: legs.iter(),
            first_step: self.step_before(first),
            identity: fold(IDENTITY, u64::from(self.cut_before(first).0)),
            groups: Groups::NONE,
        }
    }

    /// What the piece of these steps is called; none if no piece has just these.
    #[must_use]
    pub fn identity(&self, steps: &Range<u16>) -> Option<u64> {
        let first = (0..self.legs.len()).find(|leg| self.step_before(*leg) == steps.start)?;
        let mut identity = fold(IDENTITY, u64::from(self.cut_before(first).0));
        for leg in &self.legs[first..] {
            identity = fold(identity, leg.identity);
            if leg.end >= steps.end {
                return (leg.end == steps.end).then_some(identity);
            }
        }
        None
    }

    /// Every piece that the way could be cut into.
    pub fn pieces(&self) -> impl Iterator<Item = Candidate> {
        (0..self.legs_count()).flat_map(|first| self.candidates(first))
    }

    /// The piece from leg `first` up to and without leg `end`; none if that is no leg at all.
    pub(crate) fn candidate(&self, first: usize, end: usize) -> Option<Candidate> {
        self.candidates(first).nth(end.checked_sub(first + 1)?)
    }

    /// The whole way as one piece; none if it has no step.
    pub(crate) fn whole(&self) -> Option<Candidate> {
        self.candidates(0).last()
    }
}

impl Default for Way {
    fn default() -> Self {
        Self::new()
    }
}

/// A piece that a way could be cut into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its steps.
    pub steps: Range<u16>,
    /// A hash of the cut it begins at and of what its steps saw.
    pub identity: u64,
    /// Whether its fields hang together: see [`Score`](crate::partition::Score).
    pub coupled: bool,
}

/// Iterates over the pieces that begin at one leg.
pub(crate) struct Candidates<'a> {
    legs: std::slice::Iter<'a, Leg>,
    first_step: u16,
    identity: u64,
    groups: Groups,
}

impl Iterator for Candidates<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        let leg = self.legs.next()?;
        self.identity = fold(self.identity, leg.identity);
        self.groups.join(&leg.groups);
        Some(Candidate {
            steps: self.first_step..leg.end,
            identity: self.identity,
            coupled: self.groups.count <= 1,
        })
    }
}

/// The connected groups of fields of some steps: two fields are in one group if a step looked at
/// both, or if a third field is in one group with either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Groups {
    sets: [FieldSet; Coupling::ALL.len()],
    count: u8,
}

impl Groups {
    const NONE: Self = Self { sets: [FieldSet::EMPTY; Coupling::ALL.len()], count: 0 };

    /// Takes in a step that looked at these fields. Groups are disjoint, so there are at most as many
    /// as fields.
    fn add(&mut self, fields: FieldSet) {
        let known = &self.sets[..usize::from(self.count)];
        if fields.is_empty() || known.iter().any(|set| set.includes(fields)) {
            return;
        }
        let (mut joined, mut kept) = (fields, 0_u8);
        for at in 0..usize::from(self.count) {
            let set = self.sets[at];
            if set.meets(fields) {
                joined = joined.union(set);
            } else {
                self.sets[usize::from(kept)] = set;
                kept += 1;
            }
        }
        self.sets[usize::from(kept)] = joined;
        self.count = kept + 1;
    }

    /// Takes in the groups of other steps.
    fn join(&mut self, other: &Self) {
        for set in &other.sets[..usize::from(other.count)] {
            self.add(*set);
        }
    }
}

/// Where a hash of a sequence begins.
const IDENTITY: u64 = 0x243f_6a88_85a3_08d3;

/// Adds to the hash of a sequence. Multiplying by an odd number and folding the halves together is
/// enough here: what comes in are hashes already, or small numbers.
pub(crate) const fn fold(sequence: u64, next: u64) -> u64 {
    let product = (sequence.rotate_left(23) ^ next) as u128 * 0x9e37_79b9_7f4a_7c15_u128;
    #[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
    {
        (product >> 64) as u64 ^ product as u64
    }
}

/// Steps of a way that are told apart, far beyond the visits that a translation may make.
pub const STEPS_MAX: u16 = u16::MAX;

/// Legs of a way: in how many pieces it can be cut at all.
pub const LEGS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use shunt_flow::FlowMask;

    use super::*;

    fn way(steps: u16) -> Way {
        let mut way = Way::new();
        way.begin(Cut::new(0));
        for number in 0..steps {
            way.cut(Cut::new(u32::from(number)));
            way.step(Step { fields: FieldSet::of(&[Coupling::IpDst]), identity: number.into() });
        }
        way
    }

    #[test]
    fn a_way_of_4096_steps_has_no_more_legs_than_any_other() {
        let way = way(4096);
        assert_eq!((way.steps_count(), way.legs_count()), (4096, LEGS_MAX));
        assert_eq!(way.whole().map(|whole| whole.steps), Some(0..4096));
        assert_eq!(way.step_before(LEGS_MAX), 4096);
    }

    #[test]
    fn a_piece_is_named_by_its_start_and_by_all_it_saw() {
        let identity = |start, seen: &[u64]| {
            let mut way = Way::new();
            way.begin(Cut::new(start));
            for identity in seen {
                way.step(Step { fields: FieldSet::EMPTY, identity: *identity });
            }
            way.whole().map(|whole| whole.identity)
        };
        assert_eq!(identity(1, &[2, 3]), identity(1, &[2, 3]));
        for other in [identity(2, &[2, 3]), identity(1, &[3, 2]), identity(1, &[2]), None] {
            assert_ne!(identity(1, &[2, 3]), other);
        }
    }

    #[test]
    fn a_piece_is_found_by_its_steps_alone() {
        let way = way(6);
        for piece in way.pieces() {
            assert_eq!(way.identity(&piece.steps), Some(piece.identity));
        }
        for steps in [3..3, 0..7, 6..7] {
            assert_eq!(way.identity(&steps), None, "{steps:?}");
        }
    }

    #[test]
    fn the_same_piece_of_two_ways_has_one_identity() {
        let (long, short) = (way(6), way(4));
        let of = |way: &Way| way.candidates(2).take(2).collect::<Vec<_>>();
        assert_eq!(of(&long), of(&short));
    }

    #[test]
    fn fields_of_every_protocol_couple_alike() {
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
