//! Roles of controllers, and which unasked messages they hear (OpenFlow 1.3.5, 6.3.5, 7.3.9, 7.3.10).

/// `ofp_controller_role`: what a controller asks to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// Only asks.
    NoChange,
    /// May do everything, and hears everything.
    Equal,
    /// As equal; there is one master at most.
    Master,
    /// May only read, and hears of ports only.
    Slave,
}

impl RoleName {
    /// What people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoChange => "no change",
            Self::Equal => "equal",
            Self::Master => "master",
            Self::Slave => "slave",
        }
    }
}

/// A generation id: counts mastership elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub u64);

impl Generation {
    /// What is reported before any controller named one.
    pub const UNDEFINED: Self = Self(u64::MAX);

    /// Whether this one is behind `other`, counted around the circle of 64 bits.
    #[must_use]
    pub const fn is_lagging(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) >= 1 << 63
    }
}

/// `ofp_role_request`, both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    /// The role.
    pub role: RoleName,
    /// The election.
    pub generation: Generation,
}

/// Which unasked messages one kind of role hears: one bit per reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMasks {
    /// By `ofp_packet_in_reason`.
    pub packet_in: u32,
    /// By `ofp_port_reason`.
    pub port_status: u32,
    /// By `ofp_flow_removed_reason`.
    pub flow_removed: u32,
}

/// `ofp_async_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// What a master or equal hears.
    pub master: AsyncMasks,
    /// What a slave hears.
    pub slave: AsyncMasks,
}

impl Default for AsyncConfig {
    /// The standard's choice: everything but invalid TTLs to masters and equals, ports to slaves.
    fn default() -> Self {
        Self {
            master: AsyncMasks { packet_in: 0x3, port_status: 0x7, flow_removed: 0xf },
            slave: AsyncMasks { packet_in: 0, port_status: 0x7, flow_removed: 0 },
        }
    }
}
