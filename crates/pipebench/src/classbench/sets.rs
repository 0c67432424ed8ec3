//! Four built-in kinds of rule sets: access lists, firewalls, IP chains, and OpenFlow switch rules.
//!
//! The parameter files of ClassBench were measured on proprietary sets and may not be
//! redistributed. The parameters here are not measured: each set is a [`Profile`] of a few round
//! numbers. The numbers are chosen so that the [`Statistics`](super::Statistics) of the generated
//! sets lie among those of the twelve original files ([`PUBLISHED`](super::PUBLISHED)). Simple laws
//! convert a profile to parameters: prefix lengths are weighted peaks, services are ranked by
//! Zipf's law, and branching and correlation change linearly over the bits of an address.
//!
//! The last kind follows the findings of J. Matoušek et al. in the OpenFlow switches of a data
//! centre (*ClassBench-ng: Recasting ClassBench after a Decade of Network Evolution*): whole
//! addresses of a few hundred hosts with few destinations, several protocols per pair, and single
//! ports or none.

use std::{fmt, str::FromStr};

use super::{
    filter::TcpFlags,
    lengths::Lengths,
    parameters::{
        BranchLevel, Branching, FlagShares, PAIR_NAMES, Parameters, PortShares, ProtocolShare,
    },
    ranges::PortRange,
};
use shunt_flow::text::nearest_of;

use crate::{UnknownName, real::pow};

/// A kind of rule set with built-in parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BuiltinSet {
    /// An access list: specific addresses, one destination port or range.
    Acl,
    /// A firewall: many wildcards, wide ranges of ports.
    Firewall,
    /// A chain of IP filters: address pairs of many lengths, some with ports.
    Ipc,
    /// A switch with OpenFlow: pairs of hosts, single ports.
    OpenFlow,
}

impl BuiltinSet {
    /// All kinds of rule-sets.
    pub const ALL: [Self; 4] = [Self::Acl, Self::Firewall, Self::Ipc, Self::OpenFlow];

    /// Returns the name of the set, which follows ClassBench.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Firewall => "fw",
            Self::Ipc => "ipc",
            Self::OpenFlow => "of",
        }
    }

    /// Returns the description of the set.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Acl => "an access list: specific addresses, one destination port or range",
            Self::Firewall => "a firewall: many wildcards, wide ranges of ports",
            Self::Ipc => "a chain of IP filters: address pairs of many lengths, some with ports",
            Self::OpenFlow => "a switch with OpenFlow: pairs of hosts, single ports or none",
        }
    }

    /// Returns the parameters of the set.
    #[must_use]
    pub fn parameters(self) -> Parameters {
        match self {
            Self::Acl => ACL.parameters(),
            Self::Firewall => FIREWALL.parameters(),
            Self::Ipc => IPC.parameters(),
            Self::OpenFlow => OPENFLOW.parameters(),
        }
    }
}

impl fmt::Display for BuiltinSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BuiltinSet {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let known = Self::ALL.into_iter().find(|set| set.name() == name);
        let names = || Self::ALL.iter().map(|set| set.name());
        known.ok_or_else(|| UnknownName::new("rule-set", name, nearest_of(name, names()), names()))
    }
}

/// The structure of a rule set in a few numbers.
struct Profile {
    /// Number of filters in the described set.
    scale: u32,
    /// The share of each protocol, with the shares of its pairs of port classes.
    protocols: &'static [(u8, f64, PairShares)],
    /// TCP flags and masks, with the shares of the TCP filters that match them.
    flags: &'static [(u16, u16, f64)],
    /// Number of entries of [`RANGES`] that the set uses.
    ranges: usize,
    /// Common lengths of source and destination prefixes, with weights.
    lengths: &'static [(usize, usize, f64)],
    source: Branches,
    destination: Branches,
    /// Probability that a destination bit is equal to the source bit.
    ///
    /// The probability changes from the first bit to the last correlated bit.
    correlation: LinearTrend,
    /// The last bit in which addresses are correlated.
    correlated: usize,
}

