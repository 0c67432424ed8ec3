//! The ports that were read from rows, for rows that do not change.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use shunt_ovsdb::{DatabaseSnapshot, value::RowUuid};

use super::{changed_rows::ChangedRows, desired::DesiredPort};

/// The ports that were read from rows, by row in `Interface`.
#[derive(Debug, Default)]
pub(super) struct PortReadings {
    /// Directory for sockets, which the options of some ports depend on.
    folder: PathBuf,
    by_interface: BTreeMap<RowUuid, PortReading>,
}

/// The result of reading a row in `Port` with one interface.
#[derive(Clone, Debug)]
pub(super) struct PortReading {
    /// The row in `Port`.
    pub(super) row: RowUuid,
    /// The port; `None` if the switch cannot have it.
    pub(super) port: Option<DesiredPort>,
    /// The reason why the switch cannot have the port.
    pub(super) refused: Option<String>,
    /// The settings that the port cannot have, with the reasons.
    pub(super) settings: Option<String>,
}

impl PortReadings {
    /// Returns empty readings for a directory for sockets.
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder, by_interface: BTreeMap::new() }
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

    /// Removes the reading of an interface.
    pub(super) fn remove(&mut self, interface: RowUuid) {
        self.by_interface.remove(&interface);
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
        self.by_interface.remove(&interface).filter(|own| own.row == port)
    }

    /// Stores the reading of an interface, and returns the reading that it replaces.
    pub(super) fn insert(
        &mut self,
        interface: RowUuid,
        reading: PortReading,
    ) -> Option<PortReading> {
        self.by_interface.insert(interface, reading)
    }
}
