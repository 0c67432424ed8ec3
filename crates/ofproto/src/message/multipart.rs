//! Questions about the state of the switch, and answers in parts (OpenFlow 1.3.5, 7.3.5).

use shunt_flow::PortNo;
use shunt_pipeline::{GroupId, MeterId, RuleFilter, TableId};

use super::{
    FlowStatistics, GroupDescription, GroupFeatures, GroupStatistics, MeterDescription,
    MeterFeatures, MeterStatistics, PortDescription, PortStatistics, QueueFilter,
};

/// `ofp_multipart_request`, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequest {
    /// `OFPMP_DESC`.
    Description,
    /// `OFPMP_FLOW`.
    Flow(RuleFilter),
    /// `OFPMP_AGGREGATE`.
    Aggregate(RuleFilter),
    /// `OFPMP_TABLE`.
    Table,
    /// `OFPMP_PORT_STATS`: of one port, or of all ([`PortNo::ANY`]).
    Port(PortNo),
    /// `OFPMP_QUEUE`.
    Queue(QueueFilter),
    /// `OFPMP_GROUP`: of one group, or of all (`None`).
    Group(Option<GroupId>),
    /// `OFPMP_GROUP_DESC`.
    GroupDescription,
    /// `OFPMP_GROUP_FEATURES`.
    GroupFeatures,
    /// `OFPMP_METER`: of one meter, or of all (`None`).
    Meter(Option<MeterId>),
    /// `OFPMP_METER_CONFIG`: of one meter, or of all (`None`).
    MeterConfig(Option<MeterId>),
    /// `OFPMP_METER_FEATURES`.
    MeterFeatures,
    /// `OFPMP_TABLE_FEATURES`, as a question.
    TableFeatures,
    /// `OFPMP_PORT_DESC`.
    PortDescription,
}

/// One part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartReply {
    /// `OFPMP_DESC`.
    Description(SwitchDescription),
    /// `OFPMP_FLOW`.
    Flow(Vec<FlowStatistics>),
    /// `OFPMP_AGGREGATE`.
    Aggregate(AggregateStatistics),
    /// `OFPMP_TABLE`.
    Table(Vec<TableStatistics>),
    /// `OFPMP_PORT_STATS`.
    Port(Vec<PortStatistics>),
    /// `OFPMP_QUEUE`: there are no queues.
    Queue,
    /// `OFPMP_GROUP`.
    Group(Vec<GroupStatistics>),
    /// `OFPMP_GROUP_DESC`.
    GroupDescription(Vec<GroupDescription>),
    /// `OFPMP_GROUP_FEATURES`.
    GroupFeatures(GroupFeatures),
    /// `OFPMP_METER`.
    Meter(Vec<MeterStatistics>),
    /// `OFPMP_METER_CONFIG`.
    MeterConfig(Vec<MeterDescription>),
    /// `OFPMP_METER_FEATURES`.
    MeterFeatures(MeterFeatures),
    /// `OFPMP_TABLE_FEATURES` of these tables; what tables can do is the same for all.
    TableFeatures(Vec<TableId>),
    /// `OFPMP_PORT_DESC`.
    PortDescription(Vec<PortDescription>),
}

/// `ofp_desc`: who made the switch. Longer strings are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchDescription {
    /// Who made it: at most 255 bytes.
    pub manufacturer: String,
    /// What it runs on: at most 255 bytes.
    pub hardware: String,
    /// What it is: at most 255 bytes.
    pub software: String,
    /// Serial number: at most 31 bytes.
    pub serial: String,
    /// This bridge, for people: at most 255 bytes.
    pub datapath: String,
}

/// `ofp_aggregate_stats_reply`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateStatistics {
    /// Packets that matched the rules.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of rules.
    pub flows: u32,
}

/// `ofp_table_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStatistics {
    /// Which table.
    pub table: TableId,
    /// Rules in it.
    pub active: u32,
    /// Packets that were looked up in it.
    pub lookups: u64,
    /// Packets that matched a rule of it.
    pub matches: u64,
}
