//! The quality of service of a port, as commands pass it to packet threads.

use std::sync::Arc;

use super::scheduler::EgressScheduler;
use crate::packet::egress_policer::EgressPolicer;

/// The state of a port's quality of service that all packet threads share.
#[derive(Clone, Debug)]
pub enum PortQos {
    /// Packets above a rate are dropped.
    Policer(Arc<EgressPolicer>),
    /// Packets above a rate wait in queues.
    Queues(Arc<EgressScheduler>),
}
