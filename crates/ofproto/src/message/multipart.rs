//! Multipart requests and replies (OpenFlow 1.3.5, 7.3.5).

use shunt_flow::PortNo;
use shunt_pipeline::{GroupId, MeterId, RuleFilter, TableId};

use super::{
    FlowMonitorRequest, FlowStatistics, FlowUpdate, GroupDescription, GroupFeatures,
    GroupStatistics, MeterDescription, MeterFeatures, MeterStatistics, PortDescription,
    PortStatistics, QueueFilter, QueueStatistics,
};

/// `ofp_multipart_request`, joined from all of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequest {
    /// The multipart request `OFPMP_DESC`.
    Description,
    /// The multipart request `OFPMP_FLOW`.
    Flow(RuleFilter),
    /// The multipart request `OFPMP_AGGREGATE`.
    Aggregate(RuleFilter),
    /// The multipart request `OFPMP_TABLE`.
    Table,
    /// `OFPMP_PORT_STATS`, for one port or for all ([`PortNo::ANY`]).
    Port(PortNo),
    /// The multipart request `OFPMP_QUEUE`.
    Queue(QueueFilter),
    /// `OFPMP_GROUP`, for one group or for all (`None`).
    Group(Option<GroupId>),
    /// `OFPMP_GROUP_DESC`, for all groups (`None`); over OpenFlow 1.0 also for one.
    GroupDescription(Option<GroupId>),
    /// The multipart request `OFPMP_GROUP_FEATURES`.
    GroupFeatures,
    /// `OFPMP_METER`, for one meter or for all (`None`).
    Meter(Option<MeterId>),
    /// `OFPMP_METER_CONFIG`, for one meter or for all (`None`).
    MeterConfig(Option<MeterId>),
    /// The multipart request `OFPMP_METER_FEATURES`.
    MeterFeatures,
    /// `OFPMP_TABLE_FEATURES`, as a query that changes no feature.
    TableFeatures,
    /// The multipart request `OFPMP_PORT_DESC`.
    PortDescription,
    /// `NXST_FLOW` of OpenFlow 1.0.
    NiciraFlow(RuleFilter),
    /// `NXST_AGGREGATE` of OpenFlow 1.0.
    NiciraAggregate(RuleFilter),
    /// `NXST_FLOW_MONITOR` of OpenFlow 1.0, `ONFST_FLOW_MONITOR` of OpenFlow 1.3.
    FlowMonitor(Vec<FlowMonitorRequest>),
}

/// One part of a multipart reply (`ofp_multipart_reply`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartReply {
    /// The multipart reply `OFPMP_DESC`.
    Description(SwitchDescription),
    /// The multipart reply `OFPMP_FLOW`.
    Flow(Vec<FlowStatistics>),
    /// The multipart reply `OFPMP_AGGREGATE`.
    Aggregate(AggregateStatistics),
    /// The multipart reply `OFPMP_TABLE`.
    Table(Vec<TableStatistics>),
    /// The multipart reply `OFPMP_PORT_STATS`.
    Port(Vec<PortStatistics>),
    /// The multipart reply `OFPMP_QUEUE`.
    Queue(Vec<QueueStatistics>),
    /// The multipart reply `OFPMP_GROUP`.
    Group(Vec<GroupStatistics>),
    /// The multipart reply `OFPMP_GROUP_DESC`.
    GroupDescription(Vec<GroupDescription>),
    /// The multipart reply `OFPMP_GROUP_FEATURES`.
    GroupFeatures(GroupFeatures),
    /// The multipart reply `OFPMP_METER`.
    Meter(Vec<MeterStatistics>),
    /// The multipart reply `OFPMP_METER_CONFIG`.
    MeterConfig(Vec<MeterDescription>),
    /// The multipart reply `OFPMP_METER_FEATURES`.
    MeterFeatures(MeterFeatures),
    /// The multipart reply `OFPMP_TABLE_FEATURES`.
    TableFeatures(Vec<TableFeatures>),
    /// The multipart reply `OFPMP_PORT_DESC`.
    PortDescription(Vec<PortDescription>),
    /// `NXST_FLOW` of OpenFlow 1.0.
    NiciraFlow(Vec<FlowStatistics>),
    /// `NXST_AGGREGATE` of OpenFlow 1.0.
    NiciraAggregate(AggregateStatistics),
    /// `NXST_FLOW_MONITOR` of OpenFlow 1.0, `ONFST_FLOW_MONITOR` of OpenFlow 1.3.
    FlowMonitor(Vec<FlowUpdate>),
}

/// `ofp_desc`. Longer strings are truncated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchDescription {
    /// Manufacturer: at most 255 bytes.
    pub manufacturer: String,
    /// Hardware: at most 255 bytes.
    pub hardware: String,
    /// Software version: at most 255 bytes.
    pub software: String,
    /// Serial number: at most 31 bytes.
    pub serial: String,
    /// Name of the bridge: at most 255 bytes.
    pub datapath: String,
}

/// `ofp_aggregate_stats_reply`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateStatistics {
    /// Number of packets that hit the selected rules.
    pub packets: u64,
    /// Number of bytes of the packets that hit the selected rules.
    pub bytes: u64,
    /// Number of selected rules.
    pub flows: u32,
}

/// The features of a table that other tables may not have (`ofp_table_features`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    /// Number of the table.
    pub table: TableId,
    /// Name: at most 31 bytes; empty if the table has none.
    pub name: String,
    /// Maximum number of rules (`max_entries`).
    pub entries_max: u32,
}

/// `ofp_table_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStatistics {
    /// Number of the table.
    pub table: TableId,
    /// Number of rules in the table.
    pub active: u32,
    /// Number of packets that were looked up in the table.
    pub lookups: u64,
    /// Number of packets that hit a rule of the table.
    pub matches: u64,
}
