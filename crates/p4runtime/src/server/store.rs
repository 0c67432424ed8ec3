//! The entries of a device, by table and key.
//!
//! Every update is checked against the schema and the existing entries, then applied to the device,
//! and stored last. A read returns what was written, in canonical form and with the metadata of the
//! controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use prost::Message;

use super::{
    device::{Device, DeviceError, EntryHits, EntryNo},
    response_part::nested_len,
};
use crate::{
    entry::{
        ActionUse, EntryKey, checked_action, checked_match, checked_priority, key_of, table_of,
    },
    error::EntityError,
    schema::{Schema, TableSchema},
    wire::{
        ProtoWriter,
        p4::v1::{CounterData, TableAction, TableEntry, entity, table_action, table_entry, update},
    },
};

/// The entries of all tables.
#[derive(Debug, Default)]
pub struct EntryStore {
    pub(super) schema: Schema,
    pub(super) tables: BTreeMap<u32, TableEntries>,
    /// Table and key of each entry with a timeout.
    timed: BTreeMap<EntryNo, (u32, EntryKey)>,
    /// Time at which each entry with a timeout is checked next.
    deadlines: BTreeSet<(Duration, EntryNo)>,
    next_no: u64,
}

/// The entries of one table, and its default entry.
#[derive(Debug, Default)]
pub(super) struct TableEntries {
    pub(super) entries: BTreeMap<EntryKey, StoredEntry>,
    /// The default entry as last written: an encoded `TableEntry`.
    pub(super) default: Option<Box<[u8]>>,
}

/// A stored entry.
///
/// The entry is stored encoded: a decoded message would keep the whole request buffer alive, and a
/// read sends the encoded bytes.
#[derive(Clone, Debug)]
pub(super) struct StoredEntry {
    pub(super) no: EntryNo,
    /// The canonical `TableEntry` without counters.
    pub(super) encoded: Box<[u8]>,
    idle_timeout_ns: i64,
    /// Time at which the entry was inserted.
    since: Duration,
    /// The value to which the counter was set, and the hits at that time.
    counter_set: (CounterData, EntryHits),
    deadline: Option<Duration>,
}

/// The inverse of an update.
#[derive(Debug)]
pub(super) enum Undo {
    Remove(u32, EntryKey),
    Restore(u32, EntryKey, Box<StoredEntry>),
    Reinsert(u32, EntryKey, Box<StoredEntry>),
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

impl StoredEntry {
    /// Returns the counter of the entry after some hits.
    pub(super) fn counter(&self, hits: EntryHits) -> CounterData {
        let (set, then) = &self.counter_set;
        // The counters of P4Runtime are signed: they stay at their maximum.
        let increment =
            |now: u64, then: u64| i64::try_from(now.saturating_sub(then)).unwrap_or(i64::MAX);
        CounterData {
            byte_count: set.byte_count.saturating_add(increment(hits.bytes, then.bytes)),
            packet_count: set.packet_count.saturating_add(increment(hits.packets, then.packets)),
        }
    }

    /// Returns the time of the last hit, or of the insertion.
    pub(super) fn idle_since(&self, hits: EntryHits) -> Duration {
        hits.last.unwrap_or_default().max(self.since)
    }

    /// Returns the entry with its times and counts as of `hits`.
    ///
    /// The result includes past hits, so the entry can continue under another number.
    fn as_of(&self, hits: EntryHits) -> Self {
        let (since, counter_set) = (self.idle_since(hits), (self.counter(hits), hits));
        Self { since, counter_set, ..self.clone() }
    }

    /// Continues this entry under the number of the entry that replaced it.
    ///
    /// The device counts the hits of that number from zero. Hits between the update and its
    /// rollback in the same batch are not counted.
    fn continue_as(&mut self, other: &Self) {
        if self.no != other.no {
            self.no = other.no;
            self.since = self.since.max(other.since);
            self.counter_set.1 = EntryHits::default();
        }
    }

    /// Returns the table entry in decoded form.
    pub(super) fn entry(&self) -> TableEntry {
        decode_entry(&self.encoded)
    }

    /// Returns the idle timeout, if the entry has one.
    fn timeout(&self) -> Option<Duration> {
        let nanoseconds = u64::try_from(self.idle_timeout_ns).ok().filter(|ns| *ns > 0)?;
        Some(Duration::from_nanos(nanoseconds).max(TIMEOUT_MIN))
    }
}

/// Minimum idle timeout; shorter timeouts are raised to this minimum.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// Entries that have not been hit within their timeout.
#[derive(Debug, Default)]
pub(super) struct IdleEntries {
    /// The entries of the notification.
    pub(super) entries: Vec<TableEntry>,
    /// The deadlines of `entries`.
    deadlines_due: Vec<(Duration, EntryNo)>,
}

/// Maximum number of entries per notification.
const NOTICE_ENTRIES_MAX: usize = 1024;

/// The type and time of an update.
pub(super) struct UpdateContext {
    pub(super) kind: update::Type,
    pub(super) now: Duration,
    /// True if the update may have to be rolled back.
    pub(super) is_undoable: bool,
}

impl EntryStore {
    /// Creates a store for the tables of a schema.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        let tables = schema.tables.keys().map(|id| (*id, TableEntries::default())).collect();
        Self { schema, tables, ..Self::default() }
    }

