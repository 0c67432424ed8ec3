//! sFlow: samples of packets and counters of ports, sent to collectors.
//!
//! Packet threads put samples into rings. One task takes them, encodes them into datagrams and sends
//! these over UDP. No packet thread sends a datagram, and the task never waits to send.

mod agent;
mod agents;
mod interfaces;
mod readings;

pub(crate) use agents::SflowAgents;
pub(crate) use interfaces::{InterfaceIndices, indices};
