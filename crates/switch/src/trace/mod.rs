//! Explanations: the trace of one packet, and the reasons why a cache entry exists or was evicted.

pub(crate) mod actions;
pub(crate) mod decisions;
pub(crate) mod entry_explanation;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod flow;
pub(crate) mod missing_ports;
pub(crate) mod multicast;
pub(crate) mod packet;
pub(crate) mod partition;
pub(crate) mod preload;
pub(crate) mod report;
pub(crate) mod sub_traversals;