    /// Returns the number of entries of a table.
    #[must_use]
    pub fn entries_count(&self, table: u32) -> usize {
        self.tables.get(&table).map_or(0, |table_entries| table_entries.entries.len())
    }

    /// Applies an update; returns how to undo it.
    pub(super) fn apply(
        &mut self,
        device: &mut dyn Device,
        context: &UpdateContext,
        entity: Option<entity::Entity>,
    ) -> Result<Option<Undo>, EntityError> {
        match entity.ok_or(EntityError::NoEntity)? {
            entity::Entity::TableEntry(entry) => self.table_entry(device, context, *entry),
            entity::Entity::DirectCounterEntry(counter) => {
                let entry = counter.table_entry.ok_or(EntityError::NoEntity)?;
                if context.kind != update::Type::Modify {
                    return Err(EntityError::CounterUpdate);
                }
                let data = counter.data.ok_or(EntityError::NoResource("value of the counter"))?;
                check_counter(&data)?;
                self.set_counter(device, context, entry, data)
            }
            _ => Err(EntityError::Unserved),
        }
    }

    /// Applies an update of a table entry.
    fn table_entry(
        &mut self,
        device: &mut dyn Device,
        context: &UpdateContext,
        entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let table = table_of(&self.schema, entry.table_id)?;
        check_extras(table, &entry)?;
        if entry.is_default_action {
            return self.default_entry(device, context, entry);
        }
        match context.kind {
            update::Type::Insert => self.insert(device, context, entry),
            update::Type::Modify => self.modify(device, context, entry),
            update::Type::Delete => self.delete(device, context, entry),
            update::Type::Unspecified => Err(EntityError::NoType),
        }
    }

    /// Changes the default action of a table.
    fn default_entry(
        &mut self,
        device: &mut dyn Device,
        context: &UpdateContext,
        mut entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let id = entry.table_id;
        let table = table_of(&self.schema, id)?;
        let is_plain = entry.r#match.is_empty()
            && entry.priority == 0
            && entry.idle_timeout_ns == 0
            && entry.time_since_last_hit.is_none();
        if !is_plain || context.kind != update::Type::Modify {
            return Err(EntityError::Default);
        }
        if table.is_default_const {
            return Err(EntityError::ConstDefault);
        }
        if entry.counter_data.is_some() {
            return Err(EntityError::NoResource("counter for its default"));
        }
        entry.action = checked_action(&self.schema, table, entry.action, ActionUse::Default)?;
        let action = crate::entry::action_of(&entry).or(table.default.as_ref());
        device.set_default(id, action)?;
        let table_entries = self.tables.entry(id).or_default();
        let before = table_entries.default.take();
        // Without an action, the default action of the program applies, without metadata.
        table_entries.default = entry.action.is_some().then(|| encode_entry(&entry));
        Ok(Some(Undo::Default(id, before)))
    }

