//! The load of packet threads, and the receive queues that move between them.
//!
//! [`history`] has the measured loads of the last minute, [`plan`] decides which queues move, and
//! [`balancer`] samples the loads and moves the queues.

pub(crate) mod balancer;
pub(crate) mod history;
pub(crate) mod plan;
