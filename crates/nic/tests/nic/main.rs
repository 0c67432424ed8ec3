//! The NIC as a whole: rules by gRPC, frames by its ports, misses by packet-ins and representors.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a NIC that does not answer fails the test")]

mod controller;
mod representor;
mod strangers;
mod world;