/// Pairs of port classes by name, with their shares.
type PairShares = &'static [(&'static str, f64)];

/// The shape of the prefix tree of the addresses.
struct Branches {
    nesting: u32,
    /// Number of leading bits at which the addresses of a branch always split.
    even: usize,
    /// Probability that all addresses of a branch continue with the same bit.
    single: LinearTrend,
    /// Skew of a split: 0 for halves, 1 for all on one side.
    skew: LinearTrend,
}

/// A number that changes linearly from the first bit of an address to the last.
struct LinearTrend {
    /// The number at the first bit.
    first: f64,
    /// The number at the last bit.
    last: f64,
}

impl LinearTrend {
    /// Returns the value at `length`, between the first value and that at `last`.
    fn at(&self, length: usize, last: usize) -> f64 {
        // Prefix lengths are at most 32.
        let part = |length: usize| f64::from(u32::try_from(length).unwrap_or(u32::MAX));
        self.first + (self.last - self.first) * part(length) / part(last.max(1))
    }
}

/// Well-known services, the most common first.
const SERVICES: &[u16] = &[
    443, 80, 22, 53, 25, 123, 161, 389, 445, 3389, 21, 1433, 3306, 5432, 8080, 8443, 110, 143, 993,
    995, 465, 587, 636, 514, 162, 69, 179, 500, 4500, 1812, 1813, 2049, 111, 135, 88, 464, 23, 873,
    1521, 5060, 5061, 6379, 9092, 2181, 11211, 27017, 9200, 5672, 1883, 6443,
];

/// Port ranges that services use, the most common first.
const RANGES: &[(u16, u16)] = &[
    (137, 139),
    (20, 21),
    (6000, 6063),
    (8000, 8099),
    (49_152, 65_535),
    (33_434, 33_534),
    (5060, 5061),
    (16_384, 32_767),
    (2000, 2099),
    (1024, 5000),
    (30_000, 32_767),
    (67, 68),
];

/// The scale of all profiles.
const SCALE: u32 = 1000;
/// Zipf exponent of the services.
const SERVICE_EXPONENT: f64 = 0.9;

impl Profile {
    /// Returns the parameters of the profile.
    fn parameters(&self) -> Parameters {
        let services = || PortShares {
            ranges: shares_by_rank(
                RANGES
                    .iter()
                    .take(self.ranges)
                    .filter_map(|(low, high)| PortRange::new(*low, *high)),
            ),
            exact: shares_by_rank(SERVICES.iter().map(|port| PortRange::exact(*port))),
        };
        let mut lengths = Lengths::empty();
        let total = |sum: usize| {
            let peaks = self.lengths.iter().filter(move |(source, other, _)| source + other == sum);
            peaks.map(|(_, _, weight)| weight).sum::<f64>()
        };
        for (source, destination, weight) in self.lengths {
            let sum = source + destination;
            lengths.set_total(sum, total(sum));
            lengths.set_source(sum, *source, weight / total(sum));
        }
        let mut correlation = [0.0; 33];
        for (length, slot) in correlation.iter_mut().enumerate().take(self.correlated + 1).skip(1) {
            *slot = self.correlation.at(length, self.correlated);
        }
        Parameters {
            scale: self.scale,
            protocols: self.protocols.iter().map(protocol_share).collect(),
            flags: self.flag_shares(),
            source_ports: services(),
            destination_ports: services(),
            lengths: vec![lengths; PAIR_NAMES.len()],
            source: self.source.branching(),
            destination: self.destination.branching(),
            correlation,
        }
    }

