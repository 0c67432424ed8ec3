//! The ports that were read from rows, for rows that do not change.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use shunt_ovsdb::{DatabaseSnapshot, value::RowUuid};
use shunt_switch::config::PortType;

use super::{changed_rows::ChangedRows, desired::DesiredPort};

/// The ports that were read from rows, by row in `Interface`.
#[derive(Debug, Default)]
pub(super) struct PortReadings {
    /// Directory for sockets, which the options of some ports depend on.
    folder: PathBuf,
    /// The result of each row, by its row in `Interface`.
    by_interface: BTreeMap<RowUuid, PortReading>,
    /// Rows in `Interface` of patch ports, by the names of their peers.
    patches: BTreeMap<String, BTreeSet<RowUuid>>,
}

/// The result of reading a row in `Port` with one interface.
#[derive(Clone, Debug)]
pub(super) struct PortReading {
    /// The row in `Port`.
    pub(super) row: RowUuid,
    /// The port; `None` if the switch refuses the port.
    pub(super) port: Option<DesiredPort>,
    /// The reason why the switch refuses the port.
    pub(super) refused: Option<String>,
    /// The settings that the switch refuses, with the reasons.
    pub(super) settings: Option<String>,
}

impl PortReadings {
    /// Returns empty readings for a directory for sockets.
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder, by_interface: BTreeMap::new(), patches: BTreeMap::new() }
    }

    /// Removes the readings of rows that have changed since `earlier`.
    pub(super) fn without(mut self, earlier: &DatabaseSnapshot, changed: &ChangedRows) -> Self {
        let ChangedRows::Ports(changed) = changed else { return Self::default() };
        for uuid in changed {
            self.remove(*uuid);
            let port = earlier.row("Port", *uuid);
            for interface in port.into_iter().flat_map(|port| port.uuids("interfaces")) {
                self.remove(interface);
            }
        }
        self
    }

    /// Removes the reading of an interface, and returns it.
    pub(super) fn remove(&mut self, interface: RowUuid) -> Option<PortReading> {
        let reading = self.by_interface.remove(&interface)?;
        if let Some(peer) = reading.patch_peer()
            && let Some(rows) = self.patches.get_mut(peer)
        {
            rows.remove(&interface);
            if rows.is_empty() {
                self.patches.remove(peer);
            }
        }
        Some(reading)
    }

    /// Returns the rows in `Interface` of the patch ports with a peer.
    pub(super) fn patches_to(&self, peer: &str) -> impl Iterator<Item = RowUuid> {
        self.patches.get(peer).into_iter().flatten().copied()
    }

    /// Returns the rows in `Interface` of all patch ports.
    pub(super) fn patches(&self) -> impl Iterator<Item = RowUuid> {
        self.patches.values().flatten().copied()
    }

    /// Returns the row in `Port` of an interface.
    pub(super) fn port_of(&self, interface: RowUuid) -> Option<RowUuid> {
        self.by_interface.get(&interface).map(|own| own.row)
    }

    /// Takes the reading of an interface of the row `port`.
    pub(super) fn take(
        &mut self,
        folder: &Path,
        port: RowUuid,
        interface: RowUuid,
    ) -> Option<PortReading> {
        if folder != self.folder {
            return None;
        }
        self.remove(interface).filter(|own| own.row == port)
    }

    /// Stores the reading of an interface, and returns the reading that it replaces.
    pub(super) fn insert(
        &mut self,
        interface: RowUuid,
        reading: PortReading,
    ) -> Option<PortReading> {
        let replaced = self.remove(interface);
        if let Some(peer) = reading.patch_peer() {
            self.patches.entry(peer.to_owned()).or_default().insert(interface);
        }
        self.by_interface.insert(interface, reading);
        replaced
    }
}

impl PortReading {
    /// Returns the name of the peer of a patch port.
    fn patch_peer(&self) -> Option<&str> {
        let options = &self.port.as_ref()?.options;
        (options.kind == PortType::Patch).then_some(options.peer.as_str())
    }
}
