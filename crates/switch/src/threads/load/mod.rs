//! The load of packet threads, and the receive queues that move between them.
//!
//! [`history`] has the measured loads of the last minute, [`plan`] decides which queues move, and
//! [`balancer`] samples the loads and moves the queues. [`placement`] decides which threads get the
//! queues of new ports.

pub(crate) mod balancer;
pub(crate) mod history;
pub(crate) mod numa;
pub(crate) mod placement;
pub(crate) mod plan;
