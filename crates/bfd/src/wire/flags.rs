//! The flags of a control packet.

use std::fmt;

/// The flags of a control packet.
///
/// ```
/// use shunt_bfd::BfdFlags;
///
/// let flags = BfdFlags::POLL.with(BfdFlags::DEMAND);
/// assert!(flags.contains(BfdFlags::POLL) && !flags.contains(BfdFlags::FINAL));
/// assert_eq!(flags.to_string(), "demand poll");
/// assert_eq!(BfdFlags::default().to_string(), "none");
/// ```
///
/// Source: RFC 5880, 4.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BfdFlags(u8);

impl BfdFlags {
    /// Multipoint: reserved for packets from one system to many.
    pub const MULTIPOINT: Self = Self(1);
    /// Demand: the sender requests that no periodic packets are sent to it.
    pub const DEMAND: Self = Self(1 << 1);
    /// Authentication Present: the packet has an authentication section.
    pub const AUTHENTICATION: Self = Self(1 << 2);
    /// Control Plane Independent: BFD at the sender survives its control plane.
    pub const CONTROL_PLANE_INDEPENDENT: Self = Self(1 << 3);
    /// Final: the packet answers a packet with [`POLL`](Self::POLL).
    pub const FINAL: Self = Self(1 << 4);
    /// Poll: the sender requests an immediate answer.
    pub const POLL: Self = Self(1 << 5);

    /// The flags, each with its name in `bfd/show` of Open vSwitch.
    const NAMES: [(Self, &'static str); 6] = [
        (Self::MULTIPOINT, "multipoint"),
        (Self::DEMAND, "demand"),
        (Self::AUTHENTICATION, "auth"),
        (Self::CONTROL_PLANE_INDEPENDENT, "ctl"),
        (Self::FINAL, "final"),
        (Self::POLL, "poll"),
    ];

    /// Returns the flags for the lowest six bits of an octet.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0x3f)
    }

    /// Returns the flags as bits of an octet.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the flags together with `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

impl fmt::Display for BfdFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag));
        let names: Vec<_> = set.map(|(_, name)| *name).collect();
        match names.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&names.join(" ")),
        }
    }
}
