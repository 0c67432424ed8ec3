//! IPFIX: flows of sampled packets, sent to collectors.
//!
//! Packet threads put samples into rings. One task takes the samples, collects them into flows, and
//! encodes the flows into messages.

mod collector_set;
mod collector_sets;
mod exporter;
mod exporters;
mod sample;

pub(crate) use collector_sets::CollectorSets;
pub(crate) use exporters::IpfixExporters;