    /// Returns the shares of TCP flags.
    fn flag_shares(&self) -> Vec<FlagShares> {
        let some: f64 = self.flags.iter().map(|(_, _, share)| share).sum();
        let with_flags =
            self.flags.iter().map(|(value, mask, share)| (TcpFlags::new(*value, *mask), *share));
        let shares = std::iter::once((TcpFlags::ANY, 1.0 - some)).chain(with_flags).collect();
        vec![FlagShares { protocol: TCP, shares }]
    }
}

impl Branches {
    /// Returns the branching of a prefix tree.
    fn branching(&self) -> Branching {
        let mut levels = [BranchLevel::default(); 33];
        for (length, level) in levels.iter_mut().enumerate() {
            let single = if length < self.even { 0.0 } else { self.single.at(length, 32) };
            *level = BranchLevel { single, double: 1.0 - single, skew: self.skew.at(length, 32) };
        }
        Branching { nesting: self.nesting, levels }
    }
}

/// Returns the share of a protocol with its port pairs.
fn protocol_share((protocol, share, pairs): &(u8, f64, PairShares)) -> ProtocolShare {
    let of = |name: &str| pairs.iter().find(|(pair, _)| *pair == name).map_or(0.0, |pair| pair.1);
    ProtocolShare { protocol: *protocol, share: *share, pairs: PAIR_NAMES.map(of) }
}

/// Gives each port a share by its rank, according to Zipf's law.
fn shares_by_rank(ports: impl Iterator<Item = PortRange>) -> Vec<(PortRange, f64)> {
    let weights: Vec<(PortRange, f64)> = ports
        .zip(1_u32..)
        .map(|(port, rank)| (port, pow(f64::from(rank), -SERVICE_EXPONENT)))
        .collect();
    let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
    weights.into_iter().map(|(port, weight)| (port, weight / all)).collect()
}

const TCP: u8 = 6;
/// Value and mask of TCP flags with SYN and without ACK.
const SYN_ONLY: (u16, u16) = (0x0002, 0x0012);

/// The shares of access control lists.
const ACL: Profile = Profile {
    scale: SCALE,
    protocols: &[
        (0, 0.10, &[("wc_wc", 1.0)]),
        (1, 0.05, &[("wc_wc", 1.0)]),
        (TCP, 0.65, &[("wc_wc", 0.20), ("wc_hi", 0.05), ("wc_ar", 0.10), ("wc_em", 0.65)]),
        (17, 0.20, &[("wc_wc", 0.25), ("wc_hi", 0.05), ("wc_ar", 0.15), ("wc_em", 0.55)]),
    ],
    flags: &[(SYN_ONLY.0, SYN_ONLY.1, 0.05)],
    ranges: 8,
    lengths: &[
        (32, 32, 0.35),
        (24, 32, 0.14),
        (32, 24, 0.14),
        (28, 32, 0.08),
        (24, 24, 0.08),
        (32, 28, 0.06),
        (16, 32, 0.05),
        (32, 16, 0.03),
        (20, 24, 0.03),
        (0, 24, 0.02),
        (8, 24, 0.01),
        (30, 16, 0.01),
        (0, 32, 0.02),
    ],
    source: Branches {
        nesting: 4,
        even: 0,
        single: LinearTrend { first: 0.9, last: 0.4 },
        skew: LinearTrend { first: 0.8, last: 0.4 },
    },
    destination: Branches {
        nesting: 5,
        even: 0,
        single: LinearTrend { first: 0.7, last: 0.92 },
        skew: LinearTrend { first: 0.8, last: 0.5 },
    },
    correlation: LinearTrend { first: 0.6, last: 1.0 },
    correlated: 20,
};

