//! What the experiments share: packets to send, a clock, the share of a CPU that a thread had.

#![expect(clippy::panic, reason = "an experiment that cannot be set up says why and stops")]

pub mod capture;
pub mod cpu;
pub mod tsc;
