//! The bridges of a daemon, and the names by which people know them and their ports.

use std::collections::BTreeMap;

use shunt_classifier::Version;
use shunt_datapath::DATAPATH_PORT_MAX;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathPort, PortInfo, PortKind};

use crate::{
    config::{self, PortType},
    error::SwitchError,
    ports::{exclusive::Exclusive, numbers::Numbers, port::BridgePort},
};

/// A bridge.
pub(crate) struct Bridge {
    /// Its number, which packets carry.
    pub(crate) id: BridgeId,
    /// What was configured, without the ports.
    pub(crate) settings: config::Bridge,
    /// Identity towards controllers.
    pub(crate) datapath_id: u64,
    /// Its ports, the local one too.
    pub(crate) ports: BTreeMap<PortNo, BridgePort>,
}

/// All bridges.
pub(crate) struct Bridges {
    by_name: BTreeMap<String, Bridge>,
    bridge_numbers: Numbers,
    port_numbers: Numbers,
    /// The bridge of a NIC, which has its number before it is there, and after it was.
    reserved: Option<(String, BridgeId)>,
}

impl Default for Bridges {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            bridge_numbers: Numbers::new(BRIDGES_MAX.into()),
            port_numbers: Numbers::new(DATAPATH_PORT_MAX),
            reserved: None,
        }
    }
}

#[cfg(test)]
impl Bridges {
    /// No bridges, and at most this many of each kind.
    pub(crate) const fn limited(max: u32) -> Self {
        Self {
            by_name: BTreeMap::new(),
            bridge_numbers: Numbers::new(max),
            port_numbers: Numbers::new(max),
            reserved: None,
        }
    }
}

/// Bridges that there may be at a time: packets carry their numbers in 16 bits.
const BRIDGES_MAX: u16 = u16::MAX;

impl Bridges {
    /// Adds a bridge without ports.
    pub(crate) fn add(&mut self, settings: config::Bridge) -> Result<&mut Bridge, SwitchError> {
        let name = settings.name.clone();
        if self.by_name.contains_key(&name) {
            return Err(SwitchError::BridgeExists(name));
        }
        let datapath_id = settings.datapath_id()?;
        let reserved = self.reserved_for(&name);
        let id = reserved.map_or_else(|| self.take_bridge_number(), Ok)?;
        let bridge = Bridge { id, settings, datapath_id, ports: BTreeMap::new() };
        Ok(self.by_name.entry(name).or_insert(bridge))
    }

    /// Keeps a number for the bridge of this name, whenever it comes, and as often; and not any more for
    /// the one before. `version` is one that does not know that one, unless it is there.
    pub(crate) fn reserve(
        &mut self,
        name: &str,
        version: Version,
    ) -> Result<BridgeId, SwitchError> {
        let present = self.by_name.get(name).map(|bridge| bridge.id);
        let known = present.or_else(|| self.reserved_for(name));
        let id = known.map_or_else(|| self.take_bridge_number(), Ok)?;
        if let Some((before, number)) = self.reserved.replace((name.to_owned(), id))
            && before != name
            && !self.by_name.contains_key(&before)
        {
            self.bridge_numbers.give_back(number.number().into(), version);
        }
        Ok(id)
    }

    /// Whether the bridge of this name is, or was, that of a NIC.
    pub(crate) fn is_reserved(&self, name: &str) -> bool {
        self.reserved_for(name).is_some()
    }

    fn reserved_for(&self, name: &str) -> Option<BridgeId> {
        self.reserved.as_ref().filter(|(own, _)| own == name).map(|(_, id)| *id)
    }

    fn take_bridge_number(&mut self) -> Result<BridgeId, SwitchError> {
        let number = self.bridge_numbers.take().and_then(|number| u16::try_from(number).ok());
        number.map(BridgeId::new).ok_or(SwitchError::NoNumber { what: "bridge" })
    }

