//! Bridges and their ports: names, numbers, VLANs, exclusive devices, and captures at ports.

pub(crate) mod bridges;
pub(crate) mod capture;
pub(crate) mod exclusive;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod port;
pub(crate) mod vlans;
