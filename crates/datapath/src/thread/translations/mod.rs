//! Translations between bursts, with limits, for packets that missed, stale entries, and forecasts.

pub(super) mod forecasts;
pub(super) mod repair;
pub(super) mod stall_budget;
pub(super) mod upcall_queue;
pub(super) mod waiting;
