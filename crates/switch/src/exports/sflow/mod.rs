//! sFlow: samples of packets and counters of ports, sent to collectors.
//!
//! Packet threads put samples into rings. One task takes the samples and encodes them into
//! datagrams.

mod agent;
mod agents;
mod interfaces;
mod readings;

pub(crate) use agents::SflowAgents;
pub(crate) use interfaces::{InterfaceIndices, indices, indices_by_number};
