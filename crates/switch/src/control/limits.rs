//! Changes of the rate limits and the devices of ports.

use std::sync::Arc;

use shunt_datapath::{Command, packet::ingress_policer::IngressPolicer};
use tracing::{info, warn};

use super::structure::Structure;
use crate::{
    config::{PortOptions, QosOptions, QosType},
    error::SwitchError,
};

impl Structure {
    /// Sets the ingress policing of a port to the limits in the options `port`.
    ///
    /// Returns when the old limits apply to no packet.
    pub(crate) async fn set_ingress_policing(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let (name, limits, now) = (&port.name, port.ingress_policing(), self.plane.now());
        let change = |own: &PortOptions| own.with_ingress_policing_of(port);
        let Some((datapath, policer)) = self.bridges.change_limits(name, change, |own| {
            own.policer = IngressPolicer::new(limits, now).map(Arc::new);
            own.policer.clone()
        })?
        else {
            return Ok(());
        };
        if let Some(port) = datapath {
            self.send_to_all(|| Command::PoliceIngress(port, policer.clone())).await;
        }
        info!(
            kbps = limits.kbps,
            burst_kb = limits.burst_kb,
            kpkts_rate = limits.kpkts_rate,
            kpkts_burst = limits.kpkts_burst,
            "port {name}: ingress policing set"
        );
        if policer.is_some() {
            self.warn_of_nic(name);
        }
        Ok(())
    }

    /// Sets the QoS of a port to the QoS in the options `port`.
    ///
    /// Returns when the old limits apply to no packet.
    pub(crate) async fn set_qos(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let (name, qos, now) = (&port.name, port.qos.as_ref(), self.plane.now());
        let change = |own: &PortOptions| PortOptions { qos: qos.cloned(), ..own.clone() };
        let Some((datapath, (set, max_rate))) =
            self.bridges.change_limits(name, change, |own| {
                own.renew_qos(now);
                (own.egress_qos.clone(), own.htb().map(|htb| htb.max_rate))
            })?
        else {
            return Ok(());
        };
        if let Some(port) = datapath {
            self.send_to_all(|| Command::SetQos(port, set.clone())).await;
        }
        log_qos(name, qos, max_rate);
        if set.is_some() {
            self.warn_of_nic(name);
        }
        Ok(())
    }

    /// Sets each `linux-htb` rate without `max_rate` to the current speed of its link.
    ///
    /// Returns when the old rates apply to no packet.
    pub(crate) async fn follow_link_speeds(&self) {
        let now = self.plane.now();
        let mut changed = Vec::new();
        for port in self.bridges.lock().iter_mut().flat_map(|bridge| bridge.ports.values_mut()) {
            if port.set_link_speed(port.link_mode.speed_bps, now) {
                let (name, max_rate) = (&port.settings.name, port.htb().map(|htb| htb.max_rate));
                info!(max_rate, "port {name}: QoS linux-htb follows the speed of the link");
                changed.extend(port.datapath.map(|datapath| (datapath, port.egress_qos.clone())));
            }
        }
        for (port, set) in changed {
            self.send_to_all(|| Command::SetQos(port, set.clone())).await;
        }
    }

    /// Warns that the NIC limits no packets that it forwards itself.
    fn warn_of_nic(&self, name: &str) {
        let Some(nic) = self.nic.front().filter(|nic| nic.has_nic()) else { return };
        let of_nic =
            self.bridges.lock().find_port(name).map(|(bridge, port)| (bridge.id, port.number));
        if of_nic.is_ok_and(|(bridge, number)| nic.is_nic_port(bridge, number)) {
            warn!("port {name}: packets that the NIC forwards by itself are not limited");
        }
    }

    /// Sets the MAC address of the device of a port.
    pub(crate) async fn set_mac(&self, port: &str, mac: &str) -> Result<(), SwitchError> {
        if self.bridges.set_mac(port, mac).await? {
            info!(mac, "port {port}: MAC address set");
        }
        Ok(())
    }

    /// Sets the MTU of the device of a port.
    pub(crate) async fn set_mtu(&self, port: &str, mtu: u32) -> Result<(), SwitchError> {
        if self.bridges.set_mtu(port, mtu).await? {
            match mtu {
                0 => info!("port {port}: MTU left to the device"),
                mtu => info!(mtu, "port {port}: MTU set"),
            }
        }
        Ok(())
    }

    /// Sends a command to all packet threads; returns when they have processed it.
    async fn send_to_all(&self, command: impl Fn() -> Command) {
        for thread in self.plane.living() {
            self.plane.send(thread, command()).await;
        }
        // Threads process commands in order, so the reply to a ping follows the command.
        self.plane.ask(|_, reply| Command::Ping(reply)).await;
    }
}

/// Logs the QoS of a port with the fields of its type.
///
/// `max_rate` is the rate of `linux-htb` in force.
fn log_qos(port: &str, qos: Option<&QosOptions>, max_rate: Option<u64>) {
    match qos.map(|qos| (qos.kind, qos)) {
        None => info!("port {port}: QoS removed"),
        Some((QosType::EgressPolicer, qos)) => {
            info!(cir = qos.cir, cbs = qos.cbs, "port {port}: QoS set to egress-policer");
        }
        Some((QosType::LinuxHtb, qos)) => {
            info!(max_rate, queues = qos.queues.len(), "port {port}: QoS set to linux-htb");
        }
        Some((QosType::LinuxNoop, _)) => info!("port {port}: QoS set to linux-noop"),
    }
}
