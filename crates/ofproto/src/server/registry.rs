//! What operators can ask about connections.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::connection::Status;

/// A connection, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// The other end.
    pub peer: String,
    /// How it is.
    pub status: Status,
}

/// The connections of a bridge that exist now.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<ConnectionTable>);

#[derive(Debug, Default)]
struct ConnectionTable {
    by_number: BTreeMap<u64, ConnectionStatus>,
    next: u64,
}

/// A connection's place in the registry; dropping it gives the place up.
#[derive(Debug)]
pub(super) struct RegistryEntry<'a> {
    registry: &'a Registry,
    number: u64,
    last: Status,
}

impl Registry {
    pub(super) fn register(&self, peer: &str, status: Status) -> RegistryEntry<'_> {
        let mut entries = self.lock();
        let number = entries.next;
        entries.next += 1;
        entries.by_number.insert(number, ConnectionStatus { peer: peer.to_owned(), status });
        RegistryEntry { registry: self, number, last: status }
    }

    pub(super) fn list(&self) -> Vec<ConnectionStatus> {
        self.lock().by_number.values().cloned().collect()
    }

    /// Every change is one assignment, so a panic elsewhere leaves the entries whole.
    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryEntry<'_> {
    /// Takes note of how the connection is now.
    pub(super) fn update(&mut self, status: Status) {
        if status == self.last {
            return;
        }
        self.last = status;
        if let Some(entry) = self.registry.lock().by_number.get_mut(&self.number) {
            entry.status = status;
        }
    }
}

impl Drop for RegistryEntry<'_> {
    fn drop(&mut self) {
        self.registry.lock().by_number.remove(&self.number);
    }
}
