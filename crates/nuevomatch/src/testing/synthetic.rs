//! Generated rule-sets, in the shapes of the three families of ClassBench.
//!
//! The networks are few, so that prefixes contain each other and rules overlap. A seed always gives
//! the same rules.

use super::headers::RandomWords;
use crate::{BoxRule, PriorityRule};

/// The family of a generated rule-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntheticSet {
    /// An access list: specific addresses, and exact destination ports.
    AccessList,
    /// A firewall: one address is often a wildcard, and ports are often ranges.
    Firewall,
    /// A chain of filters: address prefixes of any length, and both ports.
    FilterChain,
}

/// The lengths of the prefixes of addresses, one of which is chosen at random.
struct AddressLengths {
    source: &'static [u32],
    destination: &'static [u32],
}

/// The most networks that addresses are in, for any number of rules.
const NETWORKS_MAX: usize = 4096;

impl SyntheticSet {
    /// All families of synthetic rules.
    pub const ALL: [Self; 3] = [Self::AccessList, Self::Firewall, Self::FilterChain];

    /// Returns the name of the family.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AccessList => "acl",
            Self::Firewall => "fw",
            Self::FilterChain => "ipc",
        }
    }

    /// Returns `count` rules over a 5-tuple. The first rule wins over all others.
    ///
    /// # Panics
    ///
    /// Never: priorities are positions.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a position is a legal priority")]
    pub fn rules(self, count: u32, seed: u64) -> Vec<PriorityRule<5>> {
        let mut random = RandomWords::new(seed);
        let networks = (count as usize / 16).clamp(4, NETWORKS_MAX);
        let networks: Vec<u32> = (0..networks).map(|_| random.word()).collect();
        let mut rule = |value: u32| {
            let own = self.rule(&networks, &mut random, value);
            PriorityRule::from_box(&own, value).expect("a position is a legal priority")
        };
        (0..count).map(&mut rule).collect()
    }

    /// Returns a random rule.
    fn rule(self, networks: &[u32], random: &mut RandomWords, value: u32) -> BoxRule<5> {
        let lengths = self.lengths();
        let source = address(networks, lengths.source, random);
        let destination = address(networks, lengths.destination, random);
        let [source_port, destination_port] = self.ports(random);
        let protocol = random.pick(&[(6, 6), (6, 6), (17, 17), (0, 255)]);
        let lanes = [source, destination, source_port, destination_port, protocol];
        BoxRule { low: lanes.map(|(low, _)| low), high: lanes.map(|(_, high)| high), value }
    }

    /// Returns the prefix lengths of the addresses.
    const fn lengths(self) -> AddressLengths {
        let (source, destination): (&[u32], &[u32]) = match self {
            Self::AccessList => (&[0, 16, 24, 24, 28, 32], &[21, 24, 28, 30, 32, 32, 32]),
            Self::Firewall => (&[0, 0, 0, 16, 24, 32], &[0, 0, 16, 24, 29, 32, 32]),
            Self::FilterChain => (&[0, 8, 15, 20, 24, 27, 32, 32], &[0, 9, 16, 22, 24, 31, 32, 32]),
        };
        AddressLengths { source, destination }
    }

    /// Returns random ranges of ports.
    fn ports(self, random: &mut RandomWords) -> [(u32, u32); 2] {
        let any = (0, 0xffff);
        let mut exact = || {
            let other = random.word() % 0x1_0000;
            let port = random.pick(&[53, 80, 443, 8080, other]);
            (port, port)
        };
        let (one, two) = (exact(), exact());
        let (low, length) = (random.word() % 0xf000, random.word() % 0x0fff);
        let ranges = [(1024, 0xffff), (0, 1023), (low, low + length), one, any];
        match self {
            Self::AccessList => [any, random.pick(&[one, one, one, any, (low, low + length)])],
            Self::Firewall => [random.pick(&ranges), random.pick(&ranges)],
            Self::FilterChain => [random.pick(&[one, any, any]), random.pick(&[two, any])],
        }
    }
}

/// Returns the first and last address of a random prefix in one of the networks.
fn address(networks: &[u32], lengths: &[u32], random: &mut RandomWords) -> (u32, u32) {
    let free = u32::MAX.checked_shr(random.pick(lengths)).unwrap_or(0);
    let inside = random.word() >> random.pick(&[16, 20, 24]);
    let address = random.pick(networks) & 0xffff_0000 | inside;
    (address & !free, address | free)
}
