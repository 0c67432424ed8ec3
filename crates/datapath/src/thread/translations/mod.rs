//! Translations between bursts, each bounded: packets that missed, evicted entries, and forecasts.

pub(super) mod forecasts;
pub(super) mod repair;
pub(super) mod stall_budget;
pub(super) mod upcall_queue;
pub(super) mod waiting;
