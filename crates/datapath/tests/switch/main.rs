//! Whole packet threads, driven turn by turn: what goes in, what comes out, and what is counted.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a switch that cannot be set up fails the test"
)]

mod actions;
mod allocation;
mod counts;
mod harness;
mod laws;
mod learn;
mod meters;
mod recirculation;
mod rigged;
mod runner;
mod verify;
mod versions;
mod waiting;
