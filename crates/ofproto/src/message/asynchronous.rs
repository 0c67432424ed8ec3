//! Controller roles and asynchronous message filters (OpenFlow 1.3.5, 6.3.5, 7.3.9, 7.3.10).

/// The role that a controller requests (`ofp_controller_role`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// Queries the role without changing it.
    NoChange,
    /// Full access; receives all asynchronous messages.
    Equal,
    /// Full access like equal; a bridge has at most one master.
    Master,
    /// Read-only access; receives port-status messages only.
    Slave,
}

impl RoleName {
    /// Returns the role as `shuntctl show` prints it.
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

/// A generation id, which counts master elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation id that is reported before a controller has set one.
    pub const UNDEFINED: Self = Self(u64::MAX);

    /// Returns whether this id is older than `other`, with 64-bit wrap-around.
    #[must_use]
    pub const fn is_lagging(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) >= 1 << 63
    }
}

/// `ofp_role_request`, both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    /// The role that the controller requests, or that the switch reports.
    pub role: RoleName,
    /// The generation id of the election; `None` in OpenFlow 1.0.
    pub generation: Option<Generation>,
}

/// The asynchronous messages that a role receives, one bit per reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMasks {
    /// Enabled reasons of packet-ins (bits of `ofp_packet_in_reason`).
    pub packet_in: u32,
    /// Enabled reasons of port status (bits of `ofp_port_reason`).
    pub port_status: u32,
    /// Enabled reasons of removed rules (`ofp_flow_removed_reason`).
    pub flow_removed: u32,
}

/// `ofp_async_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// The messages that a master or equal receives.
    pub master: AsyncMasks,
    /// The messages that a slave receives.
    pub slave: AsyncMasks,
}

impl Default for AsyncConfig {
    /// Returns the defaults of the standard.
    ///
    /// Masters and equals receive everything but invalid-TTL packet-ins; slaves receive port-status
    /// messages.
    fn default() -> Self {
        Self {
            master: AsyncMasks { packet_in: 0x3, port_status: 0x7, flow_removed: 0xf },
            slave: AsyncMasks { packet_in: 0, port_status: 0x7, flow_removed: 0 },
        }
    }
}
