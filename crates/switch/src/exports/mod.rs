//! Exports to collectors: samples, counters and flows of bridges.
//!
//! Packet threads put samples and flows into rings. A task for each protocol takes samples and
//! flows from the rings and encodes them into datagrams. A task for each collector sends the
//! datagrams over UDP, as fast as the socket accepts them. No packet thread sends a datagram. When
//! datagrams wait for a slow collector, flows wait in their caches.
//!
//! Every lost sample, flow and datagram is counted. The log and the `problem` of the status have
//! the reason.

mod collector;
mod collectors;
mod endings;
mod exporters;
mod ipfix;
mod losses;
mod netflow;
mod samplers;
mod sender;
mod sflow;
mod task;
#[cfg(test)]
mod tests;
mod totals;

pub(crate) use exporters::Exporters;
