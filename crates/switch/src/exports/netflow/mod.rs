//! NetFlow: the flows of bridges with their counts, sent to collectors.
//!
//! Packet threads count flows, and put those that end into rings. One task takes them, encodes them into
//! datagrams and sends these over UDP. No packet thread sends a datagram, and the task never waits to
//! send.

mod exporter;
mod exporters;

pub(crate) use exporters::NetflowExporters;
