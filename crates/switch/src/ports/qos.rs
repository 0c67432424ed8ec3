//! The quality of service (QoS) of ports: its checks, and the state that packet threads share.

use std::sync::Arc;

use shunt_datapath::{
    egress::{PortQos, counters::QueueCounts, htb::HtbOptions, scheduler::EgressScheduler},
    packet::egress_policer::EgressPolicer,
};
use shunt_pipeline::{QueueId, Time};

use crate::{
    config::{PortOptions, PortType, QosOptions},
    ports::port::BridgePort,
};

impl PortOptions {
    /// Returns the key and the reason for which the port may not have its QoS.
    pub(crate) fn qos_problem(&self) -> Option<(&'static str, &'static str)> {
        let qos = self.qos.as_ref()?;
        if self.kind == PortType::Patch {
            let problem = "a patch port has no `qos`: set it on the port from which packets leave";
            return Some(("qos", problem));
        }
        qos.check().err().map(|problem| ("qos", problem))
    }
}

/// Returns the state of the QoS that packet threads share.
///
/// `None` if the QoS limits nothing.
fn port_qos(qos: &QosOptions, link_bps: Option<u64>, now: Time) -> Option<PortQos> {
    if let Some(limits) = qos.egress_policing() {
        return Some(PortQos::Policer(Arc::new(EgressPolicer::new(limits, now))));
    }
    qos.htb(link_bps).map(|options| PortQos::Queues(Arc::new(EgressScheduler::new(&options, now))))
}

impl BridgePort {
    /// Creates new QoS state for the packet threads, with counters at zero.
    pub(crate) fn renew_qos(&mut self, now: Time) {
        let qos = self.settings.qos.as_ref();
        self.egress_qos = qos.and_then(|qos| port_qos(qos, self.link_bps, now));
    }

    /// Returns the rates of `linux-htb` in force; `None` for other types.
    pub(crate) fn htb(&self) -> Option<HtbOptions> {
        self.settings.qos.as_ref()?.htb(self.link_bps)
    }

    /// Stores the speed of the link, in bits per second.
    ///
    /// `linux-htb` without `max_rate` uses this speed. While the speed is unknown, as without a
    /// cable, the last known speed stays. Returns whether new QoS state was created.
    pub(crate) fn set_link_speed(&mut self, speed_bps: Option<u64>, now: Time) -> bool {
        let before = self.htb();
        self.link_bps = speed_bps.or(self.link_bps);
        let is_changed = self.htb() != before;
        if is_changed {
            self.renew_qos(now);
        }
        is_changed
    }

    /// Returns the egress queues of the port; `None` if the port has none.
    pub(crate) fn egress_queues(&self) -> Option<&EgressScheduler> {
        match &self.egress_qos {
            Some(PortQos::Queues(queues)) => Some(queues),
            Some(PortQos::Policer(_)) | None => None,
        }
    }

    /// Returns the counters of each egress queue.
    pub(crate) fn queue_counts(&self) -> impl Iterator<Item = (QueueId, QueueCounts)> {
        self.egress_queues().into_iter().flat_map(EgressScheduler::counts)
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::PortNo;

    use super::*;
    use crate::config::QosType;

    #[test]
    fn queues_without_a_rate_follow_the_link() {
        let rate_after = |max_rate, speeds: &[Option<u64>]| {
            let qos = QosOptions { max_rate, ..QosOptions::new(QosType::LinuxHtb) };
            let settings = PortOptions { qos: Some(qos), ..PortOptions::default() };
            let mut port = BridgePort::new(settings, PortNo::new(1), 1, Time::ZERO);
            let renewed =
                speeds.iter().filter(|own| port.set_link_speed(**own, Time::ZERO)).count();
            (port.htb().unwrap().max_rate, renewed)
        };
        assert_eq!(rate_after(0, &[]), (10_000_000_000, 0));
        assert_eq!(rate_after(0, &[None, Some(10_000_000_000)]), (10_000_000_000, 0));
        // Without a cable the last known speed stays.
        assert_eq!(rate_after(0, &[Some(1_000_000_000), None]), (1_000_000_000, 1));
        assert_eq!(rate_after(0, &[Some(1_000_000_000), Some(2_500_000_000)]), (2_500_000_000, 2));
        assert_eq!(rate_after(5_000, &[Some(1_000_000_000)]), (5_000, 0));
    }
}
