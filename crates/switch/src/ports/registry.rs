//! The registry of bridges and their ports, by name and number; pure state without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shunt_classifier::Version;
use shunt_datapath::DATAPATH_PORT_MAX;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathPort, Time};

use crate::{
    config::{self, BondOptions, PortType},
    error::SwitchError,
    ports::{
        bond_events::BondEvent,
        bonds::BondState,
        bridge_ports::BridgePorts,
        exclusive::ExclusiveResource,
        lacp_actors::{check_lacp_number, lacp_port_ids, other_keys},
        numbers::NumberPool,
        port::BridgePort,
        removed_losses::RemovedPortLosses,
    },
    status::bridge::port_drops,
};

/// A bridge with its ports and bonds.
pub(crate) struct BridgeState {
    /// Number of the bridge, which is part of every flow key.
    pub(crate) id: BridgeId,
    /// Options of the bridge, without the options of its ports.
    pub(crate) settings: config::BridgeOptions,
    /// Datapath id for controllers.
    pub(crate) datapath_id: u64,
    /// Ports, including the local port.
    ///
    /// [`BridgeRegistry::remove_port`] removes a port, so that its name is removed as well.
    pub(crate) ports: BridgePorts,
    /// The number of each port, by name.
    numbers: BTreeMap<String, PortNo>,
    /// States of the bonds, by name.
    pub(crate) bonds: BTreeMap<String, BondState>,
    /// Reason why the bridge has no management socket yet.
    pub(crate) management_problem: Option<String>,
    /// Reasons why listeners of the bridge are not open yet.
    pub(crate) listen_problems: Vec<String>,
}

impl BridgeState {
    /// Returns the names of the ports and bonds.
    pub(crate) fn port_names(&self) -> BTreeSet<&str> {
        let ports = self.ports.values().map(|port| port.settings.name.as_str());
        ports.chain(self.settings.bonds.iter().map(|bond| bond.name.as_str())).collect()
    }

    /// Returns the port with the given name.
    pub(crate) fn port_named(&self, name: &str) -> Option<&BridgePort> {
        self.ports.get(*self.numbers.get(name)?)
    }

    /// Adds a port, and its name.
    fn insert_port(&mut self, port: BridgePort) {
        self.numbers.insert(port.settings.name.clone(), port.number);
        self.ports.insert(port);
    }

    /// Removes a port, and its name.
    fn remove_port(&mut self, number: PortNo) -> Option<BridgePort> {
        let port = self.ports.remove(number)?;
        self.numbers.remove(&port.settings.name);
        Some(port)
    }

    /// Updates the states of the bonds, and returns the changes.
    ///
    /// `last_active` has the active members before a restart.
    fn update_bonds(
        &mut self,
        last_active: &BTreeMap<String, String>,
        now: Time,
    ) -> Vec<(String, BondEvent)> {
        let Self { settings, ports, numbers, bonds, .. } = self;
        bonds.retain(|name, _| settings.bonds.iter().any(|bond| bond.name == *name));
        let address = settings.mac().unwrap_or_default();
        let find = |name: &str| {
            let port = ports.get(*numbers.get(name)?)?;
            port.can_be_member().then_some(port)
        };
        let lacp_port = |name: &str| find(name).map(BridgePort::lacp_member);
        let link = |name: &str| find(name)?.member_with_bfd();
        let mut changed = Vec::new();
        for options in &settings.bonds {
            let taken = other_keys(&settings.bonds, bonds, &options.name);
            let new = || BondState::after_restart(last_active.get(&options.name).cloned());
            let state = bonds.entry(options.name.clone()).or_insert_with(new);
            let rekeyed = state.follow_lacp(options, address, &taken, lacp_port, now);
            let events = rekeyed.into_iter().chain(state.update(options, link, now));
            if state.buckets().is_some() {
                let members = options.members.iter();
                let numbered =
                    members.filter_map(|name| Some((name.as_str(), *numbers.get(name)?)));
                state.number_buckets(options, &numbered.collect());
            }
            changed.extend(events.map(|event| (options.name.clone(), event)));
        }
        changed
    }

