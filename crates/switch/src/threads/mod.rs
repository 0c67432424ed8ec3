//! The threads of the data plane, and the publisher of table versions.

pub(crate) mod clock;
pub(crate) mod data_plane;
pub(crate) mod foresight;
pub(crate) mod learner;
pub(crate) mod listener;
pub(crate) mod load;
mod predictor_log;
pub(crate) mod preload_tickets;
pub(crate) mod publisher;
mod rule_siblings;
mod sibling_sets;
pub(crate) mod slot;
pub(crate) mod thread_cpus;
pub(crate) mod worker;
