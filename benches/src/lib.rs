//! The experiments: Shunt beside Open vSwitch, on the same packets and rules, in one run.
//!
//! [`experiment`] is the instrument: it finds experiments by name, runs them, and writes what they
//! measured as JSON, as a table and as a plot. [`switch`] starts the switches that are compared,
//! and [`experiments`] holds the experiments themselves.

#![expect(clippy::panic, reason = "an experiment that cannot be set up says why and stops")]
#![expect(clippy::disallowed_methods, reason = "experiments measure time")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "they report to their user")]

pub mod capture;
pub mod controller;
pub mod cpu;
pub mod experiment;
pub mod experiments;
pub mod switch;
pub mod tsc;
pub mod wire;
