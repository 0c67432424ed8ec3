//! Settings of an aggregator and of its members, with the names and defaults of Open vSwitch.

use std::num::NonZeroU16;

use crate::wire::info::{LacpState, SystemId};

/// The settings of an aggregator: the bond that LACP negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatorSettings {
    /// The end that begins the negotiation (`lacp`).
    pub mode: LacpMode,
    /// Interval of the LACPDUs from the partner (`lacp-time`).
    pub time: LacpTime,
    /// Own system (`lacp-system-priority` and `lacp-system-id`).
    ///
    /// All bonds of a switch may have the same system.
    pub system: SystemId,
    /// Key of members without their own one.
    ///
    /// Each bond of a system needs another key. Otherwise the partner aggregates links of two bonds.
    pub key: NonZeroU16,
    /// Enables members without a partner while no member has one (`lacp-fallback-ab`).
    ///
    /// The bond then has to choose one of them, as an active-backup bond does.
    pub fallback_ab: bool,
}

/// The settings of a member of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// Source address of the frames that the port sends, in wire order.
    pub mac: [u8; 6],
    /// Port number (`lacp-port-id`), unique in the system.
    pub port: NonZeroU16,
    /// Port priority (`lacp-port-priority`): the lower one is preferred.
    pub port_priority: u16,
    /// Key (`lacp-aggregation-key`): only members with equal keys are enabled together.
    /// Without it, the key is that of the aggregator.
    pub key: Option<NonZeroU16>,
}

/// The end that begins a negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpMode {
    /// This end sends LACPDUs from the start.
    #[default]
    Active,
    /// This end sends LACPDUs only to an active partner.
    Passive,
}

/// The interval of the LACPDUs that the partner is asked for, and their timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpTime {
    /// Every 30 seconds; expires after 90.
    #[default]
    Slow,
    /// Every second; expires after three.
    Fast,
}

impl AggregatorSettings {
    /// The default system priority of Open vSwitch.
    pub const SYSTEM_PRIORITY: u16 = 65_534;

    /// Returns the flags that the settings decide.
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
