//! Exports to collectors: samples, counters and flows of bridges.
//!
//! Packet threads put samples and flows into rings. A task for each protocol takes them, encodes them
//! into datagrams and sends these over UDP. No packet thread sends a datagram, and no task waits to send.

mod collectors;
mod exporters;
mod ipfix;
mod netflow;
mod samplers;
mod sflow;
mod task;

pub(crate) use exporters::Exporters;
