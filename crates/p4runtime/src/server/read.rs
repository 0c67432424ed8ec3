//! Reads: the query of one entity selects any number of entries.
//!
//! Fields that are zero or unset match any value. A table id of zero selects all tables and allows
//! no other filter. Counters and times are returned only if the query sets their fields.
//!
//! A query is validated at once, but executed in parts. The query stores its position, so no lock
//! is held between two parts and no part takes long.

use std::{
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use prost::Message;

use super::{
    device::Device,
    response_part::{EncodedEntity, ResponsePart},
    store::{EntryStore, StoredEntry},
};
use crate::{
    entry::{EntryKey, action_of, checked_match, key_of, table_of},
    error::EntityError,
    wire::{
        ProtoWriter,
        p4::v1::{
            CounterData, DirectCounterEntry, Entity, FieldMatch, TableEntry, entity, table_action,
            table_entry,
        },
    },
};

/// A valid query, and its position.
#[derive(Debug)]
pub(super) struct ReadQuery {
    entry: TableEntry,
    kind: QueryKind,
    /// The position of the next entry; `None` at the end.
    next: Option<QueryPosition>,
}

/// The kind of entity to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryKind {
    Entry,
    Counter,
}

/// The position at which to continue.
#[derive(Debug)]
enum QueryPosition {
    /// At the start of the table with this id, or of the next existing table.
    Table(u32),
    /// After the entry with this table id and key.
    After(u32, EntryKey),
}

impl ReadQuery {
    /// Returns whether all entries are read.
    pub(super) const fn is_done(&self) -> bool {
        self.next.is_none()
    }

    /// Returns whether entries at the query's position must also match a filter.
    fn is_filter(&self) -> bool {
        let TableEntry { r#match, action, priority, controller_metadata, metadata, .. } =
            &self.entry;
        // A query with both fields reads one entry, a query with neither all entries.
        let has_partial_key = r#match.is_empty() != (*priority == 0);
        has_partial_key || action.is_some() || *controller_metadata != 0 || !metadata.is_empty()
    }

    /// Returns the last table that the query selects.
    const fn last_table(&self) -> u32 {
        if self.entry.table_id == 0 { u32::MAX } else { self.entry.table_id }
    }
}

impl EntryStore {
    /// Checks that a read request can be answered.
    pub(super) fn check(
        &self,
        query_entry: Option<entity::Entity>,
    ) -> Result<ReadQuery, EntityError> {
        let (kind, mut entry) = match query_entry.ok_or(EntityError::NoEntity)? {
            entity::Entity::TableEntry(entry) => (QueryKind::Entry, *entry),
            entity::Entity::DirectCounterEntry(counter) => {
                let mut entry = counter.table_entry.unwrap_or_default();
                entry.counter_data = Some(CounterData::default());
                (QueryKind::Counter, entry)
            }
            _ => return Err(EntityError::Unserved),
        };
        if let Some(action) = &entry.action
            && !matches!(action.r#type, Some(table_action::Type::Action(_)))
        {
            return Err(EntityError::ActionKind);
        }
        if entry.priority < 0 {
            return Err(EntityError::Priority(entry.priority));
        }
        if entry.is_default_action && !(entry.r#match.is_empty() && entry.priority == 0) {
            return Err(EntityError::Default);
        }
        if entry.table_id == 0 {
            // The specification says: "No other filter can be used" (1.4.1, "Wildcard Reads").
            let is_filtered = !entry.r#match.is_empty()
                || entry.action.is_some()
                || entry.priority != 0
                || entry.controller_metadata != 0
                || !entry.metadata.is_empty();
            if is_filtered {
                return Err(EntityError::AllTables);
            }
        } else {
            let table = table_of(&self.schema, entry.table_id)?;
            if kind == QueryKind::Counter && !table.has_counters {
                return Err(EntityError::NoResource("direct counter"));
            }
            if !entry.r#match.is_empty() {
                entry.r#match = checked_match(table, std::mem::take(&mut entry.r#match))?;
            }
        }
        let next = Some(QueryPosition::Table(entry.table_id));
        Ok(ReadQuery { entry, kind, next })
    }

