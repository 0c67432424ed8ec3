//! The ports of the bridges: what is configured, what is open, what tables know of it.

use std::{collections::BTreeMap, sync::Arc};

use shunt_datapath::{
    metrics::PortTraffic,
    port::{Port, PortSpec, Repeat},
};
use shunt_flow::PortNo;
use shunt_pipeline::{DatapathPort, PortConfig, PortInfo, PortKind, Time};

use crate::config::{self, PortType};

/// A port of a bridge.
pub(crate) struct BridgePort {
    /// What was configured.
    pub(crate) settings: config::Port,
    /// Its number in its bridge.
    pub(crate) number: PortNo,
    /// Its number in the datapath, if packets go in and out of it.
    pub(crate) datapath: Option<DatapathPort>,
    /// The port itself, while it is open.
    pub(crate) open: Option<Box<dyn Port>>,
    /// Why it is not open.
    pub(crate) trouble: Option<String>,
    /// The packet threads that receive from it while it is open.
    pub(crate) receivers: Vec<usize>,
    /// What each packet thread counts of it; it outlives the port's being open.
    pub(crate) traffic: Vec<Arc<PortTraffic>>,
    /// Settings of controllers.
    pub(crate) config: PortConfig,
    /// Hardware address.
    pub(crate) mac: [u8; 6],
    /// Whether the link was up when it was last looked at.
    pub(crate) link_up: bool,
    /// When it was added.
    pub(crate) added: Time,
}

impl BridgePort {
    pub(crate) fn new(settings: config::Port, number: PortNo, threads: u16, added: Time) -> Self {
        let traffic = (0..threads).map(|_| Arc::new(PortTraffic::default())).collect();
        Self {
            settings,
            number,
            datapath: None,
            open: None,
            trouble: None,
            receivers: Vec::new(),
            traffic,
            config: PortConfig::default(),
            mac: [0; 6],
            link_up: false,
            added,
        }
    }

    /// What is behind the port; `None` for a port that the switch does not open itself.
    pub(crate) fn spec(&self) -> Option<PortSpec> {
        let settings = &self.settings;
        let path =
            |path: &std::path::PathBuf| Some(path.clone()).filter(|p| !p.as_os_str().is_empty());
        Some(match settings.kind {
            PortType::Null => PortSpec::Null,
            PortType::Pcap => PortSpec::Pcap {
                rx: path(&settings.rx),
                tx: path(&settings.tx),
                repeat: match settings.repeat {
                    config::Repeat::Once => Repeat::Once,
                    config::Repeat::Endless => Repeat::Endless,
                },
            },
            PortType::AfPacket => PortSpec::AfPacket { device: settings.device().to_owned() },
            PortType::Tap => PortSpec::Tap { device: settings.device().to_owned() },
            PortType::Patch | PortType::Unbound => return None,
        })
    }

    /// Whether the system hands what one queue received to the others when it is closed.
    pub(crate) const fn spreads(&self) -> bool {
        matches!(self.settings.kind, PortType::AfPacket | PortType::Tap)
    }

    /// Whether it is opened again by itself. A capture file is not: replayed and written anew, it
    /// would not be what it was.
    pub(crate) const fn comes_back(&self) -> bool {
        matches!(self.settings.kind, PortType::AfPacket | PortType::Tap | PortType::Null)
    }

    /// Whether a packet thread has found the receive queue broken since the port was opened.
    pub(crate) fn is_broken(&self) -> bool {
        self.open.is_some() && self.traffic.iter().any(|traffic| traffic.rx_broken.get() > 0)
    }

    /// What tables know of it.
    pub(crate) fn info(&self, kind: PortKind) -> PortInfo {
        PortInfo {
            number: self.number,
            name: self.settings.name.clone(),
            kind,
            config: self.config,
            link_up: self.link_up,
            mac: self.mac,
            vlans: self.settings.vlans(),
        }
    }
}

/// The lowest number that no port of a bridge has.
pub(crate) fn free_number(ports: &BTreeMap<PortNo, BridgePort>) -> PortNo {
    let mut numbers = (1..=PortNo::MAX.number()).map(PortNo::new);
    numbers.find(|number| !ports.contains_key(number)).unwrap_or(PortNo::MAX)
}