    /// Inserts an entry into the device and the store.
    fn insert(
        &mut self,
        device: &mut dyn Device,
        &UpdateContext { now, is_undoable, .. }: &UpdateContext,
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
        entry.action = checked_action(&self.schema, table, entry.action, ActionUse::Entry)?;
        if entry.action.is_none() {
            return Err(EntityError::NoAction);
        }
        let key = key_of(&entry.r#match, entry.priority);
        let size = table.size;
        let table_entries = self.tables.entry(id).or_default();
        if table_entries.entries.contains_key(&key) {
            return Err(EntityError::Exists);
        }
        if table_entries.entries.len() as u64 >= size {
            return Err(EntityError::Full);
        }
        let no = self.next_number();
        let counter = entry.counter_data.take().unwrap_or_default();
        device.insert(no, &entry)?;
        let counter_set = (counter, EntryHits::default());
        let mut stored = StoredEntry {
            no,
            encoded: encode_entry(&entry),
            idle_timeout_ns: entry.idle_timeout_ns,
            since: now,
            counter_set,
            deadline: None,
        };
        self.add_deadline(id, &key, &mut stored, now);
        let undo = is_undoable.then(|| Undo::Remove(id, key.clone()));
        self.tables.entry(id).or_default().entries.insert(key, stored);
        Ok(undo)
    }

    /// Replaces the action of an entry.
    fn modify(
        &mut self,
        device: &mut dyn Device,
        &UpdateContext { now, is_undoable, .. }: &UpdateContext,
        mut entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let (id, key) = self.key(&mut entry)?;
        let table = table_of(&self.schema, id)?;
        entry.action = checked_action(&self.schema, table, entry.action, ActionUse::Entry)?;
        let table_entries = self.tables.get(&id).ok_or(EntityError::NotFound)?;
        let mut stored = table_entries.entries.get(&key).ok_or(EntityError::NotFound)?.clone();
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
        stored.encoded = encode_entry(&entry);
        stored.idle_timeout_ns = entry.idle_timeout_ns;
        self.remove_deadline(&stored);
        self.add_deadline(id, &key, &mut stored, now);
        let undo = before.map(|before| Undo::Restore(id, key.clone(), before));
        self.tables.entry(id).or_default().entries.insert(key, stored);
        Ok(undo)
    }

    /// Deletes an entry from the device and the store.
    fn delete(
        &mut self,
        device: &mut dyn Device,
        context: &UpdateContext,
        mut entry: TableEntry,
    ) -> Result<Option<Undo>, EntityError> {
        let (id, key) = self.key(&mut entry)?;
        if table_of(&self.schema, id)?.is_const {
            return Err(EntityError::ConstTable);
        }
        let table_entries = self.tables.get_mut(&id).ok_or(EntityError::NotFound)?;
        let stored = table_entries.entries.remove(&key).ok_or(EntityError::NotFound)?;
        self.remove_deadline(&stored);
        let mut stored = stored.as_of(device.remove(stored.no));
        // If the entry is restored, the device counts from zero.
        stored.counter_set.1 = EntryHits::default();
        Ok(context.is_undoable.then(|| Undo::Reinsert(id, key, Box::new(stored))))
    }

    /// Sets the counter of an entry.
    fn set_counter(
        &mut self,
        device: &mut dyn Device,
        context: &UpdateContext,
        mut entry: TableEntry,
        data: CounterData,
    ) -> Result<Option<Undo>, EntityError> {
        if !table_of(&self.schema, entry.table_id)?.has_counters {
            return Err(EntityError::NoResource("direct counter"));
        }
        let (id, key) = self.key(&mut entry)?;
        let table_entries = self.tables.get_mut(&id).ok_or(EntityError::NotFound)?;
        let stored = table_entries.entries.get_mut(&key).ok_or(EntityError::NotFound)?;
        let hits = device.hits(stored.no);
        let before = context.is_undoable.then(|| Box::new(stored.as_of(hits)));
        stored.counter_set = (data, hits);
        Ok(before.map(|before| Undo::Restore(id, key, before)))
    }

    /// Returns the table and key that an update addresses.
    fn key(&self, entry: &mut TableEntry) -> Result<(u32, EntryKey), EntityError> {
        let table = table_of(&self.schema, entry.table_id)?;
        entry.r#match = checked_match(table, std::mem::take(&mut entry.r#match))?;
        checked_priority(table, entry.priority)?;
        Ok((entry.table_id, key_of(&entry.r#match, entry.priority)))
    }

    /// Rolls an update back.
    ///
    /// # Errors
    ///
    /// The device refused; the update stays in effect.
    pub(super) fn undo(
        &mut self,
        device: &mut dyn Device,
        undo: Undo,
        now: Duration,
    ) -> Result<(), EntityError> {
        match undo {
            Undo::Remove(id, key) => {
                let table_entries = self.tables.entry(id).or_default();
                if let Some(stored) = table_entries.entries.remove(&key) {
                    self.remove_deadline(&stored);
                    device.remove(stored.no);
                }
            }
            Undo::Restore(id, key, mut before) => {
                // The entry may have been removed and inserted again since, with another number.
                let table_entries = self.tables.get(&id);
                let current =
                    table_entries.and_then(|table_entries| table_entries.entries.get(&key));
                before.continue_as(current.ok_or(EntityError::NotRestored)?);
                device.modify(before.no, &before.entry()).map_err(|_| EntityError::NotRestored)?;
                self.restore(id, key, *before, now);
            }
            Undo::Reinsert(id, key, mut before) => {
                before.no = self.next_number();
                device.insert(before.no, &before.entry()).map_err(|_| EntityError::NotRestored)?;
                self.restore(id, key, *before, now);
            }
            Undo::Default(id, before) => {
                let table = self.schema.tables.get(&id);
                let entry = before.as_deref().map(decode_entry);
                let action = entry.as_ref().and_then(crate::entry::action_of);
                let action = action.or_else(|| table?.default.as_ref());
                device.set_default(id, action).map_err(|_| EntityError::NotRestored)?;
                self.tables.entry(id).or_default().default = before;
            }
        }
        Ok(())
    }

    /// Returns a number for a new entry.
    const fn next_number(&mut self) -> EntryNo {
        let no = EntryNo(self.next_no);
        self.next_no += 1;
        no
    }

    /// Puts an entry back after a change that was rolled back.
    fn restore(&mut self, id: u32, key: EntryKey, mut stored: StoredEntry, now: Duration) {
        let table_entries = self.tables.entry(id).or_default();
        if let Some(other) = table_entries.entries.remove(&key) {
            self.remove_deadline(&other);
        }
        self.remove_deadline(&stored);
        self.add_deadline(id, &key, &mut stored, now);
        self.tables.entry(id).or_default().entries.insert(key, stored);
    }

    /// Schedules the idle timeout of an entry.
    fn add_deadline(&mut self, id: u32, key: &EntryKey, stored: &mut StoredEntry, now: Duration) {
        stored.deadline = stored.timeout().map(|timeout| now.saturating_add(timeout));
        if let Some(deadline) = stored.deadline {
            self.timed.insert(stored.no, (id, key.clone()));
            self.deadlines.insert((deadline, stored.no));
        }
    }

    /// Removes the idle timeout of an entry.
    fn remove_deadline(&mut self, stored: &StoredEntry) {
        if let Some(deadline) = stored.deadline {
            self.timed.remove(&stored.no);
            self.deadlines.remove(&(deadline, stored.no));
        }
    }

    /// Returns idle entries for one notification.
    ///
    /// The entries stay due until [`Self::postpone`].
    pub(super) fn due(
        &mut self,
        device: &mut dyn Device,
        now: Duration,
        bytes_max: usize,
    ) -> IdleEntries {
        let (mut due, mut bytes) = (IdleEntries::default(), 0);
        let mut after = Unbounded;
        while let Some(mark) = self.deadlines.range((after, Unbounded)).next().copied()
            && mark.0 <= now
            && due.entries.len() < NOTICE_ENTRIES_MAX
        {
            after = Excluded(mark);
            let Some((id, key)) = self.timed.get(&mark.1) else { continue };
            let stored = self
                .tables
                .get_mut(id)
                .and_then(|table_entries| table_entries.entries.get_mut(key));
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
            let name = idle_notice_of(stored.entry());
            bytes += nested_len(name.encoded_len());
            if bytes > bytes_max && !due.entries.is_empty() {
                break;
            }
            due.entries.push(name);
            due.deadlines_due.push(mark);
        }
        due
    }

    /// Sets the next deadline of entries that were reported.
    pub(super) fn postpone(&mut self, due: &IdleEntries, now: Duration) {
        for mark in &due.deadlines_due {
            let Some((id, key)) = self.timed.get(&mark.1) else { continue };
            let stored = self
                .tables
                .get_mut(id)
                .and_then(|table_entries| table_entries.entries.get_mut(key));
            let Some(stored) = stored else { continue };
            let Some(timeout) = stored.timeout() else { continue };
            let next = now.saturating_add(timeout);
            stored.deadline = Some(next);
            self.deadlines.remove(mark);
            self.deadlines.insert((next, mark.1));
        }
    }

    /// Returns the default entry of a table, as a read returns it.
    pub(super) fn default_of(&self, id: u32) -> Option<TableEntry> {
        let raw = self.tables.get(&id).and_then(|table_entries| table_entries.default.as_deref());
        let table = self.schema.tables.get(&id)?;
        raw.map(decode_entry).or_else(|| {
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

/// Encodes an entry.
fn encode_entry(entry: &TableEntry) -> Box<[u8]> {
    let mut writer = ProtoWriter::new();
    writer.entry(entry);
    writer.as_slice().into()
}

/// Decodes an entry that [`encode_entry`] wrote.
fn decode_entry(encoded: &[u8]) -> TableEntry {
    // Bytes that `encode_entry` wrote always decode.
    TableEntry::decode(encoded).unwrap_or_default()
}

/// Returns the form of an entry in a notification, without its action.
fn idle_notice_of(entry: TableEntry) -> TableEntry {
    TableEntry { action: None, ..entry }
}

/// Checks that a counter is not negative.
fn check_counter(data: &CounterData) -> Result<(), EntityError> {
    let is_count = data.byte_count >= 0 && data.packet_count >= 0;
    if is_count { Ok(()) } else { Err(EntityError::Count) }
}

/// Maximum length of the metadata of an entry in bytes.
///
/// The program limits all other parts of an entry, but not the metadata.
const METADATA_BYTES_MAX: usize = 1024;

/// Checks the parts of an entry other than match and action.
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