    /// Reads the next entries of a query, examining at most `left` of them.
    pub(super) fn read_next(
        &self,
        device: &mut dyn Device,
        query: &mut ReadQuery,
        now: Duration,
        mut left: usize,
        part: &mut ResponsePart,
    ) {
        if query.entry.is_default_action {
            return self.read_defaults(query, part);
        }
        if !query.entry.r#match.is_empty() && query.entry.priority != 0 {
            query.next = None;
            let key = key_of(&query.entry.r#match, query.entry.priority);
            let table_entries = self.tables.get(&query.entry.table_id);
            let stored = table_entries.and_then(|table_entries| table_entries.entries.get(&key));
            let table = query.entry.table_id;
            let encode_found = |stored| self.encode_found(device, query, table, stored, now);
            return stored.and_then(encode_found).into_iter().for_each(|entity| part.push(entity));
        }
        while let Some(next) = query.next.take() {
            let (first, after) = match next {
                QueryPosition::Table(table) => (table, None),
                QueryPosition::After(table, key) => (table, Some(key)),
            };
            let mut tables = self.tables.range(first..=query.last_table());
            let Some((table, table_entries)) = tables.next() else { return };
            let from = match &after {
                Some(key) if *table == first => Excluded(key),
                _ => Unbounded,
            };
            for (key, stored) in table_entries.entries.range::<EntryKey, _>((from, Unbounded)) {
                let encode_found = self.encode_found(device, query, *table, stored, now);
                encode_found.into_iter().for_each(|entity| part.push(entity));
                left = left.saturating_sub(1);
                if left == 0 || part.is_full() {
                    query.next = Some(QueryPosition::After(*table, key.clone()));
                    return;
                }
            }
            query.next = (*table < query.last_table()).then(|| QueryPosition::Table(table + 1));
        }
    }

    /// Reads the next default entries of a query.
    fn read_defaults(&self, query: &mut ReadQuery, part: &mut ResponsePart) {
        let Some(QueryPosition::Table(first)) = query.next.take() else { return };
        for (table, _) in self.schema.tables.range(first..=query.last_table()) {
            if part.is_full() {
                query.next = Some(QueryPosition::Table(*table));
                return;
            }
            let default = self.default_of(*table).map(|entry| wrap(&entry.encode_to_vec()));
            default.into_iter().for_each(|entity| part.push(entity));
        }
    }

    /// Encodes an entry if the query selects it.
    fn encode_found(
        &self,
        device: &mut dyn Device,
        query: &ReadQuery,
        table: u32,
        stored: &StoredEntry,
        now: Duration,
    ) -> Option<EncodedEntity> {
        let query_entry = &query.entry;
        if query.is_filter() && !is_selected(query_entry, &stored.entry()) {
            return None;
        }
        let table = self.schema.tables.get(&table);
        let counts =
            query_entry.counter_data.is_some() && table.is_some_and(|table| table.has_counters);
        let times = query_entry.time_since_last_hit.is_some();
        let hits = if counts || times { device.hits(stored.no) } else { Default::default() };
        let counter = counts.then(|| stored.counter(hits));
        if query.kind == QueryKind::Counter {
            let TableEntry { table_id, r#match, priority, .. } = stored.entry();
            let named = TableEntry { table_id, r#match, priority, ..TableEntry::default() };
            let counter = DirectCounterEntry { table_entry: Some(named), data: Some(counter?) };
            let entity = entity::Entity::DirectCounterEntry(Box::new(counter));
            return Some(Entity { entity: Some(entity) }.encode_to_vec());
        }
        let time_since_last_hit = times.then(|| {
            let idle = now.saturating_sub(stored.idle_since(hits));
            // 63 bits of nanoseconds last for 292 years.
            let elapsed_ns = i64::try_from(idle.as_nanos()).unwrap_or(i64::MAX);
            table_entry::IdleTimeout { elapsed_ns }
        });
        let found =
            TableEntry { counter_data: counter, time_since_last_hit, ..TableEntry::default() };
        let mut writer = ProtoWriter::new();
        writer.entity(|writer| {
            writer.raw(&stored.encoded);
            // Two concatenated messages are one message with the fields of both.
            writer.message(&found);
        });
        Some(writer.into_vec())
    }
}

/// Encodes a table entry as an entity.
fn wrap(entry: &[u8]) -> EncodedEntity {
    let mut writer = ProtoWriter::new();
    writer.entity(|writer| writer.raw(entry));
    writer.into_vec()
}

/// Returns whether a query selects an entry.
fn is_selected(query: &TableEntry, entry: &TableEntry) -> bool {
    let any_or = |query_entry: u64, is: u64| query_entry == 0 || query_entry == is;
    let same_match =
        |query_entry: &[FieldMatch]| query_entry.is_empty() || query_entry == entry.r#match;
    let same_action = match action_of(query) {
        Some(query_entry) => {
            action_of(entry).is_some_and(|is| is.action_id == query_entry.action_id)
        }
        None => true,
    };
    same_match(&query.r#match)
        && same_action
        && (query.priority == 0 || query.priority == entry.priority)
        && any_or(query.controller_metadata, entry.controller_metadata)
        && (query.metadata.is_empty() || query.metadata == entry.metadata)
}
