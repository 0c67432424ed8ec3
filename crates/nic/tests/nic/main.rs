//! Tests the whole NIC: rules over gRPC, frames through its ports, packet-ins and representors.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a NIC that does not answer fails the test")]

mod controller;
mod fixture;
mod order;
mod representor;
mod second_controller;
