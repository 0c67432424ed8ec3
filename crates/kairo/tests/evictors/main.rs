//! Tests of the eviction engines: the entries that they evict, and the remaining entries.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod costs;
mod engines;
mod fragments;
#[cfg(feature = "dbsp")]
mod published;
mod side_by_side;
mod truth;
