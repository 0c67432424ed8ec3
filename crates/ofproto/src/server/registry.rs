//! The registry of connections, for operators.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::connection::{PacketInCounts, Status};

/// A connection, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// Name of the peer.
    pub peer: String,
    /// State of the connection.
    pub status: Status,
}

/// The current connections of a bridge.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<ConnectionTable>);

/// The connections of a bridge by number.
#[derive(Debug, Default)]
struct ConnectionTable {
    /// The status of each connection.
    by_number: BTreeMap<u64, ConnectionStatus>,
    /// The number of the next connection.
    next: u64,
    /// Packet-ins of connections that have ended.
    past_packet_ins: PacketInCounts,
}

/// The registration of a connection; dropping it removes the connection.
#[derive(Debug)]
pub(super) struct RegistryEntry<'a> {
    registry: &'a Registry,
    /// The number of the connection.
    number: u64,
    /// The last status of the connection.
    last: Status,
}

impl Registry {
    /// Adds a connection to the list, until the returned entry is dropped.
    pub(super) fn register(&self, peer: &str, status: Status) -> RegistryEntry<'_> {
        let mut entries = self.lock();
        let number = entries.next;
        entries.next += 1;
        entries.by_number.insert(number, ConnectionStatus { peer: peer.to_owned(), status });
        RegistryEntry { registry: self, number, last: status }
    }

    /// Returns the status of every connection.
    pub(super) fn list(&self) -> Vec<ConnectionStatus> {
        self.lock().by_number.values().cloned().collect()
    }

    /// Returns whether a connection receives packet-ins.
    pub(super) fn wants_packet_ins(&self) -> bool {
        self.lock().by_number.values().any(|own| own.status.wants_packet_ins)
    }

    /// Returns whether a connection receives packets that no rule matches.
    pub(super) fn wants_misses(&self) -> bool {
        self.lock().by_number.values().any(|own| own.status.wants_misses)
    }

    /// Returns the packet-in counts of all connections, also of ended ones.
    pub(super) fn packet_ins(&self) -> PacketInCounts {
        let entries = self.lock();
        let mut counts = entries.past_packet_ins;
        entries.by_number.values().for_each(|own| counts.add(&own.status.packet_ins));
        counts
    }

    /// Locks the table, also after a panic, which leaves the table consistent.
    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryEntry<'_> {
    /// Records the current state.
    ///
    /// Returns whether [`Registry::wants_misses`] may have changed.
    pub(super) fn update(&mut self, status: Status) -> bool {
        if status == self.last {
            return false;
        }
        let is_changed = status.wants_misses != self.last.wants_misses;
        self.last = status;
        if let Some(entry) = self.registry.lock().by_number.get_mut(&self.number) {
            entry.status = status;
        }
        is_changed
    }
}

impl Drop for RegistryEntry<'_> {
    fn drop(&mut self) {
        let mut entries = self.registry.lock();
        if let Some(ended) = entries.by_number.remove(&self.number) {
            entries.past_packet_ins.add(&ended.status.packet_ins);
        }
    }
}
