//! The ports of a bridge by their OpenFlow numbers.

use std::collections::{BTreeMap, BTreeSet};

use shunt_flow::PortNo;

use crate::ports::port::BridgePort;

/// The ports of a bridge, in the order of their numbers.
///
/// A port has about 800 bytes. A node of a map with ascending numbers is about half empty, so the
/// map has boxes.
pub(crate) struct BridgePorts {
    ports: BTreeMap<PortNo, Box<BridgePort>>,
    /// Numbers of the ports that may differ from the tables.
    changed: BTreeSet<PortNo>,
    /// Numbers of the ports with a BFD session.
    ///
    /// [`Self::update_sessions`] updates them. The state of a session changes without the lock of the
    /// ports.
    with_session: BTreeSet<PortNo>,
    /// All numbers from 1 to the number before this one are taken.
    first_free: u32,
}

impl Default for BridgePorts {
    fn default() -> Self {
        let (changed, with_session) = (BTreeSet::new(), BTreeSet::new());
        Self { ports: BTreeMap::new(), changed, with_session, first_free: 1 }
    }
}

impl BridgePorts {
    /// Adds a port with its number; replaces a port with the same number.
    pub(crate) fn insert(&mut self, port: BridgePort) {
        self.changed.insert(port.number);
        self.ports.insert(port.number, Box::new(port));
        while self.ports.contains_key(&PortNo::new(self.first_free)) {
            self.first_free += 1;
        }
    }

    /// Removes the port with the given number.
    pub(crate) fn remove(&mut self, number: PortNo) -> Option<BridgePort> {
        let port = self.ports.remove(&number)?;
        self.changed.insert(number);
        self.first_free = self.first_free.min(number.number()).max(1);
        Some(*port)
    }

    /// Returns the port with the given number.
    pub(crate) fn get(&self, number: PortNo) -> Option<&BridgePort> {
        self.ports.get(&number).map(|port| &**port)
    }

    /// Returns the port with a number, to change it.
    pub(crate) fn get_mut(&mut self, number: PortNo) -> Option<&mut BridgePort> {
        let port = self.ports.get_mut(&number)?;
        self.changed.insert(number);
        Some(&mut **port)
    }

    /// Returns the port with a number, to change state that the tables do not have.
    ///
    /// Before the lock of the ports is released, the caller notes other changes by
    /// [`Self::note_changed`].
    pub(crate) fn state_mut(&mut self, number: PortNo) -> Option<&mut BridgePort> {
        self.ports.get_mut(&number).map(|port| &mut **port)
    }

    /// Returns the numbers of the ports.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &PortNo> {
        self.ports.keys()
    }

    /// Returns the ports of the bridge.
    pub(crate) fn values(&self) -> impl Iterator<Item = &BridgePort> {
        self.ports.values().map(|port| &**port)
    }

    /// Returns the ports, to change state that the tables do not have.
    ///
    /// As with [`Self::state_mut`], the caller notes other changes.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut BridgePort> {
        self.ports.values_mut().map(|port| &mut **port)
    }

    /// Returns the lowest number from 1 that no port has, and that is not reserved.
    pub(crate) fn free_number(&self, reserved: &BTreeSet<PortNo>) -> PortNo {
        let mut numbers = (self.first_free..=PortNo::MAX.number()).map(PortNo::new);
        let is_free =
            |number: &PortNo| !self.ports.contains_key(number) && !reserved.contains(number);
        numbers.find(is_free).unwrap_or(PortNo::MAX)
    }

    /// Notes that a port may differ from the tables.
    pub(crate) fn note_changed(&mut self, number: PortNo) {
        self.changed.insert(number);
    }

    /// Notes that each port may differ from the tables.
    pub(crate) fn note_all_changed(&mut self) {
        self.changed.extend(self.ports.keys());
    }

    /// Takes the numbers of the ports that may differ from the tables.
    ///
    /// A port with a BFD session may always differ.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<PortNo> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.extend(&self.with_session);
        changed
    }

    /// Updates the BFD session of each port that has one, or may have got one.
    ///
    /// `update` returns whether the port has a session now. The cost depends on the sessions and
    /// the changed ports.
    pub(crate) fn update_sessions(&mut self, mut update: impl FnMut(&mut BridgePort) -> bool) {
        let numbers: Vec<PortNo> = self.with_session.union(&self.changed).copied().collect();
        for number in numbers {
            if self.state_mut(number).is_some_and(&mut update) {
                self.with_session.insert(number);
            } else {
                self.with_session.remove(&number);
            }
        }
    }
}