    /// Removes a bridge; `version` is one that does not know it any more.
    pub(crate) fn remove(&mut self, name: &str, version: Version) {
        if let Some(bridge) = self.by_name.remove(name)
            && self.reserved_for(name).is_none()
        {
            self.bridge_numbers.give_back(bridge.id.number().into(), version);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bridge> {
        self.by_name.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Bridge> {
        self.by_name.values_mut()
    }

    pub(crate) fn find(&self, name: &str) -> Result<&Bridge, SwitchError> {
        self.by_name.get(name).ok_or_else(|| self.no_bridge(name))
    }

    pub(crate) fn find_mut(&mut self, name: &str) -> Result<&mut Bridge, SwitchError> {
        let missing = self.no_bridge(name);
        self.by_name.get_mut(name).ok_or(missing)
    }

    pub(crate) fn by_id(&self, id: BridgeId) -> Option<&Bridge> {
        self.iter().find(|bridge| bridge.id == id)
    }

    pub(crate) fn by_id_mut(&mut self, id: BridgeId) -> Option<&mut Bridge> {
        self.by_name.values_mut().find(|bridge| bridge.id == id)
    }

    /// The bridge and the number of a port, by its name.
    pub(crate) fn find_port(&self, name: &str) -> Result<(&Bridge, &BridgePort), SwitchError> {
        let ports =
            || self.iter().flat_map(|bridge| bridge.ports.values().map(move |p| (bridge, p)));
        ports().find(|(_, port)| port.settings.name == name).ok_or_else(|| {
            let known = ports().map(|(_, port)| port.settings.name.as_str());
            SwitchError::NoSuchPort { name: name.to_owned(), known: listed(known) }
        })
    }

    /// Refuses a port that wants what another has for itself.
    pub(crate) fn check_exclusive(&self, settings: &config::Port) -> Result<(), SwitchError> {
        let Some((_, wanted)) = Exclusive::of(settings) else { return Ok(()) };
        for bridge in self.iter() {
            for port in bridge.ports.values() {
                if Exclusive::of(&port.settings).is_some_and(|(_, own)| own == wanted) {
                    return Err(wanted.is_of(&port.settings.name, &bridge.settings.name));
                }
            }
        }
        Ok(())
    }

    /// A number for a port of the datapath.
    pub(crate) fn take_datapath_port(&mut self) -> Result<DatapathPort, SwitchError> {
        let number = self.port_numbers.take().ok_or(SwitchError::NoNumber { what: "port" })?;
        Ok(DatapathPort::new(number))
    }

    /// Gives back the number of a port that threads do not have any more; `version` is one that does
    /// not know it either.
    pub(crate) fn give_datapath_port_back(&mut self, port: DatapathPort, version: Version) {
        self.port_numbers.give_back(port.number(), version);
    }

    /// Whether a number of some kind can be had only after a reclaim, if then.
    pub(crate) fn is_short_of_numbers(&self) -> bool {
        self.bridge_numbers.is_empty() || self.port_numbers.is_empty()
    }

    /// Takes note that what versions before `oldest` saw is reclaimed.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.bridge_numbers.reclaim(oldest);
        self.port_numbers.reclaim(oldest);
    }

    /// What tables know of the ports of every bridge: each bridge with its whole list.
    pub(crate) fn infos(&self) -> Vec<(BridgeId, Vec<PortInfo>)> {
        let of = |bridge: &Bridge| {
            let ports = bridge.ports.values().map(|port| port.info(self.kind(port)));
            (bridge.id, ports.collect())
        };
        self.iter().map(of).collect()
    }

    /// Whether a port is a patch that leads nowhere.
    pub(crate) fn lacks_peer(&self, port: &BridgePort) -> bool {
        port.settings.kind == PortType::Patch && self.kind(port) == PortKind::Unbound
    }

    fn kind(&self, port: &BridgePort) -> PortKind {
        // Tables send to no port that threads may not have.
        if let Some(datapath) = port.datapath.filter(|_| port.open.is_some()) {
            return PortKind::Datapath(datapath);
        }
        if port.settings.kind != PortType::Patch {
            return PortKind::Unbound;
        }
        // A patch leads on only where both ends name each other.
        match self.find_port(&port.settings.peer) {
            Ok((bridge, peer)) if peer.settings.peer == port.settings.name => {
                PortKind::Patch { bridge: bridge.id, port: peer.number }
            }
            _ => PortKind::Unbound,
        }
    }

    fn no_bridge(&self, name: &str) -> SwitchError {
        let known = listed(self.by_name.keys().map(String::as_str));
        SwitchError::NoSuchBridge { name: name.to_owned(), known }
    }
}

/// Names that a message shows; of more it says how many.
const LISTED_MAX: usize = 16;

/// The names that there are, for a message.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.split_at_checked(LISTED_MAX) {
        Some((shown, more @ [_, ..])) => format!("{} and {} more", shown.join(", "), more.len()),
        _ if names.is_empty() => "none".to_owned(),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bridge_of_a_nic_keeps_its_number_and_gives_it_back_when_another_is_that_bridge() {
        let mut bridges = Bridges::limited(2);
        let version = Version::new(7);
        let bridge = |name: &str| config::Bridge { name: name.into(), ..Default::default() };
        let one = bridges.reserve("br1", version).unwrap();
        assert_eq!(bridges.reserve("br1", version).unwrap(), one);
        let two = bridges.add(bridge("br2")).unwrap().id;
        assert_eq!(bridges.add(bridge("br1")).unwrap().id, one);
        bridges.remove("br1", version);
        bridges.reclaim(version);
        assert!(bridges.add(bridge("br3")).is_err(), "the number is kept");
        assert_eq!(bridges.reserve("br2", version).unwrap(), two, "it is there already");
        bridges.reclaim(version);
        assert_eq!(bridges.add(bridge("br3")).unwrap().id, one, "and now it is not");
        bridges.remove("br2", version);
        assert_eq!(bridges.add(bridge("br2")).unwrap().id, two);
        // Of one that is there when it stops to be that bridge, it goes with the bridge.
        bridges.remove("br3", version);
        bridges.reclaim(version);
        assert_eq!(bridges.reserve("br4", version).unwrap(), one);
        bridges.remove("br2", version);
        bridges.reclaim(version);
        assert_eq!(bridges.add(bridge("br5")).unwrap().id, two);
    }

    #[test]
    fn a_long_list_of_names_says_how_many_it_leaves_out() {
        let names: Vec<String> = (1..=20).map(|number| format!("p{number}")).collect();
        let list = |count| listed(names.iter().take(count).map(String::as_str));
        assert_eq!((list(0), list(2)), ("none".to_owned(), "p1, p2".to_owned()));
        assert!(list(16).ends_with("p15, p16"), "{}", list(16));
        assert!(list(20).ends_with("p15, p16 and 4 more"), "{}", list(20));
    }
}
