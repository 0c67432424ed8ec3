//! The ports of bridges in the form that the tables use, if they may differ.
//!
//! A bridge may have thousands of ports, and most changes concern one of them. So a port is compared
//! with the tables only if it was changed, has a BFD session, or is a member of a bond. The state of
//! a patch port depends on its peer, so a change of one end also concerns the other end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_flow::PortNo;
use shunt_pipeline::{BondMember, BridgeId, LacpAdmission, PortInfo, PortKind, PortVlans};

use super::{
    bonds::BondState,
    port::BridgePort,
    registry::{BridgeRegistry, BridgeState},
};

/// The ports of bridges as the tables have them, each list by number.
pub(crate) type PublishedPorts = BTreeMap<BridgeId, Arc<[Arc<PortInfo>]>>;

/// New states of ports; `None` for a port that does not exist any more.
pub(crate) type ChangedInfos = BTreeMap<PortNo, Option<PortInfo>>;

/// Returns the port with a number in a list of ports by number.
pub(crate) fn find_info(ports: &[Arc<PortInfo>], number: PortNo) -> Option<&PortInfo> {
    let index = ports.binary_search_by_key(&number, |port| port.number).ok()?;
    ports.get(index).map(|port| &**port)
}

impl BridgeRegistry {
    /// Takes the ports that differ from the tables, by bridge.
    ///
    /// `published` has the bridges that the tables have; the ports of other bridges stay. The caller
    /// publishes the result, or calls [`Self::note_all_changed`].
    pub(crate) fn take_unpublished(
        &mut self,
        published: &PublishedPorts,
    ) -> Vec<(BridgeId, ChangedInfos)> {
        let known = self.iter_mut().filter(|bridge| published.contains_key(&bridge.id));
        let numbers: Vec<_> = known.map(|bridge| (bridge.id, bridge.take_unpublished())).collect();
        let mut unpublished = Vec::new();
        let by_id = self.iter().filter_map(|bridge| Some((bridge, published.get(&bridge.id)?)));
        for ((bridge, ports), (id, numbers)) in by_id.zip(numbers) {
            let infos = |numbers: &BTreeSet<PortNo>| {
                let mut infos = bridge.infos(numbers, |port| self.kind(port));
                infos.retain(|number, info| info.as_ref() != find_info(ports, *number));
                infos
            };
            let changed = infos(&numbers);
            debug_assert!(
                infos(&bridge.ports.keys().copied().collect())
                    .keys()
                    .all(|number| changed.contains_key(number)),
                "a port of bridge {} was changed without a note",
                id.number()
            );
            if !changed.is_empty() {
                unpublished.push((id, changed));
            }
        }
        unpublished
    }

    /// Notes that each port of a bridge may differ from the tables.
    pub(crate) fn note_all_changed(&mut self, id: BridgeId) {
        if let Some(bridge) = self.by_id_mut(id) {
            bridge.ports.note_all_changed();
        }
    }

    /// Notes that the port with the given name may differ from the tables.
    ///
    /// A patch port forwards only if its peer names it.
    pub(super) fn note_peer(&mut self, name: &str) {
        let found = self.find_named(name).map(|(bridge, port)| (bridge.id, port.number));
        if let Some((id, number)) = found
            && let Some(bridge) = self.by_id_mut(id)
        {
            bridge.ports.note_changed(number);
        }
    }
}

impl BridgeState {
    /// Takes the numbers of the ports that may differ from the tables.
    ///
    /// A member of a bond may always differ, because links and LACP change the whole bond.
    fn take_unpublished(&mut self) -> BTreeSet<PortNo> {
        let mut numbers = self.ports.take_changed();
        let members = self.settings.bonds.iter().flat_map(|bond| &bond.members);
        numbers.extend(members.filter_map(|name| Some(self.port_named(name)?.number)));
        numbers
    }

    /// Returns ports in the form that the tables use.
    fn infos(
        &self,
        numbers: &BTreeSet<PortNo>,
        kind: impl Fn(&BridgePort) -> PortKind,
    ) -> ChangedInfos {
        let members = self.members();
        let info = |port: &BridgePort| {
            let info = port.info(kind(port));
            match members.get(info.name.as_str()) {
                Some((member, vlans)) => {
                    PortInfo { vlans: vlans.clone(), bond: Some(member.clone()), ..info }
                }
                None => info,
            }
        };
        numbers.iter().map(|number| (*number, self.ports.get(*number).map(&info))).collect()
    }

