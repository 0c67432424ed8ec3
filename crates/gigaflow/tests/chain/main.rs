//! The chain and the tables: whatever is cached in whichever pieces, packets fare as `translate` says.

#![expect(clippy::expect_used, reason = "a test that cannot begin fails")]

mod bounds;
mod classes;
mod credits;
mod duel;
mod harness;
mod laws;
mod mixed;
mod sharing;
mod tags;
