//! The ports that were read from rows, for rows that do not change.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use shunt_ovsdb::value::RowUuid;

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

    /// Removes the readings of rows that have changed.
    pub(super) fn without(mut self, changed: &ChangedRows) -> Self {
        match changed {
            ChangedRows::All => Self::default(),
            ChangedRows::Ports(changed) => {
                let is_same = |uuid: &RowUuid, changed: &BTreeSet<_>| !changed.contains(uuid);
                self.by_interface
                    .retain(|uuid, own| is_same(uuid, changed) && is_same(&own.row, changed));
                self
            }
        }
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

    /// Stores the reading of an interface.
    pub(super) fn insert(&mut self, interface: RowUuid, reading: PortReading) {
        self.by_interface.insert(interface, reading);
    }
}
