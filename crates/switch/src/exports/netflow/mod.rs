//! NetFlow: the flows of bridges with their counts, sent to collectors.
//!
//! Packet threads count flows, and put ended flows into rings. One task takes the flows and encodes
//! them into datagrams. When NetFlow stops, packet threads return their flow caches, and all flows
//! are reported.

mod exporter;
mod exporters;

pub(crate) use exporters::NetflowExporters;
