//! The parameters of a rule set: its structure, without its addresses.
//!
//! A parameter file has the sections that D. Taylor and J. Turner describe in *ClassBench: A Packet
//! Classification Benchmark*. The sections contain the frequency of each protocol with its port
//! classes, TCP flags, port ranges, and prefix lengths for each class. Further sections describe
//! how addresses branch at each bit, and how far source and destination agree.

use std::fmt;

use super::{filter::TcpFlags, lengths::Lengths, parse::parse_parameters, ranges::PortRange};
use crate::ParameterError;

/// Number of pairs of port classes.
pub(super) const PAIRS: usize = 25;

/// The pairs of source and destination port classes, in the format's order.
///
/// Each class is any (`wc`), low (`lo`), high (`hi`), an arbitrary range (`ar`) or one port (`em`).
pub(super) const PAIR_NAMES: [&str; PAIRS] = [
    "wc_wc", "wc_hi", "hi_wc", "hi_hi", "wc_lo", "lo_wc", "hi_lo", "lo_hi", "lo_lo", "wc_ar",
    "ar_wc", "hi_ar", "ar_hi", "wc_em", "em_wc", "hi_em", "em_hi", "lo_ar", "ar_lo", "lo_em",
    "em_lo", "ar_ar", "ar_em", "em_ar", "em_em",
];

/// The parameters of a rule set.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Number of filters in the described set.
    pub(super) scale: u32,
    pub(super) protocols: Vec<ProtocolShare>,
    pub(super) flags: Vec<FlagShares>,
    pub(super) source_ports: PortShares,
    pub(super) destination_ports: PortShares,
    /// One distribution of prefix lengths for each pair of port classes.
    pub(super) lengths: Vec<Lengths>,
    pub(super) source: Branching,
    pub(super) destination: Branching,
    /// By length: probability that the next source and destination bits are equal.
    ///
    /// The probability applies if all bits before are equal.
    pub(super) correlation: [f64; 33],
}

/// Shares of a protocol and of its pairs of port classes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProtocolShare {
    pub(super) protocol: u8,
    pub(super) share: f64,
    pub(super) pairs: [f64; PAIRS],
}

/// The TCP flags that filters of a protocol match.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlagShares {
    pub(super) protocol: u8,
    pub(super) shares: Vec<(TcpFlags, f64)>,
}

/// Port ranges and single ports, with their shares.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PortShares {
    pub(super) ranges: Vec<(PortRange, f64)>,
    pub(super) exact: Vec<(PortRange, f64)>,
}

/// The branching of the addresses of a set, from the first bit to the last.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Branching {
    /// Maximum number of nested prefixes in the set.
    pub(super) nesting: u32,
    pub(super) levels: [BranchLevel; 33],
}

/// The shape of the prefix tree of the addresses after one bit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BranchLevel {
    /// Probability that all addresses of a branch continue with the same bit.
    pub(super) single: f64,
    /// Probability that the branch splits.
    pub(super) double: f64,
    /// Skew of a split: 0 for halves, 1 for all on one side.
    pub(super) skew: f64,
}

impl Parameters {
    /// Parses a parameter file.
    ///
    /// # Errors
    ///
    /// If the text has a syntax error, or lacks a section.
    pub fn parse(text: &str) -> Result<Self, ParameterError> {
        parse_parameters(text)
    }

    /// Returns the number of filters in the described set.
    #[must_use]
    pub const fn scale(&self) -> u32 {
        self.scale
    }

    /// Checks that each used pair of port classes has a distribution.
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        let any = self.protocols.iter().any(|protocol| protocol.share > 0.0);
        if !any {
            return Err(ParameterError::NoProtocol);
        }
        for protocol in self.protocols.iter().filter(|protocol| protocol.share > 0.0) {
            if protocol.pairs.iter().all(|share| *share == 0.0) {
                return Err(ParameterError::NoPorts { protocol: protocol.protocol });
            }
            for (pair, share) in protocol.pairs.iter().enumerate() {
                if *share > 0.0 {
                    self.check_pair(protocol.protocol, pair)?;
                }
            }
        }
        Ok(())
    }

    /// Refuses a pair of ports for which a section is missing.
    fn check_pair(&self, protocol: u8, pair: usize) -> Result<(), ParameterError> {
        let name = PAIR_NAMES.get(pair).copied().unwrap_or("");
        let missing = |section| Err(ParameterError::Unsupplied { protocol, pair: name, section });
        if self.lengths.get(pair).is_none_or(Lengths::is_empty) {
            return missing(name);
        }
        let (source, destination) = name.split_once('_').unwrap_or((name, name));
        match () {
            () if source == "ar" && self.source_ports.ranges.is_empty() => missing("spar"),
            () if source == "em" && self.source_ports.exact.is_empty() => missing("spem"),
            () if destination == "ar" && self.destination_ports.ranges.is_empty() => {
                missing("dpar")
            }
            () if destination == "em" && self.destination_ports.exact.is_empty() => missing("dpem"),
            () => Ok(()),
        }
    }
}

impl fmt::Display for Parameters {
    /// Formats a parameter file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "-scale\n{}\n#\n-prots", self.scale)?;
        for ProtocolShare { protocol, share, pairs } in &self.protocols {
            write!(f, "{protocol}\t{share:.8}")?;
            pairs.iter().try_for_each(|share| write!(f, "\t{share:.8}"))?;
            writeln!(f)?;
        }
        writeln!(f, "#\n-flags")?;
        for FlagShares { protocol, shares } in &self.flags {
            write!(f, "{protocol}")?;
            shares.iter().try_for_each(|(flags, share)| write!(f, "\t{flags},{share:.8}"))?;
            writeln!(f)?;
        }
        writeln!(f, "#\n-extra\n0\n#")?;
        write_ports(f, "spar", &self.source_ports.ranges)?;
        write_ports(f, "spem", &self.source_ports.exact)?;
        write_ports(f, "dpar", &self.destination_ports.ranges)?;
        write_ports(f, "dpem", &self.destination_ports.exact)?;
        for (name, lengths) in PAIR_NAMES.iter().zip(&self.lengths) {
            writeln!(f, "-{name}")?;
            for (total, share, sources) in lengths.rows() {
                write!(f, "{total},{share:.8}")?;
                sources
                    .iter()
                    .try_for_each(|(source, share)| write!(f, "\t{source},{share:.8}"))?;
                writeln!(f)?;
            }
            writeln!(f, "#")?;
        }
        write_branching(f, 's', &self.source)?;
        write_branching(f, 'd', &self.destination)?;
        writeln!(f, "-pcorr")?;
        for (length, share) in self.correlation.iter().enumerate().skip(1) {
            writeln!(f, "{length}\t{share:.8}")?;
        }
        writeln!(f, "#")
    }
}

/// Writes the section of a kind of ports.
fn write_ports(f: &mut fmt::Formatter<'_>, name: &str, ports: &[(PortRange, f64)]) -> fmt::Result {
    writeln!(f, "-{name}")?;
    for (range, share) in ports {
        writeln!(f, "{share:.8}\t{}:{}", range.low(), range.high())?;
    }
    writeln!(f, "#")
}

/// Writes the section of the branching of one address.
fn write_branching(f: &mut fmt::Formatter<'_>, side: char, branching: &Branching) -> fmt::Result {
    writeln!(f, "-{side}nest\n{}\n#\n-{side}skew", branching.nesting)?;
    for (length, level) in branching.levels.iter().enumerate() {
        writeln!(f, "{length}\t{:.8}\t{:.8}\t{:.8}", level.single, level.double, level.skew)?;
    }
    writeln!(f, "#")
}
