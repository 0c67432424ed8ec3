//! Foresight experiments: cache entries for flows that are about to arrive.

pub(crate) mod coflows;
pub(crate) mod gigaflow;
pub(crate) mod offline;
pub(crate) mod predictors;
pub(crate) mod run_time;
mod traffic;
mod wired_switch;
