//! An in-memory device for tests of servers and clients.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    schema::Schema,
    server::{Device, DeviceError, EntryHits, EntryNo, PacketError, ProgramError},
    wire::p4::{
        config::v1::P4Info,
        v1::{Action, PacketOut, TableEntry},
    },
};

/// The state of a [`MemoryDevice`].
#[derive(Debug, Default)]
pub struct DeviceMemory {
    /// Entries of the device.
    pub entries: BTreeMap<EntryNo, TableEntry>,
    /// Hits that tests set.
    pub hits: BTreeMap<EntryNo, EntryHits>,
    /// Default actions that were set.
    pub defaults: BTreeMap<u32, Option<Action>>,
    /// Packets that were sent.
    pub sent: Vec<PacketOut>,
    /// Notifies the test of a sent packet.
    pub news: Arc<Notify>,
    /// Number of further entries that the device accepts; `None` means unlimited.
    pub capacity_left: Option<usize>,
    /// True if the device claims to apply changes atomically.
    pub is_atomic: bool,
}

/// A device that stores the entries that it receives; clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryDevice(pub Arc<Mutex<DeviceMemory>>);

/// The prefix of a program that a [`MemoryDevice`] refuses.
pub const BROKEN_PROGRAM: &[u8] = b"broken";

impl Device for MemoryDevice {
    fn verify(&self, _: &P4Info, config: &[u8]) -> Result<(), ProgramError> {
        if config.starts_with(BROKEN_PROGRAM) { Err(ProgramError::Config) } else { Ok(()) }
    }

    fn commit(&mut self, _: &P4Info, _: &Schema) {
        let memory = &mut *self.0.lock();
        memory.entries.clear();
        memory.hits.clear();
        memory.defaults.clear();
    }

    fn insert(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError> {
        let memory = &mut *self.0.lock();
        if let Some(capacity_left) = &mut memory.capacity_left {
            *capacity_left = capacity_left.checked_sub(1).ok_or(DeviceError::Full)?;
        }
        memory.entries.insert(entry, value.clone());
        Ok(())
    }

    fn modify(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError> {
        let memory = &mut *self.0.lock();
        let held = memory.entries.get_mut(&entry).ok_or(DeviceError::Unknown)?;
        held.clone_from(value);
        Ok(())
    }

    fn remove(&mut self, entry: EntryNo) -> EntryHits {
        let memory = &mut *self.0.lock();
        memory.entries.remove(&entry);
        memory.hits.remove(&entry).unwrap_or_default()
    }

    fn set_default(&mut self, table: u32, action: Option<&Action>) -> Result<(), DeviceError> {
        self.0.lock().defaults.insert(table, action.cloned());
        Ok(())
    }

    fn hits(&mut self, entry: EntryNo) -> EntryHits {
        self.0.lock().hits.get(&entry).copied().unwrap_or_default()
    }

    fn send(&mut self, packet: &PacketOut) -> Result<(), PacketError> {
        let memory = &mut *self.0.lock();
        memory.sent.push(packet.clone());
        memory.news.notify_one();
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        self.0.lock().is_atomic
    }
}
