//! Large tables with packets, for benchmarks; a seed always gives the same table.
//!
//! A generated table resembles an OpenFlow table. Most rules are access lists over addresses,
//! protocol and ports. Some generated rules also match registers or metadata, and some match only
//! Ethernet. Real rule sets are not uniform, so half of the addresses are from few networks, and
//! few ports are common.

use std::collections::HashSet;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, SparseMask};

use crate::{Priority, Rank};

/// The SplitMix64 generator.
///
/// The source is Steele, Lea, Flood, *Fast Splittable Pseudorandom Number Generators*, 2014.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Returns the next 64 random bits.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a random value of `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns a random number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        let wide = u128::from(self.draw()) * limit as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

/// The distribution of the priorities of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priorities {
    /// Priorities are random, but rules of few bits have low priorities.
    ///
    /// Almost every mask has a rule of high priority, so that few lookups end early.
    Random,
    /// Rules with more bits have higher priorities.
    Specific,
}

/// Number of bits below which a rule is a default rule, which matches most packets.
const BITS_COUNT_BROAD: usize = 48;

/// Rules with their ranks, oldest first.
pub type RankedRules = Vec<(Match, Rank)>;

/// Returns a table of `rules_count` rules over `masks_count` masks.
///
/// No two rules have the same match and priority. A few common masks have most of the rules.
#[must_use]
pub fn rules(rules_count: usize, masks_count: usize, priorities: Priorities) -> RankedRules {
    let mut random = SplitMix64(rules_count as u64);
    let masks = masks(masks_count, &mut random);
    let mut seen = HashSet::new();
    let mut made_count = 0;
    let rule = || {
        let common = random.below(masks_count).min(random.below(masks_count));
        let mask = masks.get(made_count).unwrap_or(&masks[common]);
        made_count += 1;
        let bits_count = FlowMask::from(mask).bits_count() as usize;
        let number = match priorities {
            Priorities::Random if bits_count < BITS_COUNT_BROAD => random.below(1000),
            Priorities::Random => random.below(60_000),
            Priorities::Specific => bits_count,
        };
        let priority = Priority::new(u16::try_from(number).unwrap_or(u16::MAX));
        (Match::with_mask(&key(&mut random), mask.clone()), priority)
    };
    std::iter::repeat_with(rule)
        .filter(|rule| seen.insert(rule.clone()))
        .take(rules_count)
        .zip(0..)
        .map(|((matching, priority), age)| (matching, Rank { priority, age }))
        .collect()
}

/// Returns packets, half of which match a rule, though another rule may win.
#[must_use]
pub fn packets(count: usize, rules: &RankedRules) -> Vec<FlowKey> {
    let mut random = SplitMix64(0);
    let packet = |_| {
        let mut packet = key(&mut random);
        if random.pick(&[true, false]) {
            match_rule(&mut packet, &rules[random.below(rules.len())].0);
        }
        packet
    };
    (0..count).map(packet).collect()
}

/// Writes the values that a rule matches into a packet.
pub fn match_rule(packet: &mut FlowKey, matching: &Match) {
    for ((index, bits), value) in matching.mask().iter().zip(matching.value()) {
        let word = &mut packet.words_mut()[index];
        *word = *word & !bits | value;
    }
}

/// Returns random masks that differ from each other.
fn masks(count: usize, random: &mut SplitMix64) -> Vec<SparseMask> {
    let mut seen = HashSet::new();
    let masks = std::iter::repeat_with(|| SparseMask::from(&mask(random)));
    masks.filter(|mask| seen.insert(mask.clone())).take(count).collect()
}

/// Returns a random mask.
fn mask(random: &mut SplitMix64) -> FlowMask {
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::EthType);
    match random.below(10) {
        0 => {
            mask.add_bits(FieldId::VlanTci, random.pick(&[0, 0x1000, 0x1fff]));
            mask.add_bits(FieldId::EthSrc, random.pick(&[0, 0xffff_ff00_0000, u128::MAX]));
            mask.add_bits(FieldId::EthDst, random.pick(&[0, 0x0100_0000_0000, u128::MAX]));
        }
        1 | 2 => {
            mask.add_bits(FieldId::InPort, random.pick(&[0, u128::MAX]));
            mask.add_bits(FieldId::Metadata, random.pick(&[0, 0xffff, u128::MAX]));
            mask.add_bits(FieldId::Reg0, random.pick(&[0, 0xff, u128::MAX]));
            add_access(&mut mask, random);
        }
        _ => add_access(&mut mask, random),
    }
    mask
}

/// Adds IPv4 prefixes and a port to a mask, as an access list has.
fn add_access(mask: &mut FlowMask, random: &mut SplitMix64) {
    for field in [FieldId::Ipv4Src, FieldId::Ipv4Dst] {
        let length = random.pick(&[0, 0, 8, 12, 16, 18, 20, 22, 23, 24, 24, 26, 28, 30, 32, 32]);
        mask.add_bits(field, u128::from(!u32::MAX.checked_shr(length).unwrap_or(0)));
    }
    if random.below(8) > 0 {
        mask.add_field(FieldId::IpProto);
        mask.add_bits(FieldId::TcpSrc, random.pick(&[0, 0, 0, 0xffff]));
        mask.add_bits(FieldId::TcpDst, random.pick(&[0, 0xfc00, 0xffff, 0xffff]));
    }
}

/// Returns a random flow key.
fn key(random: &mut SplitMix64) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::InPort, u128::from(1 + random.draw() % 16));
    key.set_field(FieldId::Metadata, u128::from(random.draw() % 64));
    key.set_field(FieldId::Reg0, u128::from(random.draw() % 8));
    key.set_field(FieldId::EthSrc, u128::from(0x0200_0000_0000 + random.draw() % 4096));
    key.set_field(FieldId::EthDst, u128::from(0x0200_0000_0000 + random.draw() % 4096));
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::VlanTci, u128::from(0x1000 + random.draw() % 64));
    key.set_field(FieldId::IpProto, u128::from(random.pick(&[6u8, 17])));
    for field in [FieldId::Ipv4Src, FieldId::Ipv4Dst] {
        let network = SplitMix64(random.draw() % 64).draw() << 16;
        let anywhere = random.draw();
        let address = random.pick(&[network | anywhere & 0xffff, anywhere]);
        key.set_field(field, u128::from(address) & 0xffff_ffff);
    }
    key.set_field(FieldId::TcpSrc, u128::from(random.draw()));
    let any = random.draw();
    key.set_field(FieldId::TcpDst, u128::from(random.pick(&[22, 25, 53, 80, 443, any])));
    key
}
