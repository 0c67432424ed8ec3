//! The status of a switch: plain values for programs (as JSON) and for operators (as tables).

pub(crate) mod bfd;
pub(crate) mod bond;
pub(crate) mod bridge;
pub(crate) mod caches;
pub(crate) mod chain;
pub(crate) mod collector_set;
pub(crate) mod evictions;
pub(crate) mod forecasts;
pub(crate) mod ipfix;
pub(crate) mod lacp;
pub(crate) mod mirror;
pub(crate) mod multicast;
pub(crate) mod netflow;
pub(crate) mod port_copies;
pub(crate) mod sflow;
pub(crate) mod table;
pub(crate) mod table_link;
pub(crate) mod thread;
