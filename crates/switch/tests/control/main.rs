//! Tests of a complete switch in this process, with channels as ports and controllers on real
//! sockets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a switch that cannot be set up fails the test"
)]

mod bfd;
mod bonds;
mod bridge_settings;
mod captures;
#[cfg(feature = "dbsp")]
mod circuits;
mod counts;
mod desired;
mod drops;
mod events;
mod evictions;
mod expiry;
mod fixture;
mod flow_monitors;
mod forecasts;
mod ipfix;
mod load;
mod log;
mod mirrors;
mod multicast;
mod netflow;
mod nic;
mod nic_forwarding;
mod saved_state;
mod sflow;
mod structure;
mod threads;
mod trace;
mod verify;
