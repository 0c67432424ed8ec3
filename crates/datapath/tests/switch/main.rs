//! Tests of whole packet threads, run iteration by iteration: sent packets and counters.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a switch that cannot be set up fails the test"
)]
#![expect(clippy::duplicate_mod, reason = "a test runs over each kind of cache")]

mod chain;
mod faulty_port;
mod flood;
mod flows;
mod frames;
mod gigaflow;
mod harness;
mod megaflow;
mod modelled_switch;
mod packet_copies;
mod results;
mod runner;
mod tags;
mod worst_case;
