//! Foresight experiments: cache entries for flows that are about to arrive.

pub(crate) mod coflows;
mod lab;
pub(crate) mod predictors;
mod traffic;
