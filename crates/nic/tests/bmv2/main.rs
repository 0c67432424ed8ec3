//! The bmv2 program, interpreted, against the embedded NIC: one frame and the same entries, one fate.
//!
//! bmv2 is in no package of the system. What its JSON means is said here again, from its
//! specification and as slow as it is short; the NIC shares nothing with it but the P4Runtime messages
//! that both get.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "what is not as it should be fails the test"
)]

mod agreement;
mod entries;
mod expression;
mod fields;
mod frames;
mod parser;
mod switch;
mod tables;