    /// Returns the bond that has a port as a member.
    pub(crate) fn bond_of(&self, port: &str) -> Option<&BondOptions> {
        self.settings.bonds.iter().find(|bond| bond.members.iter().any(|name| name == port))
    }
}

/// The access of packet threads to a port.
#[derive(Clone, Copy)]
pub(crate) enum PortBacking {
    /// Packet threads send to the port and receive from it.
    Packets,
    /// Packet threads do not have the port yet.
    None,
}

impl PortBacking {
    /// Returns the access of packet threads to a port of a type.
    pub(crate) const fn of(kind: PortType) -> Self {
        if kind.has_backing() { Self::Packets } else { Self::None }
    }
}

/// The registry of all bridges.
pub(crate) struct BridgeRegistry {
    by_name: BTreeMap<String, BridgeState>,
    bridge_numbers: NumberPool,
    port_numbers: NumberPool,
    /// The number of the NIC's bridge,
    /// kept before the bridge is added and after it is removed.
    reserved: Option<(String, BridgeId)>,
    /// Active members of bonds before a restart, until all ports are added.
    last_active: BTreeMap<String, String>,
    /// Number of changes of ports and their options.
    ports_revision: u64,
    /// The port that has each device, socket or file; its options never change that.
    exclusive: HashMap<ExclusiveResource, (BridgeId, PortNo)>,
    /// The losses of removed ports, which the totals of the switch include.
    removed_losses: RemovedPortLosses,
}

impl Default for BridgeRegistry {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            bridge_numbers: NumberPool::new(BRIDGES_MAX.into()),
            port_numbers: NumberPool::new(DATAPATH_PORT_MAX),
            reserved: None,
            last_active: BTreeMap::new(),
            ports_revision: 0,
            exclusive: HashMap::new(),
            removed_losses: RemovedPortLosses::default(),
        }
    }
}

#[cfg(test)]
impl BridgeRegistry {
    /// Returns an empty registry with at most `max` numbers of each kind.
    pub(crate) fn limited(max: u32) -> Self {
        let [bridge_numbers, port_numbers] = [NumberPool::new(max), NumberPool::new(max)];
        Self { bridge_numbers, port_numbers, ..Self::default() }
    }
}

/// Maximum number of bridges; a bridge number has 16 bits in a flow key.
const BRIDGES_MAX: u16 = u16::MAX;

impl BridgeRegistry {
    /// Adds a bridge without ports.
    pub(crate) fn add(
        &mut self,
        settings: config::BridgeOptions,
    ) -> Result<&mut BridgeState, SwitchError> {
        let name = settings.name.clone();
        if self.by_name.contains_key(&name) {
            return Err(SwitchError::BridgeExists(name));
        }
        let datapath_id = settings.datapath_id()?;
        let reserved = self.reserved_for(&name);
        let id = reserved.map_or_else(|| self.take_bridge_number(), Ok)?;
        let bridge = BridgeState {
            id,
            settings,
            datapath_id,
            ports: BridgePorts::default(),
            numbers: BTreeMap::new(),
            bonds: BTreeMap::new(),
            management_problem: None,
            listen_problems: Vec::new(),
        };
        Ok(self.by_name.entry(name).or_insert(bridge))
    }

    /// Replaces the options of a bridge; its ports stay.
    pub(crate) fn set_options(
        &mut self,
        id: BridgeId,
        settings: config::BridgeOptions,
    ) -> Result<(), SwitchError> {
        let datapath_id = settings.datapath_id()?;
        if let Some(bridge) = self.by_id_mut(id) {
            if bridge.settings.bonds != settings.bonds {
                // Earlier members of bonds may differ from the tables as well.
                bridge.ports.note_all_changed();
            }
            (bridge.settings, bridge.datapath_id) = (settings, datapath_id);
        }
        Ok(())
    }

    /// Reserves a number for a bridge, and releases the previous reservation.
    ///
    /// From `version` on, no thread may use the previous bridge, unless that bridge exists.
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

