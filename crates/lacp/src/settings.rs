//! Settings of an aggregator and of its members, with the names and defaults of Open vSwitch.

use std::num::NonZeroU16;

use crate::wire::info::{LacpState, SystemId};

/// The settings of an aggregator: the bond that LACP negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatorSettings {
    /// Mode of this end: active or passive (`lacp`).
    pub mode: LacpMode,
    /// Interval of LACPDUs that the partner is requested to use (`lacp-time`).
    pub time: LacpTime,
    /// System of this end (`lacp-system-priority` and `lacp-system-id`).
    ///
    /// All bonds of a switch may have the same system.
    pub system: SystemId,
    /// Key of members without a configured key.
    ///
    /// Each bond of a system needs its own key. Otherwise the partner would aggregate links of two
    /// bonds.
    pub key: NonZeroU16,
    /// Enables members while no member has a partner (`lacp-fallback-ab`).
    ///
    /// The bond must then choose one of these members, like an active-backup bond.
    pub fallback_ab: bool,
}

/// The settings of a member of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// Source MAC address of the frames that the port sends, in wire order.
    pub mac: [u8; 6],
    /// Port number (`lacp-port-id`), unique in the system.
    pub port: NonZeroU16,
    /// Port priority (`lacp-port-priority`):
    /// the member with the lowest value is preferred.
    pub port_priority: u16,
    /// Key (`lacp-aggregation-key`), which enabled members have in common.
    ///
    /// Without this key, the member has the key of the aggregator.
    pub key: Option<NonZeroU16>,
}

/// The mode of an end: active ends begin the negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpMode {
    /// The switch sends LACPDUs without waiting for its partner.
    #[default]
    Active,
    /// The switch sends LACPDUs only to an active partner.
    Passive,
}

/// The interval of LACPDUs that the partner is requested to use, and the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpTime {
    /// Every 30 seconds; the information expires after 90 seconds.
    #[default]
    Slow,
    /// Every second; the information expires after three seconds.
    Fast,
}

impl AggregatorSettings {
    /// The default system priority of Open vSwitch.
    pub const SYSTEM_PRIORITY: u16 = 65_534;

    /// Returns the LACP state flags that the settings determine.
    pub(crate) fn state(&self) -> LacpState {
        LacpState::AGGREGATION
            .with_if(LacpState::ACTIVITY, self.mode == LacpMode::Active)
            .with_if(LacpState::TIMEOUT, self.time == LacpTime::Fast)
    }
}

impl MemberSettings {
    /// The default port priority of Open vSwitch.
    pub const PORT_PRIORITY: u16 = 65_535;
}

impl LacpMode {
    /// Returns the name of the mode, as in the column `lacp` of the table `Port`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

impl LacpTime {
    /// Returns the name of the time, as in `other_config:lacp-time`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Fast => "fast",
        }
    }
}
