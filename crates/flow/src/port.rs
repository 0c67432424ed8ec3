//! OpenFlow port numbers.

use std::fmt;

/// An OpenFlow port number: a port of the switch or a reserved one.
/// See OpenFlow 1.3.5, 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNo(u32);

impl PortNo {
    /// Highest number that a port of the switch may have.
    ///
    /// Open vSwitch has the same maximum: `ovs-ofctl` cannot read a larger number. The standard
    /// allows numbers up to 0xffffff00 (`OFPP_MAX`).
    pub const MAX: Self = Self(0xfeff);
    /// Lowest of the reserved port numbers.
    pub const RESERVED_MIN: Self = Self(0xffff_ff00);
    /// Send back through the ingress port (`OFPP_IN_PORT`).
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// Submit to the first table (`OFPP_TABLE`); only in packet-outs.
    pub const TABLE: Self = Self(0xffff_fff9);
    /// Forward as a learning switch does (`OFPP_NORMAL`).
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// All ports except the ingress port and ports with `no_flood`.
    /// OpenFlow calls the number `OFPP_FLOOD`.
    pub const FLOOD: Self = Self(0xffff_fffb);
    /// All ports except the ingress port (`OFPP_ALL`).
    pub const ALL: Self = Self(0xffff_fffc);
    /// The controllers, as an output (`OFPP_CONTROLLER`).
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    /// The port of the bridge itself (`OFPP_LOCAL`).
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// No port, or any port in a request (`OFPP_ANY`).
    pub const ANY: Self = Self(0xffff_ffff);
    /// The value of `in_port` before a port is known.
    pub const NONE: Self = Self::ANY;

    /// Creates a port number from its 32 bits on the wire.
    /// Every value is a port number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the 32 bits on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns whether a port of the switch can have this number.
    /// The range is 1 to [`Self::MAX`], and [`Self::LOCAL`].
    #[must_use]
    pub const fn is_physical(self) -> bool {
        (self.0 >= 1 && self.0 <= Self::MAX.0) || self.0 == Self::LOCAL.0
    }

    /// Returns the name of a reserved port, as `ovs-ofctl` prints it.
    #[must_use]
    pub const fn reserved_name(self) -> Option<&'static str> {
        Some(match self {
            Self::IN_PORT => "IN_PORT",
            Self::TABLE => "TABLE",
            Self::NORMAL => "NORMAL",
            Self::FLOOD => "FLOOD",
            Self::ALL => "ALL",
            Self::CONTROLLER => "CONTROLLER",
            Self::LOCAL => "LOCAL",
            Self::ANY => "ANY",
            _ => return None,
        })
    }

    /// Parses a port as `ovs-ofctl` does: a number, or a reserved name in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let named = [
            Self::IN_PORT,
            Self::TABLE,
            Self::NORMAL,
            Self::FLOOD,
            Self::ALL,
            Self::CONTROLLER,
            Self::LOCAL,
            Self::ANY,
        ];
        let by_name = named
            .into_iter()
            .find(|port| port.reserved_name().is_some_and(|name| name.eq_ignore_ascii_case(text)));
        by_name.or_else(|| text.eq_ignore_ascii_case("NONE").then_some(Self::NONE)).or_else(|| {
            match text.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok().map(Self),
                None => text.parse().ok().map(Self::widened),
            }
        })
    }

    /// Widens a port number that may have the 16-bit reserved values of OpenFlow 1.0.
    #[must_use]
    pub const fn widened(number: u32) -> Self {
        if number >= 0xfff8 && number <= 0xffff { Self(number | 0xffff_0000) } else { Self(number) }
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reserved_name() {
            Some(name) => f.write_str(name),
            // A decimal number would parse as a reserved port.
            None if Self::widened(self.0) != *self => write!(f, "{:#x}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_reads_back_from_its_text() {
        for number in (0..0x2_0000).chain(0xfffe_0000..=u32::MAX) {
            let port = PortNo::new(number);
            assert_eq!(PortNo::parse(&port.to_string()), Some(port), "{port}");
        }
    }
}
