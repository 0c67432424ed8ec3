//! Changes of BFD sessions.

use shunt_flow::PortNo;
use tracing::info;

use super::structure::Structure;
use crate::{config::PortOptions, error::SwitchError};

impl Structure {
    /// Sets the BFD session of a port to the session in the options `port`.
    pub(crate) fn set_bfd(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let name = &port.name;
        let (bridge, number, changed) = {
            let bridges = self.bridges.lock();
            let (bridge, own) = bridges.find_port(name)?;
            let changed = PortOptions { bfd: port.bfd.clone(), ..own.settings.clone() };
            (bridge.id, own.number, (changed != own.settings).then_some(changed))
        };
        if number == PortNo::LOCAL && port.bfd.is_some() {
            let problem = "a local port has no BFD: set it on the ports to other switches";
            return Err(SwitchError::PortSetting { port: name.clone(), problem });
        }
        let Some(changed) = changed else { return Ok(()) };
        changed.check()?;
        match changed.bfd_session() {
            Some(own) => {
                let (min_tx_ms, min_rx_ms, mult) = (own.min_tx_ms, own.min_rx_ms, own.mult);
                info!(min_tx_ms, min_rx_ms, mult, "port {name}: BFD set");
            }
            None => info!("port {name}: BFD removed"),
        }
        self.bridges.lock().set_port_options(bridge, number, changed);
        self.bridges.publish_ports();
        Ok(())
    }
}
