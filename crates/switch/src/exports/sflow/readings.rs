//! Addresses and port counters that sFlow reads from the kernel.
//!
//! Some of these readings take long: a host may have thousands of addresses, and a bridge thousands
//! of ports. So the readings run on a thread that may block, and without the lock of the agents.

use std::net::{IpAddr, Ipv6Addr};

use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex};
use shunt_flow_export::sflow::InterfaceStatistics;
use shunt_pipeline::BridgeId;

use super::interfaces::statistics;
use crate::ports::bridges::Bridges;

/// The readings that are due for an agent.
#[derive(Debug, Default)]
pub(super) struct DueReadings {
    /// The configured agent, if its IP address must be read.
    pub(super) agent: Option<String>,
    /// True if the counters of the ports must be read.
    pub(super) counters: bool,
}

/// The results of [`DueReadings`].
#[derive(Debug, Default)]
pub(super) struct SflowReadings {
    /// The configured agent with its address, if the address was due.
    pub(super) agent: Option<AgentReading>,
    /// The counters of the ports, if the counters were due.
    pub(super) statistics: Option<Vec<InterfaceStatistics>>,
}

/// A configured agent and its IP address.
#[derive(Debug)]
pub(super) struct AgentReading {
    /// The configured agent: an address, a network device, or empty.
    pub(super) agent: String,
    /// The address of the agent, or the reason why it has none.
    ///
    /// `None` without a configured agent.
    pub(super) address: Option<Result<IpAddr, String>>,
}

impl DueReadings {
    /// Returns whether no reading is due.
    pub(super) const fn is_empty(&self) -> bool {
        self.agent.is_none() && !self.counters
    }

    /// Makes the readings that are due.
    pub(super) fn read(self, bridges: &Bridges, bridge: BridgeId) -> SflowReadings {
        SflowReadings {
            agent: self.agent.map(|agent| AgentReading {
                address: (!agent.is_empty()).then(|| agent_address(&agent)),
                agent,
            }),
            statistics: self.counters.then(|| statistics(bridges, bridge)),
        }
    }
}

/// Returns the IP address of an agent, given as an address or as a network device.
///
/// Of several addresses of a device, an IPv4 address is preferred.
///
/// # Errors
///
/// The reason why the agent has no address.
fn agent_address(agent: &str) -> Result<IpAddr, String> {
    if let Ok(address) = agent.parse() {
        return Ok(address);
    }
    let (mut v4, mut v6) = (None, None);
    let addresses = getifaddrs().map_err(|error| format!("agent {agent}: {error}"))?;
    for own in addresses.filter(|own| own.interface_name == agent) {
        let Some(address) = own.address else { continue };
        v4 = v4.or_else(|| address.as_sockaddr_in().map(|own| IpAddr::from(own.ip())));
        let of_link = |ip: &Ipv6Addr| ip.is_unicast_link_local();
        let ip = address.as_sockaddr_in6().map(|own| own.ip()).filter(|ip| !of_link(ip));
        v6 = v6.or_else(|| ip.map(IpAddr::from));
    }
    v4.or(v6).ok_or_else(|| match if_nametoindex(agent) {
        Ok(_) => format!("agent {agent} has no IP address"),
        Err(_) => format!("agent {agent} is not a network device"),
    })
}