    /// Returns whether a datapath number is reserved for the bridge `name`.
    pub(crate) fn is_reserved(&self, name: &str) -> bool {
        self.reserved_for(name).is_some()
    }

    /// Returns the bridge id that is reserved for a bridge with this name.
    fn reserved_for(&self, name: &str) -> Option<BridgeId> {
        self.reserved.as_ref().filter(|(own, _)| own == name).map(|(_, id)| *id)
    }

    /// Takes a free number for a new bridge.
    fn take_bridge_number(&mut self) -> Result<BridgeId, SwitchError> {
        let number = self.bridge_numbers.take().and_then(|number| u16::try_from(number).ok());
        number.map(BridgeId::new).ok_or(SwitchError::NoNumber { what: "bridge" })
    }

    /// Removes a bridge; `version` is the first version without the bridge.
    pub(crate) fn remove(&mut self, name: &str, version: Version) {
        let Some(bridge) = self.by_name.remove(name) else { return };
        self.exclusive.retain(|_, (id, _)| *id != bridge.id);
        if self.reserved_for(name).is_none() {
            self.bridge_numbers.give_back(bridge.id.number().into(), version);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &BridgeState> {
        self.by_name.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut BridgeState> {
        self.by_name.values_mut()
    }

    pub(crate) fn find(&self, name: &str) -> Result<&BridgeState, SwitchError> {
        self.by_name.get(name).ok_or_else(|| self.no_bridge(name))
    }

    fn find_mut(&mut self, name: &str) -> Result<&mut BridgeState, SwitchError> {
        let missing = self.no_bridge(name);
        self.by_name.get_mut(name).ok_or(missing)
    }

    pub(crate) fn by_id(&self, id: BridgeId) -> Option<&BridgeState> {
        self.iter().find(|bridge| bridge.id == id)
    }

    pub(crate) fn by_id_mut(&mut self, id: BridgeId) -> Option<&mut BridgeState> {
        self.by_name.values_mut().find(|bridge| bridge.id == id)
    }

    pub(crate) fn port_mut(&mut self, id: BridgeId, number: PortNo) -> Option<&mut BridgePort> {
        self.by_id_mut(id)?.ports.get_mut(number)
    }

    /// Returns the id of the bridge with the given name; `None` selects all bridges.
    pub(crate) fn ids(&self, name: Option<&str>) -> Result<Vec<BridgeId>, SwitchError> {
        match name {
            Some(name) => Ok(vec![self.find(name)?.id]),
            None => Ok(self.iter().map(|bridge| bridge.id).collect()),
        }
    }

    /// Returns the port with the given name, and its bridge, if a bridge has it.
    pub(crate) fn find_named(&self, name: &str) -> Option<(&BridgeState, &BridgePort)> {
        self.iter().find_map(|bridge| Some((bridge, bridge.port_named(name)?)))
    }

    /// Returns the port with the given name, and its bridge.
    pub(crate) fn find_port(&self, name: &str) -> Result<(&BridgeState, &BridgePort), SwitchError> {
        self.find_named(name).ok_or_else(|| {
            let ports = self.iter().flat_map(|bridge| bridge.ports.values());
            let known = ports.map(|port| port.settings.name.as_str());
            SwitchError::NoSuchPort { name: name.to_owned(), known: listed(known) }
        })
    }

    /// Adds a closed port, with a free number if none is given.
    ///
    /// The port has counters for `threads` packet threads.
    pub(crate) fn add_port(
        &mut self,
        bridge: &str,
        settings: config::PortOptions,
        number: Option<PortNo>,
        backing: PortBacking,
        threads: u16,
        now: Time,
    ) -> Result<(BridgeId, PortNo), SwitchError> {
        let ports = &self.find(bridge)?.ports;
        if let Some((other, port)) = self.find_named(&settings.name) {
            let (name, bridge) = (port.settings.name.clone(), other.settings.name.clone());
            return Err(SwitchError::PortExists { name, bridge });
        }
        if self.iter().any(|own| own.settings.bonds.iter().any(|bond| bond.name == settings.name)) {
            let problem = "a bond has this name: choose another name";
            return Err(SwitchError::PortSetting { port: settings.name, problem });
        }
        let bond = self.find(bridge)?.bond_of(&settings.name);
        if let Some(mistake) = bond.and_then(|bond| settings.bond_mistake(bond)) {
            return Err(*mistake.problem);
        }
        let wanted = number.or_else(|| (settings.number > 0).then(|| PortNo::new(settings.number)));
        let bonds = &self.find(bridge)?.settings.bonds;
        let reserved = lacp_port_ids(bonds, &settings.name);
        let number = wanted.unwrap_or_else(|| ports.free_number(&reserved));
        check_lacp_number(bonds, &settings.name, number)?;
        if let Some(other) = ports.get(number) {
            let port = other.settings.name.clone();
            return Err(SwitchError::NumberTaken { number: number.number(), port });
        }
        let exclusive = ExclusiveResource::of(&settings).map(|(_, resource)| resource);
        self.check_unused(exclusive.as_ref())?;
        let mut port = BridgePort::new(settings, number, threads, now);
        port.exclusive.clone_from(&exclusive);
        if number == PortNo::LOCAL {
            port.mac = self.find(bridge)?.settings.mac()?;
            port.configured_mac = Some(port.mac);
        }
        match backing {
            PortBacking::Packets => port.datapath = Some(self.take_datapath_port()?),
            PortBacking::None => port.link_up = true,
        }
        let peer = port.settings.peer.clone();
        let bridge = self.find_mut(bridge)?;
        bridge.insert_port(port);
        let id = bridge.id;
        self.exclusive.extend(exclusive.map(|resource| (resource, (id, number))));
        self.note_peer(&peer);
        self.ports_revision += 1;
        Ok((id, number))
    }

    /// Removes a port from its bridge.
    pub(crate) fn remove_port(&mut self, id: BridgeId, number: PortNo) {
        if let Some(port) = self.by_id_mut(id).and_then(|bridge| bridge.remove_port(number)) {
            if let Some(resource) = &port.exclusive {
                self.exclusive.remove(resource);
            }
            self.removed_losses.add(&port_drops(&port));
            self.note_peer(&port.settings.peer);
        }
        self.ports_revision += 1;
    }

    /// Returns the losses of removed ports.
    pub(crate) const fn removed_losses(&self) -> &RemovedPortLosses {
        &self.removed_losses
    }

    /// Replaces the options of a port; `None` if the port does not exist.
    pub(crate) fn set_port_options(
        &mut self,
        id: BridgeId,
        number: PortNo,
        options: config::PortOptions,
    ) -> Option<&mut BridgePort> {
        self.ports_revision += 1;
        let peer = options.peer.clone();
        let before = std::mem::replace(&mut self.port_mut(id, number)?.settings, options);
        for peer in [&before.peer, &peer] {
            self.note_peer(peer);
        }
        self.port_mut(id, number)
    }

    /// Returns the number of changes of ports and their options so far.
    pub(crate) const fn ports_revision(&self) -> u64 {
        self.ports_revision
    }

    /// Refuses a port that needs an exclusive device or file of another port.
    pub(crate) fn check_exclusive(&self, new: &config::PortOptions) -> Result<(), SwitchError> {
        self.check_unused(ExclusiveResource::of(new).map(|(_, resource)| resource).as_ref())
    }

    /// Refuses a device or file that a port has.
    fn check_unused(&self, wanted: Option<&ExclusiveResource>) -> Result<(), SwitchError> {
        let owner = wanted.and_then(|wanted| {
            let (id, number) = self.exclusive.get(wanted)?;
            let bridge = self.by_id(*id)?;
            Some(wanted.in_use_by(&bridge.ports.get(*number)?.settings.name, &bridge.settings.name))
        });
        owner.map_or(Ok(()), Err)
    }

    /// Takes a number for a datapath port.
    fn take_datapath_port(&mut self) -> Result<DatapathPort, SwitchError> {
        let number = self.port_numbers.take().ok_or(SwitchError::NoNumber { what: "port" })?;
        Ok(DatapathPort::new(number))
    }

    /// Returns the number of a removed datapath port to the pool.
    ///
    /// `version` is the first version without the port.
    pub(crate) fn give_datapath_port_back(&mut self, port: DatapathPort, version: Version) {
        self.port_numbers.give_back(port.number(), version);
    }

    /// Returns whether bridge or port numbers are used up until the next reclaim.
    pub(crate) fn is_short_of_numbers(&self) -> bool {
        self.bridge_numbers.is_empty() || self.port_numbers.is_empty()
    }

    /// Records that all state older than version `oldest` is reclaimed.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.bridge_numbers.reclaim(oldest);
        self.port_numbers.reclaim(oldest);
    }

    /// Updates the states of all bonds, and returns the changes by bridge and bond.
    pub(crate) fn update_bonds(&mut self, now: Time) -> Vec<(BridgeId, String, BondEvent)> {
        let Self { by_name, last_active, .. } = self;
        let of = |bridge: &mut BridgeState| {
            let (id, events) = (bridge.id, bridge.update_bonds(last_active, now));
            events.into_iter().map(move |(bond, event)| (id, bond, event))
        };
        by_name.values_mut().flat_map(of).collect()
    }

    /// Sets the active members before a restart, by bond name.
    ///
    /// A bond that is added later prefers its member, until the next call.
    pub(crate) fn set_last_active(&mut self, members: BTreeMap<String, String>) {
        self.last_active = members;
        let bonds = self.iter_mut().flat_map(|bridge| bridge.bonds.values_mut());
        bonds.for_each(BondState::forget_last_active);
    }

    /// Returns the active member of each bond with an active member, by bond name.
    pub(crate) fn active_members(&self) -> BTreeMap<String, String> {
        let bonds = self.iter().flat_map(|bridge| &bridge.bonds);
        let active =
            |(name, state): (&String, &BondState)| Some((name.clone(), state.active()?.to_owned()));
        bonds.filter_map(active).collect()
    }

    /// Returns the time of the next delayed change of a bond.
    pub(crate) fn next_bond_change(&self) -> Option<Time> {
        self.iter().flat_map(|bridge| bridge.bonds.values()).filter_map(BondState::due).min()
    }

    /// Returns whether a bridge has bonds.
    pub(crate) fn has_bonds(&self, id: BridgeId) -> bool {
        self.by_id(id).is_some_and(|bridge| !bridge.settings.bonds.is_empty())
    }

    /// Returns whether the buckets of any bond are due for rebalancing.
    pub(crate) fn rebalances(&self, now: Time) -> bool {
        let mut bonds = self.iter().flat_map(|bridge| bridge.bonds.values());
        bonds.any(|bond| bond.rebalance_at().is_some_and(|due| due <= now))
    }

    /// Returns the bond that has a port as a member.
    pub(crate) fn bond_of(&self, port: &str) -> Option<&BondOptions> {
        self.find_named(port)?.0.bond_of(port)
    }

    fn no_bridge(&self, name: &str) -> SwitchError {
        let known = listed(self.by_name.keys().map(String::as_str));
        SwitchError::NoSuchBridge { name: name.to_owned(), known }
    }
}

/// Maximum number of names in a message; further names are counted.
const LISTED_MAX: usize = 16;

/// Returns names as text for a message.
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
    fn the_bridge_of_a_nic_keeps_its_number() {
        let mut bridges = BridgeRegistry::limited(2);
        let version = Version::new(7);
        let bridge = |name: &str| config::BridgeOptions { name: name.into(), ..Default::default() };
        let one = bridges.reserve("br1", version).unwrap();
        assert_eq!(bridges.reserve("br1", version).unwrap(), one);
        let two = bridges.add(bridge("br2")).unwrap().id;
        assert_eq!(bridges.add(bridge("br1")).unwrap().id, one);
        bridges.remove("br1", version);
        bridges.reclaim(version);
        assert!(bridges.add(bridge("br3")).is_err(), "the number is kept");
        assert_eq!(bridges.reserve("br2", version).unwrap(), two, "the bridge exists already");
        bridges.reclaim(version);
        assert_eq!(bridges.add(bridge("br3")).unwrap().id, one, "and now it is not");
        bridges.remove("br2", version);
        assert_eq!(bridges.add(bridge("br2")).unwrap().id, two);
        // The bridge still exists here, so its number is released with the bridge.
        bridges.remove("br3", version);
        bridges.reclaim(version);
        assert_eq!(bridges.reserve("br4", version).unwrap(), one);
        bridges.remove("br2", version);
        bridges.reclaim(version);
        assert_eq!(bridges.add(bridge("br5")).unwrap().id, two);
    }

    /// A port is found by its name until it is removed, and then its name is free.
    #[test]
    fn the_names_of_ports_follow_their_ports() {
        let mut bridges = BridgeRegistry::limited(8);
        let options = config::BridgeOptions { name: "br0".into(), ..Default::default() };
        bridges.add(options).unwrap();
        let add = |bridges: &mut BridgeRegistry, name: &str, number: u32| {
            let port = config::PortOptions { name: name.into(), number, ..Default::default() };
            let now = Time::from_nanoseconds(0);
            bridges.add_port("br0", port, None, PortBacking::None, 1, now)
        };
        let (bridge, one) = add(&mut bridges, "p1", 7).unwrap();
        add(&mut bridges, "p2", 0).unwrap();
        let found = |bridges: &BridgeRegistry, name: &str| {
            bridges.find_port(name).ok().map(|(_, port)| port.number.number())
        };
        assert_eq!([found(&bridges, "p1"), found(&bridges, "p2")], [Some(7), Some(1)]);
        assert!(add(&mut bridges, "p1", 0).is_err(), "the name is taken");
        bridges.remove_port(bridge, one);
        assert_eq!([found(&bridges, "p1"), found(&bridges, "p2")], [None, Some(1)]);
        add(&mut bridges, "p1", 0).unwrap();
        assert_eq!(found(&bridges, "p1"), Some(2), "the name is free again");
    }

    /// A device belongs to one port, until that port is removed.
    #[test]
    fn a_device_belongs_to_one_port() {
        let mut bridges = BridgeRegistry::limited(8);
        let options = config::BridgeOptions { name: "br0".into(), ..Default::default() };
        bridges.add(options).unwrap();
        let add = |bridges: &mut BridgeRegistry, name: &str| {
            let (name, device, kind) = (name.to_owned(), "eth9".to_owned(), PortType::AfPacket);
            let port = config::PortOptions { name, device, kind, ..Default::default() };
            bridges.add_port("br0", port, None, PortBacking::Packets, 1, Time::ZERO)
        };
        let (bridge, one) = add(&mut bridges, "p1").unwrap();
        let error = add(&mut bridges, "p2").unwrap_err().to_string();
        assert!(error.contains("eth9") && error.contains("p1"), "{error}");
        let changed = config::PortOptions {
            mtu: 9000,
            ..bridges.find_port("p1").unwrap().1.settings.clone()
        };
        bridges.set_port_options(bridge, one, changed);
        assert!(add(&mut bridges, "p2").is_err(), "other options change no device");
        bridges.remove_port(bridge, one);
        add(&mut bridges, "p2").unwrap();
    }

    #[test]
    fn a_long_list_of_names_counts_the_rest() {
        let names: Vec<String> = (1..=20).map(|number| format!("p{number}")).collect();
        let list = |count| listed(names.iter().take(count).map(String::as_str));
        assert_eq!((list(0), list(2)), ("none".to_owned(), "p1, p2".to_owned()));
        assert!(list(16).ends_with("p15, p16"), "{}", list(16));
        assert!(list(20).ends_with("p15, p16 and 4 more"), "{}", list(20));
    }
}
