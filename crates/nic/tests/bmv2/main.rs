//! Compares an interpreter of the bmv2 program with the embedded NIC: the same entries and the same
//! frame have the same outcome.
//!
//! No system package contains bmv2. So this test has a slow and short interpreter of its JSON
//! format, written from the specification. The NIC shares no code with the interpreter except the
//! P4Runtime messages.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "the test fails on any unexpected message"
)]

mod agreement;
mod entries;
mod expression;
mod fields;
mod frames;
mod parser;
mod switch;
mod tables;
