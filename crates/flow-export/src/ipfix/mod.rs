//! IPFIX, the IP Flow Information Export (RFC 7011), over UDP.
//!
//! A switch collects samples of packets into flows, and reports each flow after a time. A message
//! has *data records*; a *template* describes the form of a record. Templates are sent first and
//! again at intervals, because a collector may start later, and datagrams may be lost.
//!
//! The elements of records come from IANA's registry (RFC 7012). An *options record* has the
//! sampling rate, so a collector can estimate the number of all packets. If flows have different
//! rates, no options record is sent.

mod cache;
mod exporter;
mod flow;
mod template;

pub use cache::{IpfixCache, IpfixLimits};
pub use exporter::IpfixExporter;
pub use flow::{
    FlowDirection, FlowEndReason, FlowTransport, IpfixCounts, IpfixFlow, IpfixFlowKey,
    IpfixNetwork, ObservationPoint,
};
