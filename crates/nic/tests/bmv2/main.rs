//! Compares an interpreter of the bmv2 program with the embedded NIC: for the same entries and the same
//! frame the outcome is the same.
//!
//! No system package contains bmv2. So this test interprets its JSON format, written from the
//! specification, slow and short. The NIC shares no code with it except the P4Runtime messages.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "anything unexpected fails the test"
)]

mod agreement;
mod entries;
mod expression;
mod fields;
mod frames;
mod parser;
mod switch;
mod tables;
