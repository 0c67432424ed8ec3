//! NetFlow: the flows of bridges with their counts, sent to collectors.
//!
//! Packet threads count flows, and put those that end into rings. One task takes them and encodes them
//! into datagrams. When NetFlow stops, packet threads return their caches, and all flows are reported.

mod exporter;
mod exporters;

pub(crate) use exporters::NetflowExporters;
