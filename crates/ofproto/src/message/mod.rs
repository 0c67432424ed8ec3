//! Messages as values, independent of the OpenFlow version.
//!
//! A message value holds only meaningful content. Decoding ([`crate::wire`]) refuses content that
//! no version can express or that the switch cannot execute, with an
//! [`ErrorCode`](crate::ErrorCode). Names come from OpenFlow 1.3.5, chapter 7.

mod asynchronous;
mod bundle;
mod error;
mod flow;
mod flow_monitor;
mod group;
mod meter;
mod multipart;
mod packet;
mod port;
mod switch;

pub use asynchronous::{AsyncConfig, AsyncMasks, Generation, RoleMessage, RoleName};
pub use bundle::{BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId};
pub use error::ErrorMessage;
pub use flow::{FlowRemoved, FlowStatistics};
pub use flow_monitor::{
    FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, FlowUpdate, FlowUpdateEvent,
    FullFlowUpdate,
};
pub use group::{GroupDescription, GroupFeatures, GroupStatistics};
pub use meter::{MeterDescription, MeterFeatures, MeterStatistics};
pub use multipart::{
    AggregateStatistics, MultipartReply, MultipartRequest, SwitchDescription, TableFeatures,
    TableStatistics,
};
pub use packet::{PacketIn, PacketInFormat, PacketOut};
pub use port::{
    LinkFeatures, PortDescription, PortMod, PortStatistics, PortStatus, PortStatusReason,
    QueueConfig, QueueDescription, QueueFilter, QueueStatistics, ReportedPortCounters,
};
pub use switch::{Features, Hello, SwitchConfig, TableMod};

use shunt_flow::PortNo;
use shunt_pipeline::{FlowMod, GroupMod, MeterMod};

pub use crate::wire::v10::FlowFormat;

/// A transaction id, which relates a reply to its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(u32);

impl Xid {
    /// The transaction id of asynchronous messages, which have no request.
    pub const NONE: Self = Self(0);

    /// Creates a transaction id; every number is legal.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the transaction id as a number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// One OpenFlow message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The message `OFPT_HELLO`.
    Hello(Hello),
    /// The message `OFPT_ERROR`.
    Error(ErrorMessage),
    /// `OFPT_ECHO_REQUEST`, with arbitrary data that the reply repeats.
    EchoRequest(Vec<u8>),
    /// The message `OFPT_ECHO_REPLY`.
    EchoReply(Vec<u8>),
    /// The message `OFPT_FEATURES_REQUEST`.
    FeaturesRequest,
    /// The message `OFPT_FEATURES_REPLY`.
    FeaturesReply {
        /// The features of the bridge.
        features: Features,
        /// The ports of the bridge, which only OpenFlow 1.0 lists here.
        ports: Vec<PortDescription>,
    },
    /// The message `OFPT_GET_CONFIG_REQUEST`.
    GetConfigRequest,
    /// The message `OFPT_GET_CONFIG_REPLY`.
    GetConfigReply(SwitchConfig),
    /// The message `OFPT_SET_CONFIG`.
    SetConfig(SwitchConfig),
    /// The message `OFPT_PACKET_IN`.
    PacketIn(PacketIn),
    /// The message `NXT_PACKET_IN`.
    NiciraPacketIn(PacketIn),
    /// The message `NXT_PACKET_IN2`.
    PacketIn2(PacketIn),
    /// `NXT_RESUME`: resumes a paused packet.
    Resume(PacketIn),
    /// The message `OFPT_FLOW_REMOVED`.
    FlowRemoved(FlowRemoved),
    /// The message `OFPT_PORT_STATUS`.
    PortStatus(PortStatus),
    /// The message `OFPT_PACKET_OUT`.
    PacketOut(PacketOut),
    /// The message `OFPT_FLOW_MOD`.
    FlowMod(FlowMod),
    /// The message `OFPT_GROUP_MOD`.
    GroupMod(GroupMod),
    /// The message `OFPT_PORT_MOD`.
    PortMod(PortMod),
    /// The message `OFPT_TABLE_MOD`.
    TableMod(TableMod),
    /// The message `OFPT_MULTIPART_REQUEST`.
    MultipartRequest(MultipartRequest),
    /// The message `OFPT_MULTIPART_REPLY`.
    MultipartReply {
        /// True if another part of the same reply follows (`OFPMPF_REPLY_MORE`).
        more: bool,
        /// The content of this part.
        reply: MultipartReply,
    },
    /// The message `OFPT_BARRIER_REQUEST`.
    BarrierRequest,
    /// The message `OFPT_BARRIER_REPLY`.
    BarrierReply,
    /// `OFPT_QUEUE_GET_CONFIG_REQUEST`, for one port or for all ([`PortNo::ANY`]).
    QueueConfigRequest(PortNo),
    /// The message `OFPT_QUEUE_GET_CONFIG_REPLY`.
    QueueConfigReply(QueueConfig),
    /// The message `OFPT_ROLE_REQUEST`.
    RoleRequest(RoleMessage),
    /// The message `OFPT_ROLE_REPLY`.
    RoleReply(RoleMessage),
    /// The message `OFPT_GET_ASYNC_REQUEST`.
    GetAsyncRequest,
    /// The message `OFPT_GET_ASYNC_REPLY`.
    GetAsyncReply(AsyncConfig),
    /// The message `OFPT_SET_ASYNC`.
    SetAsync(AsyncConfig),
    /// The message `OFPT_METER_MOD`.
    MeterMod(MeterMod),
    /// `ONFT_BUNDLE_CONTROL` (ONF EXT-230), both directions.
    BundleControl(BundleControl),
    /// The message `ONFT_BUNDLE_ADD_MESSAGE` (ONF EXT-230).
    BundleAdd(BundleAdd),
    /// The messages `NXT_FLOW_MONITOR_CANCEL`, `ONFT_FLOW_MONITOR_CANCEL`.
    FlowMonitorCancel(FlowMonitorId),
    /// The messages `NXT_FLOW_MONITOR_PAUSED`, `ONFT_FLOW_MONITOR_PAUSED`.
    FlowMonitorPaused,
    /// The messages `NXT_FLOW_MONITOR_RESUMED`, `ONFT_FLOW_MONITOR_RESUMED`.
    FlowMonitorResumed,
    /// The message `NXT_SET_PACKET_IN_FORMAT`.
    SetPacketInFormat(PacketInFormat),
    /// The message `NXT_SET_CONTROLLER_ID`.
    SetControllerId(u16),
    /// `NXT_SET_FLOW_FORMAT`: the form of matches in OpenFlow 1.0.
    SetFlowFormat(FlowFormat),
    /// `NXT_FLOW_MOD_TABLE_ID`: whether flow-mods of OpenFlow 1.0 name a table.
    FlowModTableId(bool),
}
