//! The information about one end of a link, as LACPDUs carry it.

use std::fmt;

use crate::{error::PduError, wire::octets::Octets};

/// A system identifier; the lower identifier has the higher priority.
///
/// Source: IEEE 802.1AX, system identification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemId {
    /// The priority of the system.
    pub priority: u16,
    /// MAC address of the system, in wire order.
    pub mac: [u8; 6],
}

/// Actor information or partner information in a LACPDU.
///
/// Source: IEEE 802.1AX, LACP, structure of a LACPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LacpInfo {
    /// System of the port.
    pub system: SystemId,
    /// Operational key: ports of one system with equal keys may be aggregated.
    pub key: u16,
    /// Port priority; the lower value is preferred.
    pub port_priority: u16,
    /// LACP number of the port.
    pub port: u16,
    /// State flags of the port.
    pub state: LacpState,
}

/// The state flags of one end of a link (`Actor_State`, `Partner_State`).
///
/// ```
/// use shunt_lacp::LacpState;
///
/// let state = LacpState::ACTIVITY.with(LacpState::SYNCHRONIZATION);
/// assert!(state.contains(LacpState::ACTIVITY) && !state.contains(LacpState::COLLECTING));
/// assert_eq!(state.to_string(), "activity synchronized");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LacpState(u8);

impl LacpInfo {
    /// Length of the fields in a TLV, without type, length and reserved octets.
    pub(crate) const BYTES: usize = 15;

    /// Parses the information about an actor or partner.
    pub(crate) fn parse(octets: &mut Octets<'_>) -> Result<Self, PduError> {
        let system = SystemId { priority: octets.take_u16()?, mac: octets.take()? };
        let key = octets.take_u16()?;
        let port_priority = octets.take_u16()?;
        let port = octets.take_u16()?;
        let state = LacpState(octets.take_u8()?);
        Ok(Self { system, key, port_priority, port, state })
    }

    /// Appends the information as in an LACPDU.
    pub(crate) fn emit(&self, frame: &mut Vec<u8>) {
        frame.extend(self.system.priority.to_be_bytes());
        frame.extend(self.system.mac);
        frame.extend(self.key.to_be_bytes());
        frame.extend(self.port_priority.to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        frame.push(self.state.0);
    }

    /// Returns whether both name the same port, and agree in the given flags.
    pub(crate) fn agrees(&self, other: &Self, flags: LacpState) -> bool {
        let with_flags = |info: &Self| Self { state: info.state.only(flags), ..*info };
        with_flags(self) == with_flags(other)
    }
}

impl LacpState {
    /// The end sends LACPDUs even to a passive partner (`LACP_Activity`).
    pub const ACTIVITY: Self = Self(1);
    /// The end requests an LACPDU each second (`LACP_Timeout`, short).
    pub const TIMEOUT: Self = Self(1 << 1);
    /// The link may be aggregated with other links.
    pub const AGGREGATION: Self = Self(1 << 2);
    /// The link is in the right aggregation, and the end uses it.
    pub const SYNCHRONIZATION: Self = Self(1 << 3);
    /// The end accepts frames from the link.
    pub const COLLECTING: Self = Self(1 << 4);
    /// The end may send frames on the link.
    pub const DISTRIBUTING: Self = Self(1 << 5);
    /// The end uses defaults for its partner, because it received no LACPDU.
    pub const DEFAULTED: Self = Self(1 << 6);
    /// The end has not received a LACPDU in time.
    pub const EXPIRED: Self = Self(1 << 7);

    /// The flags that an end sets while it uses the link.
    pub const USE: Self = Self::SYNCHRONIZATION.with(Self::COLLECTING).with(Self::DISTRIBUTING);

    /// The flags, each with its name in `lacp/show` of Open vSwitch.
    const NAMES: [(Self, &'static str); 8] = [
        (Self::ACTIVITY, "activity"),
        (Self::TIMEOUT, "timeout"),
        (Self::AGGREGATION, "aggregation"),
        (Self::SYNCHRONIZATION, "synchronized"),
        (Self::COLLECTING, "collecting"),
        (Self::DISTRIBUTING, "distributing"),
        (Self::DEFAULTED, "defaulted"),
        (Self::EXPIRED, "expired"),
    ];

    /// Returns the flags for the bits of an octet.
    #[must_use]
    pub const fn from_octet(octet: u8) -> Self {
        Self(octet)
    }

    /// Returns the flags as bits of an octet.
    #[must_use]
    pub const fn octet(self) -> u8 {
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

    /// Returns the flags without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Returns the flags that are also in `flags`.
    #[must_use]
    pub const fn only(self, flags: Self) -> Self {
        Self(self.0 & flags.0)
    }

    /// Returns the flags, together with `flags` if `is_set` is true.
    #[must_use]
    pub(crate) const fn with_if(self, flags: Self, is_set: bool) -> Self {
        if is_set { self.with(flags) } else { self }
    }
}

impl fmt::Display for SystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.mac;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} priority {}", self.priority)
    }
}

impl fmt::Display for LacpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag));
        f.write_str(&set.map(|(_, name)| *name).collect::<Vec<_>>().join(" "))
    }
}
