//! Requests of controllers that change tables, and the reasons for which they are refused.

use shunt_flow::PortNo;

use crate::{
    groups::group::{GroupMod, GroupModError},
    id::BridgeId,
    meters::meter::{MeterMod, MeterModError},
    tables::flow_mod::{FlowMod, FlowModError},
};

/// One request to change rules, groups or meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modification {
    /// A change of rules (`OFPT_FLOW_MOD`).
    Flow(FlowMod),
    /// A change of groups (`OFPT_GROUP_MOD`).
    Group(GroupMod),
    /// A change of meters (`OFPT_METER_MOD`).
    Meter(MeterMod),
}

/// The reason why a request was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModificationError {
    /// A flow-mod was refused.
    #[error(transparent)]
    Flow(#[from] FlowModError),
    /// A group-mod was refused.
    #[error(transparent)]
    Group(#[from] GroupModError),
    /// A meter-mod was refused.
    #[error(transparent)]
    Meter(#[from] MeterModError),
    /// The bridge was removed meanwhile.
    #[error("bridge {0} does not exist")]
    NoSuchBridge(BridgeId),
    /// The port was removed meanwhile.
    #[error("port {0} does not exist")]
    NoSuchPort(PortNo),
}

impl From<FlowMod> for Modification {
    fn from(request: FlowMod) -> Self {
        Self::Flow(request)
    }
}

impl From<GroupMod> for Modification {
    fn from(request: GroupMod) -> Self {
        Self::Group(request)
    }
}

impl From<MeterMod> for Modification {
    fn from(request: MeterMod) -> Self {
        Self::Meter(request)
    }
}
