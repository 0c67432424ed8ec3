//! Eviction engines: the contract, their state, and the simplest engine.

pub(crate) mod engine_state;
pub(crate) mod evictor;
pub(crate) mod iterative;
