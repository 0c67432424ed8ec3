//! Readings of the system for sFlow.
//!
//! Some of them take a while: a host may have thousands of addresses, and a bridge thousands of ports.
//! So they are made on a thread that may wait, and without the lock of the agents.

use std::net::{IpAddr, Ipv6Addr};

use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex};
use shunt_flow_export::sflow::InterfaceStatistics;
use shunt_pipeline::BridgeId;

use super::interfaces::statistics;
use crate::ports::bridges::Bridges;

/// The readings that an agent needs now.
#[derive(Debug, Default)]
pub(super) struct DueReadings {
    /// The configured agent, if its address is due.
    pub(super) agent: Option<String>,
    /// True if the counters of the ports are due.
    pub(super) counters: bool,
}

/// The results of [`DueReadings`].
#[derive(Debug, Default)]
pub(super) struct SflowReadings {
    /// The configured agent, if its address was due.
    pub(super) agent: Option<AgentReading>,
    /// The counters of the ports, if they were due.
    pub(super) statistics: Option<Vec<InterfaceStatistics>>,
}

/// The address of a configured agent.
#[derive(Debug)]
pub(super) struct AgentReading {
    /// The configured agent: an address, a network device, or empty.
    pub(super) agent: String,
    /// Its address, or the reason why it has none. `None` without a configured agent.
    pub(super) address: Option<Result<IpAddr, String>>,
}

impl DueReadings {
    /// Returns whether nothing is due.
    pub(super) const fn is_empty(&self) -> bool {
        self.agent.is_none() && !self.counters
    }

    /// Reads what is due.
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

/// Returns the address of an agent: an address itself, or that of a network device.
///
/// An IPv4 address is preferred.
///
/// # Errors
///
/// The reason why there is none.
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
        Err(_) => format!("agent {agent} is no network device"),
    })
}
