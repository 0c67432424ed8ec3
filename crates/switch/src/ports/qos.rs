//! The quality of service of ports: its checks, and what packet threads share of it.

use std::sync::Arc;

use shunt_datapath::{
    egress::{PortQos, counters::QueueCounts, scheduler::EgressScheduler},
    packet::egress_policer::EgressPolicer,
};
use shunt_pipeline::{QueueId, Time};

use crate::{
    Switch,
    config::{PortOptions, PortType, QosOptions},
    error::SwitchError,
    ports::port::BridgePort,
};

impl Switch {
    /// Sets the quality of service of a port to that of `port`.
    ///
    /// All other settings of the port stay. Returns when no packet passes by the old limit. A limit
    /// that changes starts with a full burst.
    ///
    /// # Errors
    ///
    /// If the port does not exist, is a patch port or a local port, or a value is not valid.
    pub async fn set_qos(&self, port: &PortOptions) -> Result<(), SwitchError> {
        self.control.structure().await.set_qos(port).await
    }
}

impl PortOptions {
    /// Returns why the port may not have its quality of service.
    pub(crate) fn qos_problem(&self) -> Option<(&'static str, &'static str)> {
        let qos = self.qos.as_ref()?;
        if self.kind == PortType::Patch {
            let problem = "a patch port has no `qos`: set it on the port from which packets leave";
            return Some(("qos", problem));
        }
        qos.check().err().map(|problem| ("qos", problem))
    }
}

/// Returns what packet threads share of a quality of service.
///
/// `None` if it limits nothing.
pub(crate) fn port_qos(qos: Option<&QosOptions>, now: Time) -> Option<PortQos> {
    let qos = qos?;
    if let Some(limits) = qos.egress_policing() {
        return Some(PortQos::Policer(Arc::new(EgressPolicer::new(limits, now))));
    }
    qos.htb().map(|options| PortQos::Queues(Arc::new(EgressScheduler::new(&options, now))))
}

impl BridgePort {
    /// Returns the egress queues of the port; `None` if it has none.
    pub(crate) fn egress_queues(&self) -> Option<&EgressScheduler> {
        match &self.egress_qos {
            Some(PortQos::Queues(queues)) => Some(queues),
            Some(PortQos::Policer(_)) | None => None,
        }
    }

    /// Returns the counts of each egress queue.
    pub(crate) fn queue_counts(&self) -> impl Iterator<Item = (QueueId, QueueCounts)> {
        self.egress_queues().into_iter().flat_map(EgressScheduler::counts)
    }
}
