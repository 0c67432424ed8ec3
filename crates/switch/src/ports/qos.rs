//! The quality of service of ports: its checks, and its token bucket.

use std::sync::Arc;

use shunt_datapath::packet::egress_policer::EgressPolicer;
use shunt_pipeline::Time;

use crate::{
    Switch,
    config::{PortOptions, PortType, QosOptions},
    error::SwitchError,
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
        let qos = self.qos?;
        if self.kind == PortType::Patch {
            let problem = "a patch port has no `qos`: set it on the port from which packets leave";
            return Some(("qos", problem));
        }
        qos.check().err().map(|problem| ("qos", problem))
    }
}

/// Returns the token bucket of a quality of service, if it has one.
pub(crate) fn egress_policer(qos: Option<QosOptions>, now: Time) -> Option<Arc<EgressPolicer>> {
    let limits = qos?.egress_policing()?;
    Some(Arc::new(EgressPolicer::new(limits, now)))
}
