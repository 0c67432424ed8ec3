//! The stages forward packets exactly like the pipeline, with every policy and all cached entries.

#![expect(clippy::expect_used, reason = "a test that cannot begin fails")]

mod bounds;
mod classes;
mod credits;
mod duel;
mod harness;
mod invariants;
mod large;
mod mixed;
mod sharing;
mod tags;
