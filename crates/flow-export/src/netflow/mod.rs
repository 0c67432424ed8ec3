//! NetFlow version 5 (Cisco, "NetFlow Export Datagram Format", 2007).
//!
//! A switch counts the packets of each flow and reports a flow when it ends, and at intervals while it
//! lasts. A flow is the IPv4 packets of one ingress port that agree in addresses, protocol, ports and
//! type of service. A datagram over UDP carries the records of several flows.
//!
//! Datagrams have the number of all records before them, so a collector detects lost records.

mod exporter;
mod record;

pub use exporter::{NetflowClock, NetflowEngine, NetflowExporter};
pub use record::NetflowRecord;