/// The shares of firewall rules.
const FIREWALL: Profile = Profile {
    scale: SCALE,
    protocols: &[
        (0, 0.05, &[("wc_wc", 1.0)]),
        (1, 0.05, &[("wc_wc", 1.0)]),
        (TCP, 0.60, &[("wc_wc", 0.15), ("hi_hi", 0.05), ("wc_ar", 0.10), ("wc_em", 0.70)]),
        (17, 0.27, &[("wc_wc", 0.20), ("hi_hi", 0.05), ("wc_ar", 0.25), ("wc_em", 0.50)]),
        (47, 0.03, &[("wc_wc", 1.0)]),
    ],
    flags: &[(SYN_ONLY.0, SYN_ONLY.1, 0.30)],
    ranges: 1,
    lengths: &[
        (0, 32, 0.25),
        (24, 32, 0.15),
        (32, 32, 0.15),
        (32, 0, 0.15),
        (0, 24, 0.10),
        (32, 24, 0.10),
        (24, 24, 0.08),
        (16, 16, 0.02),
    ],
    source: Branches {
        nesting: 4,
        even: 0,
        single: LinearTrend { first: 0.6, last: 0.6 },
        skew: LinearTrend { first: 0.7, last: 0.4 },
    },
    destination: Branches {
        nesting: 4,
        even: 0,
        single: LinearTrend { first: 0.6, last: 0.6 },
        skew: LinearTrend { first: 0.7, last: 0.4 },
    },
    correlation: LinearTrend { first: 0.5, last: 0.9 },
    correlated: 24,
};

/// The shares of IP chains.
const IPC: Profile = Profile {
    scale: SCALE,
    protocols: &[
        (0, 0.20, &[("wc_wc", 1.0)]),
        (1, 0.05, &[("wc_wc", 1.0)]),
        (
            TCP,
            0.45,
            &[("wc_wc", 0.25), ("wc_ar", 0.05), ("wc_em", 0.45), ("em_wc", 0.20), ("em_em", 0.05)],
        ),
        (
            17,
            0.30,
            &[("wc_wc", 0.25), ("wc_hi", 0.02), ("wc_em", 0.38), ("em_wc", 0.20), ("em_em", 0.15)],
        ),
    ],
    flags: &[(SYN_ONLY.0, SYN_ONLY.1, 0.10)],
    ranges: 8,
    lengths: &[
        (32, 32, 0.25),
        (24, 24, 0.12),
        (32, 24, 0.10),
        (24, 32, 0.10),
        (28, 28, 0.08),
        (16, 16, 0.06),
        (16, 32, 0.06),
        (32, 16, 0.06),
        (20, 28, 0.06),
        (28, 20, 0.05),
        (0, 32, 0.03),
        (32, 0, 0.03),
    ],
    source: Branches {
        nesting: 6,
        even: 0,
        single: LinearTrend { first: 0.4, last: 0.7 },
        skew: LinearTrend { first: 0.6, last: 0.5 },
    },
    destination: Branches {
        nesting: 6,
        even: 0,
        single: LinearTrend { first: 0.4, last: 0.7 },
        skew: LinearTrend { first: 0.6, last: 0.5 },
    },
    correlation: LinearTrend { first: 0.7, last: 0.9 },
    correlated: 24,
};

/// The shares of OpenFlow rules.
const OPENFLOW: Profile = Profile {
    scale: 10_000,
    protocols: &[
        (0, 0.30, &[("wc_wc", 1.0)]),
        (1, 0.20, &[("wc_wc", 1.0)]),
        (TCP, 0.25, &[("wc_wc", 0.50), ("wc_em", 0.50)]),
        (17, 0.25, &[("wc_wc", 0.50), ("wc_em", 0.50)]),
    ],
    flags: &[],
    ranges: 0,
    lengths: &[(32, 32, 1.0)],
    source: Branches {
        nesting: 1,
        even: 8,
        single: LinearTrend { first: 0.94, last: 0.94 },
        skew: LinearTrend { first: 0.3, last: 0.3 },
    },
    destination: Branches {
        nesting: 1,
        even: 5,
        single: LinearTrend { first: 0.945, last: 0.945 },
        skew: LinearTrend { first: 0.3, last: 0.3 },
    },
    correlation: LinearTrend { first: 0.0, last: 0.0 },
    correlated: 0,
};
