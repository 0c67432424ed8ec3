//! Experiments that compare Shunt with Open vSwitch, on the same packets and rules, in one run.
//!
//! [`experiment`] is the framework: it finds experiments by name, runs experiments, and writes the
//! results as JSON, as a table and as a plot. [`switch`] starts the compared switches, and
//! [`experiments`] contains the experiments.

#![expect(clippy::panic, reason = "an experiment that cannot be set up panics with the reason")]
#![expect(clippy::disallowed_methods, reason = "experiments measure time")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "experiments print their results")]

pub mod capture;
pub mod controller;
pub mod cpu;
pub mod experiment;
pub mod experiments;
pub mod switch;
pub mod tsc;
pub mod wire;
