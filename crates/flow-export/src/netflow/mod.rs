//! NetFlow version 5 (Cisco, "NetFlow Export Datagram Format", 2007).
//!
//! A switch counts the packets of each flow. The switch reports a flow when the flow ends, and at
//! intervals before. A flow is the IPv4 packets of one ingress port that agree in addresses,
//! protocol, ports and type of service. A UDP datagram contains the records of several flows.
//!
//! Each datagram contains the number of all earlier records, so a collector detects lost records.

mod exporter;
mod record;

pub use exporter::{NetflowClock, NetflowEngine, NetflowExporter};
pub use record::NetflowRecord;
