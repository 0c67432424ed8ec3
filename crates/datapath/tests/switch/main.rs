//! Whole packet threads, driven turn by turn: what goes in, what comes out, and what is counted.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a switch that cannot be set up fails the test"
)]
#![expect(clippy::duplicate_mod, reason = "a test runs over each kind of cache")]

mod chain;
mod frames;
mod gigaflow;
mod harness;
mod megaflow;
mod rigged;
mod runner;
mod tags;
