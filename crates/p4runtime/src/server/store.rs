//! The entries of a device, by table and key.
//!
//! It checks every update against the schema and the entries that there are, asks the device, and only
//! then takes note. Reading gives what was written, in its one form, with the metadata of the
//! controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use prost::Message;

use super::{
    device::{Device, DeviceError, EntryNo, Hits},
    part::nested_len,
};
use crate::{
    entry::{EntryKey, Use, checked_action, checked_match, checked_priority, key_of, table_of},
    error::EntityError,
    schema::{Schema, TableSchema},
    wire::{
        Writer,
        p4::v1::{CounterData, TableAction, TableEntry, entity, table_action, table_entry, update},
    },
};

/// All entries.
#[derive(Debug, Default)]
pub struct Store {
    pub(super) schema: Schema,
    pub(super) tables: BTreeMap<u32, VecStore>,
    /// Where each entry is that has a timeout.
    timed: BTreeMap<EntryNo, (u32, EntryKey)>,
    /// When to look at it next.
    deadlines: BTreeSet<(Duration, EntryNo)>,
    next_no: u64,
}

/// The entries of one table.
#[derive(Debug, Default)]
pub(super) struct VecStore {
    pub(super) entries: BTreeMap<EntryKey, Stored>,
    /// The default, as it was last written: a `TableEntry`.
    pub(super) default: Option<Box<[u8]>>,
}

/// An entry.
///
/// What it says is kept in its bytes: a message with all its values would hold on to the whole request
/// that they came with, and bytes are what is sent when it is read.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) no: EntryNo,
    /// A `TableEntry` in its one form, without what is counted.
    pub(super) said: Box<[u8]>,
    idle_timeout_ns: i64,
    /// When it was inserted.
    since: Duration,
    /// What its counter was set to, and what it had counted by then.
    counter_set: (CounterData, Hits),
    deadline: Option<Duration>,
}

/// How to take an update back.
#[derive(Debug)]
pub(super) enum Undo {
    Remove(u32, EntryKey),
    Restore(u32, EntryKey, Box<Stored>),
    Reinsert(u32, EntryKey, Box<Stored>),
    Default(u32, Option<Box<[u8]>>),
}

impl From<DeviceError> for EntityError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Full => Self::Full,
            DeviceError::Masks => Self::Masks,
            DeviceError::KeyBits => Self::KeyBits,
            DeviceError::Unknown => Self::Lost,
            DeviceError::Refused(reason) => Self::Refused(reason),
        }
    }
}

impl Stored {
    pub(super) fn counter(&self, hits: Hits) -> CounterData {
        let (set, then) = &self.counter_set;
        let gained =
            |now: u64, then: u64| i64::try_from(now.saturating_sub(then)).unwrap_or(i64::MAX);
        CounterData {
            byte_count: set.byte_count.saturating_add(gained(hits.bytes, then.bytes)),
            packet_count: set.packet_count.saturating_add(gained(hits.packets, then.packets)),
        }
    }

    pub(super) fn idle_since(&self, hits: Hits) -> Duration {
        hits.last.unwrap_or_default().max(self.since)
    }

    /// The same, with its times and counts taken by now: what it was hit until then is its past, and
    /// stays so under another number.
    fn as_of(&self, hits: Hits) -> Self {
        let (since, counter_set) = (self.idle_since(hits), (self.counter(hits), hits));
        Self { since, counter_set, ..self.clone() }
    }

    /// Goes on under the number of what has taken its place, which counts from nothing. What hit it
    /// between the update that is taken back and its removal, in the same batch, is not counted.
    fn go_on_as(&mut self, other: &Self) {
        if self.no != other.no {
            self.no = other.no;
            self.since = self.since.max(other.since);
            self.counter_set.1 = Hits::default();
        }
    }

    /// What it says.
    pub(super) fn entry(&self) -> TableEntry {
        meant(&self.said)
    }

