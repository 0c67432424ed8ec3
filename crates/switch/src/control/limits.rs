//! Changes of the rate limits and the devices of ports.

use std::sync::Arc;

use shunt_datapath::{Command, packet::ingress_policer::IngressPolicer};
use tracing::info;

use super::structure::Structure;
use crate::{config::PortOptions, error::SwitchError, ports::qos::port_qos};

impl Structure {
    /// Sets the limits of ingress policing of a port to those of `port`.
    ///
    /// Returns when no packet passes by the old limits.
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
        Ok(())
    }

    /// Sets the quality of service of a port to that of `port`.
    ///
    /// Returns when no packet passes by the old limits.
    pub(crate) async fn set_qos(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let (name, qos, now) = (&port.name, port.qos.as_ref(), self.plane.now());
        let change = |own: &PortOptions| PortOptions { qos: qos.cloned(), ..own.clone() };
        let Some((datapath, set)) = self.bridges.change_limits(name, change, |own| {
            own.egress_qos = port_qos(qos, now);
            own.egress_qos.clone()
        })?
        else {
            return Ok(());
        };
        if let Some(port) = datapath {
            self.send_to_all(|| Command::SetQos(port, set.clone())).await;
        }
        match qos {
            None => info!("port {name}: QoS removed"),
            Some(qos) => {
                info!(
                    cir = qos.cir,
                    cbs = qos.cbs,
                    max_rate = qos.max_rate,
                    queues = qos.queues.len(),
                    "port {name}: QoS set to {}",
                    qos.kind.name()
                );
            }
        }
        Ok(())
    }

    /// Sets the MTU and the MAC address of a port to those of `port`.
    pub(crate) async fn set_device(&self, port: &PortOptions) -> Result<(), SwitchError> {
        self.set_mtu(&port.name, port.mtu).await?;
        self.set_mac(&port.name, &port.mac).await
    }

    /// Sets the MAC address of a port.
    pub(crate) async fn set_mac(&self, port: &str, mac: &str) -> Result<(), SwitchError> {
        if self.bridges.set_mac(port, mac).await? {
            info!(mac, "port {port}: MAC address set");
        }
        Ok(())
    }

    /// Sets the MTU of a port.
    pub(crate) async fn set_mtu(&self, port: &str, mtu: u32) -> Result<(), SwitchError> {
        if self.bridges.set_mtu(port, mtu).await? {
            info!(mtu, "port {port}: MTU set");
        }
        Ok(())
    }

    /// Sends a command to all packet threads; returns when they have processed it.
    async fn send_to_all(&self, command: impl Fn() -> Command) {
        for thread in self.plane.living() {
            self.plane.send(thread, command()).await;
        }
        // Threads process commands in order.
        self.plane.ask(|_, reply| Command::Ping(reply)).await;
    }
}
