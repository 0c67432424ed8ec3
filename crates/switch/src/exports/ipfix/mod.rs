//! IPFIX: flows of sampled packets, sent to collectors.
//!
//! Packet threads put samples into rings. One task takes them, collects them into flows, encodes these
//! into messages and sends them over UDP. No packet thread sends a message, and the task never waits to
//! send.

mod exporter;
mod exporters;
mod sample;

pub(crate) use exporters::IpfixExporters;