    fn timeout(&self) -> Option<Duration> {
        let nanoseconds = u64::try_from(self.idle_timeout_ns).ok().filter(|ns| *ns > 0)?;
        Some(Duration::from_nanos(nanoseconds).max(TIMEOUT_MIN))
    }
}

/// Timeouts that are shorter are taken for this.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// Entries that have not been hit for their time.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// What a notice says of them.
    pub(super) names: Vec<TableEntry>,
    /// When each was to be looked at.
    marks: Vec<(Duration, EntryNo)>,
}

/// Entries of one notice.
const NOTICE_ENTRIES_MAX: usize = 1024;

/// An update, and when it came.
pub(super) struct Change {
    pub(super) kind: update::Type,
    pub(super) now: Duration,
    /// Whether it may have to be taken back.
    pub(super) is_undoable: bool,
}

impl Store {
    /// No entries, of the tables of a schema.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        let tables = schema.tables.keys().map(|id| (*id, VecStore::default())).collect();
        Self { schema, tables, ..Self::default() }
    }

    /// Number of entries of a table.
    #[must_use]
    pub fn entries_count(&self, table: u32) -> usize {
        self.tables.get(&table).map_or(0, |shelf| shelf.entries.len())
    }

    pub(super) fn apply(
        &mut self,
        device: &mut dyn Device,
        change: &Change,
        entity: Option<entity::Entity>,
    ) -> Result<Option<Undo>, EntityError> {
        match entity.ok_or(EntityError::NoEntity)? {
            entity::Entity::TableEntry(entry) => self.table_entry(device, change, *entry),
            entity::Entity::DirectCounterEntry(counter) => {
                let entry = counter.table_entry.ok_or(EntityError::NoEntity)?;
                if change.kind != update::Type::Modify {
                    return Err(EntityError::CounterUpdate);
                }
                let data = counter.data.ok_or(EntityError::NoResource("value of the counter"))?;
                check_counter(&data)?;
                self.set_counter(device, change, (entry, data))
            }
            _ => Err(EntityError::Unserved),
        }
    }

    fn table_entry(
        &mut self,
        device: &mut dyn Device,
        change: &Change,
        entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let table = table_of(&self.schema, entry.table_id)?;
        check_extras(table, &entry)?;
        if entry.is_default_action {
            return self.default_entry(device, change, entry);
        }
        match change.kind {
            update::Type::Insert => self.insert(device, change, entry),
            update::Type::Modify => self.modify(device, change, entry),
            update::Type::Delete => self.delete(device, change, entry),
            update::Type::Unspecified => Err(EntityError::NoType),
        }
    }

    fn default_entry(
        &mut self,
        device: &mut dyn Device,
        change: &Change,
        mut entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let id = entry.table_id;
        let table = table_of(&self.schema, id)?;
        let is_plain = entry.r#match.is_empty()
            && entry.priority == 0
            && entry.idle_timeout_ns == 0
            && entry.time_since_last_hit.is_none();
        if !is_plain || change.kind != update::Type::Modify {
            return Err(EntityError::Default);
        }
        if table.is_default_const {
            return Err(EntityError::ConstDefault);
        }
        if entry.counter_data.is_some() {
            return Err(EntityError::NoResource("counter for its default"));
        }
        entry.action = checked_action(&self.schema, table, (entry.action, Use::Default))?;
        let action = crate::entry::action_of(&entry).or(table.default.as_ref());
        device.set_default(id, action)?;
        let shelf = self.tables.entry(id).or_default();
        let before = shelf.default.take();
        // Without an action the default is what the program says, and nobody's metadata is kept.
        shelf.default = entry.action.is_some().then(|| said(&entry));
        Ok(Some(Undo::Default(id, before)))
    }

    fn insert(
        &mut self,
        device: &mut dyn Device,
        &Change { now, is_undoable, .. }: &Change,
        mut entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let id = entry.table_id;
        let table = table_of(&self.schema, id)?;
        if table.is_const {
            return Err(EntityError::ConstTable);
        }
        if table.fields.is_empty() {
            return Err(EntityError::Keyless);
        }
        entry.r#match = checked_match(table, entry.r#match)?;
        checked_priority(table, entry.priority)?;
        entry.action = checked_action(&self.schema, table, (entry.action, Use::Entry))?;
        if entry.action.is_none() {
            return Err(EntityError::NoAction);
        }
        let key = key_of(&entry.r#match, entry.priority);
        let size = table.size;
        let shelf = self.tables.entry(id).or_default();
        if shelf.entries.contains_key(&key) {
            return Err(EntityError::Exists);
        }
        if shelf.entries.len() as u64 >= size {
            return Err(EntityError::Full);
        }
        let no = self.take_no();
        let counter = entry.counter_data.take().unwrap_or_default();
        device.insert(no, &entry)?;
        let counter_set = (counter, Hits::default());
        let mut stored = Stored {
            no,
            said: said(&entry),
            idle_timeout_ns: entry.idle_timeout_ns,
            since: now,
            counter_set,
            deadline: None,
        };
        self.watch((id, &key), &mut stored, now);
        let undo = is_undoable.then(|| Undo::Remove(id, key.clone()));
        self.tables.entry(id).or_default().entries.insert(key, stored);
        Ok(undo)
    }

    fn modify(
        &mut self,
        device: &mut dyn Device,
        &Change { now, is_undoable, .. }: &Change,
        mut entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let (id, key) = self.key(&mut entry)?;
        let table = table_of(&self.schema, id)?;
        entry.action = checked_action(&self.schema, table, (entry.action, Use::Entry))?;
        let shelf = self.tables.get(&id).ok_or(EntityError::NotFound)?;
        let mut stored = shelf.entries.get(&key).ok_or(EntityError::NotFound)?.clone();
        if table.is_const && entry.action.is_some() {
            return Err(EntityError::ConstTable);
        }
        let before = is_undoable.then(|| Box::new(stored.as_of(device.hits(stored.no))));
        if let Some(counter) = entry.counter_data.take() {
            stored.counter_set = (counter, device.hits(stored.no));
        }
        let known = stored.entry().action;
        match &entry.action {
            None => entry.action = known,
            Some(_) if entry.action == known => {}
            Some(_) => device.modify(stored.no, &entry)?,
        }
        stored.said = said(&entry);
        stored.idle_timeout_ns = entry.idle_timeout_ns;
        self.unwatch(&stored);
        self.watch((id, &key), &mut stored, now);
        let undo = before.map(|before| Undo::Restore(id, key.clone(), before));
        self.tables.entry(id).or_default().entries.insert(key, stored);
        Ok(undo)
    }

    fn delete(
        &mut self,
        device: &mut dyn Device,
        change: &Change,
        mut entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let (id, key) = self.key(&mut entry)?;
        if table_of(&self.schema, id)?.is_const {
            return Err(EntityError::ConstTable);
        }
        let shelf = self.tables.get_mut(&id).ok_or(EntityError::NotFound)?;
        let stored = shelf.entries.remove(&key).ok_or(EntityError::NotFound)?;
        self.unwatch(&stored);
        let mut stored = stored.as_of(device.remove(stored.no));
        // Should it be put back, the device counts from nothing.
        stored.counter_set.1 = Hits::default();
        Ok(change.is_undoable.then(|| Undo::Reinsert(id, key, Box::new(stored))))
    }

    fn set_counter(
        &mut self,
        device: &mut dyn Device,
        change: &Change,
        (mut entry, data): (TableEntry, CounterData),
    ) -> Result<Option<Undo>, EntityError> {
        if !table_of(&self.schema, entry.table_id)?.has_counters {
            return Err(EntityError::NoResource("direct counter"));
        }
        let (id, key) = self.key(&mut entry)?;
        let shelf = self.tables.get_mut(&id).ok_or(EntityError::NotFound)?;
        let stored = shelf.entries.get_mut(&key).ok_or(EntityError::NotFound)?;
        let hits = device.hits(stored.no);
        let before = change.is_undoable.then(|| Box::new(stored.as_of(hits)));
        stored.counter_set = (data, hits);
        Ok(before.map(|before| Undo::Restore(id, key, before)))
    }

    /// The key that an update names, whatever else it says.
    fn key(&self, entry: &mut TableEntry) -> Result<(u32, EntryKey), EntityError> {
        let table = table_of(&self.schema, entry.table_id)?;
        entry.r#match = checked_match(table, std::mem::take(&mut entry.r#match))?;
        checked_priority(table, entry.priority)?;
        Ok((entry.table_id, key_of(&entry.r#match, entry.priority)))
    }

    /// Takes an update back.
    ///
    /// # Errors
    ///
    /// The device did not take again what it had: it is as the update had made it.
    pub(super) fn undo(
        &mut self,
        device: &mut dyn Device,
        undo: Undo,
        now: Duration,
    ) -> Result<(), EntityError> {
        match undo {
            Undo::Remove(id, key) => {
                let shelf = self.tables.entry(id).or_default();
                if let Some(stored) = shelf.entries.remove(&key) {
                    self.unwatch(&stored);
                    device.remove(stored.no);
                }
            }
            Undo::Restore(id, key, mut before) => {
                // It may have been removed and put back since, and has another number then.
                let shelf = self.tables.get(&id);
                let held = shelf.and_then(|shelf| shelf.entries.get(&key));
                before.go_on_as(held.ok_or(EntityError::NotRestored)?);
                device.modify(before.no, &before.entry()).map_err(|_| EntityError::NotRestored)?;
                self.put_back(id, key, *before, now);
            }
            Undo::Reinsert(id, key, mut before) => {
                before.no = self.take_no();
                device.insert(before.no, &before.entry()).map_err(|_| EntityError::NotRestored)?;
                self.put_back(id, key, *before, now);
            }
            Undo::Default(id, before) => {
                let table = self.schema.tables.get(&id);
                let entry = before.as_deref().map(meant);
                let action = entry.as_ref().and_then(crate::entry::action_of);
                let action = action.or_else(|| table?.default.as_ref());
                device.set_default(id, action).map_err(|_| EntityError::NotRestored)?;
                self.tables.entry(id).or_default().default = before;
            }
        }
        Ok(())
    }

    const fn take_no(&mut self) -> EntryNo {
        let no = EntryNo(self.next_no);
        self.next_no += 1;
        no
    }

    fn put_back(&mut self, id: u32, key: EntryKey, mut stored: Stored, now: Duration) {
        let shelf = self.tables.entry(id).or_default();
        if let Some(other) = shelf.entries.remove(&key) {
            self.unwatch(&other);
        }
        self.unwatch(&stored);
        self.watch((id, &key), &mut stored, now);
        self.tables.entry(id).or_default().entries.insert(key, stored);
    }

    fn watch(&mut self, (id, key): (u32, &EntryKey), stored: &mut Stored, now: Duration) {
        stored.deadline = stored.timeout().map(|timeout| now.saturating_add(timeout));
        if let Some(deadline) = stored.deadline {
            self.timed.insert(stored.no, (id, key.clone()));
            self.deadlines.insert((deadline, stored.no));
        }
    }

    fn unwatch(&mut self, stored: &Stored) {
        if let Some(deadline) = stored.deadline {
            self.timed.remove(&stored.no);
            self.deadlines.remove(&(deadline, stored.no));
        }
    }

    /// Entries that have not been hit for their time, as many as a notice takes. They stay due until
    /// they are [put off](Self::put_off).
    pub(super) fn due(&mut self, device: &mut dyn Device, now: Duration, bytes_max: usize) -> Due {
        let (mut due, mut bytes) = (Due::default(), 0);
        let mut behind = Unbounded;
        while let Some(mark) = self.deadlines.range((behind, Unbounded)).next().copied()
            && mark.0 <= now
            && due.names.len() < NOTICE_ENTRIES_MAX
        {
            behind = Excluded(mark);
            let Some((id, key)) = self.timed.get(&mark.1) else { continue };
            let stored = self.tables.get_mut(id).and_then(|shelf| shelf.entries.get_mut(key));
            let Some(stored) = stored else { continue };
            let Some(timeout) = stored.timeout() else { continue };
            let since = stored.idle_since(device.hits(mark.1));
            if now.saturating_sub(since) < timeout {
                let next = since.saturating_add(timeout);
                stored.deadline = Some(next);
                self.deadlines.remove(&mark);
                self.deadlines.insert((next, mark.1));
                continue;
            }
            let name = name_of(stored.entry());
            bytes += nested_len(name.encoded_len());
            if bytes > bytes_max && !due.names.is_empty() {
                break;
            }
            due.names.push(name);
            due.marks.push(mark);
        }
        due
    }

    /// Entries that were told are told again after another such time.
    pub(super) fn put_off(&mut self, due: &Due, now: Duration) {
        for mark in &due.marks {
            let Some((id, key)) = self.timed.get(&mark.1) else { continue };
            let stored = self.tables.get_mut(id).and_then(|shelf| shelf.entries.get_mut(key));
            let Some(stored) = stored else { continue };
            let Some(timeout) = stored.timeout() else { continue };
            let next = now.saturating_add(timeout);
            stored.deadline = Some(next);
            self.deadlines.remove(mark);
            self.deadlines.insert((next, mark.1));
        }
    }

    /// The default entry of a table, as it is read.
    pub(super) fn default_of(&self, id: u32) -> Option<TableEntry> {
        let written = self.tables.get(&id).and_then(|shelf| shelf.default.as_deref());
        let table = self.schema.tables.get(&id)?;
        written.map(meant).or_else(|| {
            let action = table.default.clone()?;
            Some(TableEntry {
                table_id: id,
                action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
                is_default_action: true,
                ..TableEntry::default()
            })
        })
    }
}

/// What an entry says, as bytes.
fn said(entry: &TableEntry) -> Box<[u8]> {
    let mut writer = Writer::new();
    writer.entry(entry);
    writer.as_slice().into()
}

/// The entry of which these are the bytes.
fn meant(said: &[u8]) -> TableEntry {
    // What was encoded here can be decoded.
    TableEntry::decode(said).unwrap_or_default()
}

/// What a notice says of an entry: which it is, and not what it does.
fn name_of(entry: TableEntry) -> TableEntry {
    TableEntry { action: None, ..entry }
}

/// That a counter can be what it is set to.
fn check_counter(data: &CounterData) -> Result<(), EntityError> {
    let is_count = data.byte_count >= 0 && data.packet_count >= 0;
    if is_count { Ok(()) } else { Err(EntityError::Count) }
}

/// Bytes of metadata that a controller may note with an entry: the only part of one that the program
/// does not bound.
const METADATA_BYTES_MAX: usize = 1024;

/// What an entry says besides match and action.
fn check_extras(table: &TableSchema, entry: &TableEntry) -> Result<(), EntityError> {
    let TableEntry { is_const, time_since_last_hit, idle_timeout_ns, .. } = entry;
    if *is_const {
        return Err(EntityError::IsConst);
    }
    let bytes = entry.metadata.len();
    if bytes > METADATA_BYTES_MAX {
        return Err(EntityError::Metadata { bytes, max: METADATA_BYTES_MAX });
    }
    if entry.meter_config.is_some() || entry.meter_counter_data.is_some() {
        return Err(EntityError::NoResource("direct meter"));
    }
    if entry.counter_data.is_some() && !table.has_counters {
        return Err(EntityError::NoResource("direct counter"));
    }
    entry.counter_data.as_ref().map_or(Ok(()), check_counter)?;
    if matches!(time_since_last_hit, Some(table_entry::IdleTimeout { .. })) {
        return Err(EntityError::ReadOnly("the time since the last hit"));
    }
    if *idle_timeout_ns < 0 {
        return Err(EntityError::Timeout(*idle_timeout_ns));
    }
    if *idle_timeout_ns != 0 && !table.has_timeouts {
        return Err(EntityError::NoResource("idle timeout"));
    }
    Ok(())
}