    /// Returns bond membership and VLANs of each member, by port name.
    fn members(&self) -> BTreeMap<&str, (BondMember, PortVlans)> {
        let mut members = BTreeMap::new();
        for bond in &self.settings.bonds {
            let (name, vlans) = (Arc::<str>::from(bond.name.as_str()), bond.as_port().vlans());
            let state = self.bonds.get(&bond.name);
            let active = state.and_then(BondState::active);
            let balance = state.and_then(BondState::balance);
            for member in &bond.members {
                let (bond, is_active) = (Arc::clone(&name), active == Some(member.as_str()));
                let lacp = state.map_or(LacpAdmission::Off, |own| own.lacp_admission(member));
                let own = BondMember { bond, is_active, balance: balance.clone(), lacp };
                members.insert(member.as_str(), (own, vlans.clone()));
            }
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use shunt_pipeline::Time;

    use super::*;
    use crate::{
        config::{BondOptions, BridgeOptions, PortOptions, PortType},
        ports::registry::PortBacking,
    };

    /// A registry, and the ports that the tables would have.
    struct Published {
        bridges: BridgeRegistry,
        ports: PublishedPorts,
    }

    impl Published {
        /// Creates the bridge `br0` with `count` ports, and publishes them.
        fn new(count: u32) -> Self {
            let mut bridges = BridgeRegistry::default();
            let options = BridgeOptions { name: "br0".to_owned(), ..BridgeOptions::default() };
            let id = bridges.add(options).unwrap().id;
            let mut published =
                Self { bridges, ports: PublishedPorts::from([(id, Arc::from([]))]) };
            for number in 1..=count {
                published.add(&format!("p{number}"), "");
            }
            published.publish();
            published
        }

        /// Adds a port: a patch port if it has a peer.
        fn add(&mut self, name: &str, peer: &str) -> (BridgeId, PortNo) {
            let kind = if peer.is_empty() { PortType::Null } else { PortType::Patch };
            let (name, peer) = (name.to_owned(), peer.to_owned());
            let options = PortOptions { name, kind, peer, ..PortOptions::default() };
            let backing = PortBacking::of(kind);
            self.bridges.add_port("br0", options, None, backing, 1, Time::ZERO).unwrap()
        }

        /// Publishes the ports.
        ///
        /// Returns how many were compared, and the names of changed ports.
        fn publish(&mut self) -> (usize, Vec<String>) {
            let bridge = self.bridges.iter_mut().next().unwrap();
            let compared = bridge.take_unpublished();
            compared.iter().for_each(|number| bridge.ports.note_changed(*number));
            let mut names = Vec::new();
            for (id, changes) in self.bridges.take_unpublished(&self.ports) {
                let mut all: BTreeMap<PortNo, Arc<PortInfo>> =
                    self.ports[&id].iter().map(|port| (port.number, Arc::clone(port))).collect();
                for (number, new) in changes {
                    let old = all.remove(&number);
                    let name = new.as_ref().or(old.as_deref()).map(|port| port.name.clone());
                    names.extend(name);
                    all.extend(new.map(|port| (number, Arc::new(port))));
                }
                self.ports.insert(id, all.into_values().collect());
            }
            (compared.len(), names)
        }
    }

    /// A change of one port compares that port alone, in a bridge of any size.
    #[test]
    fn only_changed_ports_are_compared() {
        for count in [2, 1000] {
            let mut own = Published::new(count);
            assert_eq!(own.publish(), (0, vec![]), "of {count}");
            let (id, number) = own.add("new", "");
            assert_eq!(own.publish(), (1, vec!["new".to_owned()]), "of {count}");
            own.bridges.port_mut(id, number).unwrap().problem = Some("closed".to_owned());
            assert_eq!(own.publish(), (1, vec![]), "of {count}");
            own.bridges.port_mut(id, number).unwrap().link_up = true;
            assert_eq!(own.publish(), (1, vec!["new".to_owned()]), "of {count}");
            own.bridges.remove_port(id, number);
            assert_eq!(own.publish(), (1, vec!["new".to_owned()]), "of {count}");
            let (_, again) = own.add("again", "");
            assert_eq!(again, number, "the lowest free number");
        }
    }

    /// A new, changed or removed end of a patch publishes the other end.
    #[test]
    fn both_ends_of_a_patch_are_compared() {
        let mut own = Published::new(1000);
        own.add("a", "b");
        assert_eq!(own.publish(), (1, vec!["a".to_owned()]));
        let (id, number) = own.add("b", "a");
        let both = || vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(own.publish(), (2, both()));
        let options = own.bridges.find_port("b").unwrap().1.settings.clone();
        let other = PortOptions { peer: "c".to_owned(), ..options.clone() };
        own.bridges.set_port_options(id, number, other);
        assert_eq!(own.publish(), (2, both()));
        own.bridges.set_port_options(id, number, options);
        assert_eq!(own.publish(), (2, both()));
        own.bridges.remove_port(id, number);
        assert_eq!(own.publish(), (2, both()));
    }

    /// Of a bridge with a bond, the members are compared as well, and no other port.
    #[test]
    fn members_of_bonds_are_always_compared() {
        let mut own = Published::new(1000);
        let bond = BondOptions {
            name: "bond".to_owned(),
            members: vec!["p1".to_owned(), "p2".to_owned()],
            ..BondOptions::default()
        };
        let options = own.bridges.find("br0").unwrap().settings.clone();
        let id = own.bridges.find("br0").unwrap().id;
        let with_bond = BridgeOptions { bonds: vec![bond], ..options.clone() };
        own.bridges.set_options(id, with_bond).unwrap();
        let members = || vec!["p1".to_owned(), "p2".to_owned()];
        assert_eq!(own.publish(), (1000, members()));
        assert_eq!(own.publish(), (2, vec![]));
        own.bridges.set_options(id, options).unwrap();
        assert_eq!(own.publish(), (1000, members()));
        assert_eq!(own.publish(), (0, vec![]));
    }
}
