//! Tests of the agent of an offload device: each rule, and random tables and events.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a switch that cannot be set up fails the test"
)]

mod counts;
mod forecasts;
mod harness;
mod invariants;
mod large_flows;
mod room;
mod rules;
mod runner;
