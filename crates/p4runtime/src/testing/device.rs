//! A device that only remembers, for tests of the server and of clients.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    schema::Schema,
    server::{Device, DeviceError, EntryNo, Hits, PacketError, ProgramError},
    wire::p4::{
        config::v1::P4Info,
        v1::{Action, PacketOut, TableEntry},
    },
};

/// What a [`MemoryDevice`] was told.
#[derive(Debug, Default)]
pub struct Memory {
    /// Its entries.
    pub entries: BTreeMap<EntryNo, TableEntry>,
    /// Hits that tests make up.
    pub hits: BTreeMap<EntryNo, Hits>,
    /// Default actions that were set.
    pub defaults: BTreeMap<u32, Option<Action>>,
    /// Packets that were sent.
    pub sent: Vec<PacketOut>,
    /// Entries that it still takes; `None`: as many as come.
    pub room: Option<usize>,
    /// Whether it says that it changes several entries at once.
    pub is_atomic: bool,
}

/// A device that remembers what it was told. Clones are one device.
#[derive(Clone, Debug, Default)]
pub struct MemoryDevice(pub Arc<Mutex<Memory>>);

/// The beginning of a program that a [`MemoryDevice`] does not run.
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
        if let Some(room) = &mut memory.room {
            *room = room.checked_sub(1).ok_or(DeviceError::Full)?;
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

    fn remove(&mut self, entry: EntryNo) -> Hits {
        let memory = &mut *self.0.lock();
        memory.entries.remove(&entry);
        memory.hits.remove(&entry).unwrap_or_default()
    }

    fn set_default(&mut self, table: u32, action: Option<&Action>) -> Result<(), DeviceError> {
        self.0.lock().defaults.insert(table, action.cloned());
        Ok(())
    }

    fn hits(&mut self, entry: EntryNo) -> Hits {
        self.0.lock().hits.get(&entry).copied().unwrap_or_default()
    }

    fn send(&mut self, packet: &PacketOut) -> Result<(), PacketError> {
        self.0.lock().sent.push(packet.clone());
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        self.0.lock().is_atomic
    }
}
