//! IPFIX, the IP Flow Information Export (RFC 7011), over UDP.
//!
//! A switch collects samples of packets into flows and reports a flow after a time. A message has
//! *data records*, each in the form that a *template* describes. Templates are sent first and again at
//! intervals, because a collector may start later, and datagrams may be lost.
//!
//! The elements of a record are those of IANA's registry (RFC 7012). An *options record* has the rate of
//! the sampling, so a collector can compute the numbers of all packets. There is none if packets are
//! sampled at several rates.

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
