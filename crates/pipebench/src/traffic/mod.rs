//! Traffic: flows, their sizes, and the order and times of their packets.

mod coflow;
mod coflow_pairs;
mod coflow_trace;
mod collective;
mod flow;
mod frame;
mod gaps;
mod locality;
mod published;
mod schedule;
mod sizes;
mod updates;

pub use coflow::{coflow_rules, coflows, place_coflows};
pub use coflow_trace::{CoflowTrace, RecordedCoflow};
pub use collective::{CollectivePattern, collective_flows, collective_rules};
pub use flow::{CoflowRole, Flow};
pub use frame::{CHECK_SEQUENCE, FRAME_MAX, FRAME_MIN, write_frame};
pub use gaps::{GapSampler, Gaps};
pub use locality::{FieldGroup, FlowClass, FlowSource, Locality, Span, Tuple};
pub use published::{
    Coflows, FlowBytes, FlowLengths, LengthShare, LogNormalPart, PacketBytes, Published,
    ReplayStatistics, TracePair, TraceStatistics, UniformPart, UpdateKinds, UpdateSize, published,
};
pub use schedule::{Appearance, Schedule, ScheduledPacket, TICKS, TrafficLength};
pub use sizes::{
    BoundedPareto, FlowSizes, LengthSampler, PACKET_MAX, PACKET_MIN, PacketSizes, scale_to_packets,
};
pub use updates::{BATCHES_MAX, ScheduledBatch, UpdateKind, UpdateOperation, UpdatePlan};
