//! Reading: one entity asked for, all entries that it means.
//!
//! What is zero or unset in the question means any. A table number of zero means all tables, and then
//! only scalars can be asked for. Counters and times are told only if they are set in the question.

use std::time::Duration;

use super::{
    device::Device,
    store::{Store, Stored},
};
use crate::{
    entry::{action_of, checked_match, key_of, table_of},
    error::EntityError,
    wire::p4::v1::{DirectCounterEntry, Entity, FieldMatch, TableEntry, entity, table_entry},
};

impl Store {
    pub(super) fn read(
        &self,
        device: &mut dyn Device,
        question: Option<entity::Entity>,
        now: Duration,
    ) -> Result<Vec<Entity>, EntityError> {
        let wrap = |entity| Entity { entity: Some(entity) };
        match question.ok_or(EntityError::NoEntity)? {
            entity::Entity::TableEntry(mut question) => {
                let entries = self.find(device, &mut question, now)?;
                Ok(entries.map(|entry| wrap(entity::Entity::TableEntry(entry))).collect())
            }
            entity::Entity::DirectCounterEntry(question) => {
                let mut question = question.table_entry.unwrap_or_default();
                if question.table_id != 0
                    && !table_of(&self.schema, question.table_id)?.has_counters
                {
                    return Err(EntityError::NoResource("direct counter"));
                }
                question.counter_data = Some(crate::wire::p4::v1::CounterData::default());
                let counters = self.find(device, &mut question, now)?.filter_map(|entry| {
                    let data = Some(entry.counter_data?);
                    let named = TableEntry {
                        table_id: entry.table_id,
                        r#match: entry.r#match,
                        priority: entry.priority,
                        ..TableEntry::default()
                    };
                    let counter = DirectCounterEntry { table_entry: Some(named), data };
                    Some(wrap(entity::Entity::DirectCounterEntry(counter)))
                });
                Ok(counters.collect())
            }
            _ => Err(EntityError::Unserved),
        }
    }

    fn find(
        &self,
        device: &mut dyn Device,
        question: &mut TableEntry,
        now: Duration,
    ) -> Result<impl Iterator<Item = TableEntry> + use<>, EntityError> {
        let id = question.table_id;
        if id == 0 {
            if !question.r#match.is_empty() || question.action.is_some() {
                return Err(EntityError::AllTables);
            }
        } else {
            let table = table_of(&self.schema, id)?;
            if !question.r#match.is_empty() {
                question.r#match = checked_match(table, std::mem::take(&mut question.r#match))?;
            }
        }
        let is_meant = |table: &u32| id == 0 || *table == id;
        if question.is_default_action {
            let tables = self.schema.tables.keys().filter(|table| is_meant(table));
            let defaults: Vec<_> = tables.filter_map(|table| self.default_of(*table)).collect();
            return Ok(defaults.into_iter());
        }
        let mut found = Vec::new();
        for (_, shelf) in self.tables.iter().filter(|(table, _)| is_meant(table)) {
            if !question.r#match.is_empty() && question.priority != 0 {
                let key = key_of(&question.r#match, question.priority);
                found
                    .extend(shelf.entries.get(&key).filter(|stored| fits(question, &stored.entry)));
            } else {
                found.extend(shelf.entries.values().filter(|stored| fits(question, &stored.entry)));
            }
        }
        let told: Vec<_> =
            found.into_iter().map(|stored| self.told(device, question, (stored, now))).collect();
        Ok(told.into_iter())
    }

    fn told(
        &self,
        device: &mut dyn Device,
        question: &TableEntry,
        (stored, now): (&Stored, Duration),
    ) -> TableEntry {
        let mut entry = stored.entry.clone();
        let table = self.schema.tables.get(&entry.table_id);
        let counts =
            question.counter_data.is_some() && table.is_some_and(|table| table.has_counters);
        if counts || question.time_since_last_hit.is_some() {
            let hits = device.hits(stored.no);
            entry.counter_data = counts.then(|| stored.counter(hits));
            entry.time_since_last_hit = question.time_since_last_hit.map(|_| {
                let idle = now.saturating_sub(stored.idle_since(hits));
                let elapsed_ns = i64::try_from(idle.as_nanos()).unwrap_or(i64::MAX);
                table_entry::IdleTimeout { elapsed_ns }
            });
        }
        entry
    }
}

/// Whether an entry is one of those that are asked for.
fn fits(question: &TableEntry, entry: &TableEntry) -> bool {
    let any_or = |asked: u64, is: u64| asked == 0 || asked == is;
    let same_match = |asked: &[FieldMatch]| asked.is_empty() || asked == entry.r#match;
    let same_action = match action_of(question) {
        Some(asked) => action_of(entry).is_some_and(|is| is.action_id == asked.action_id),
        None => true,
    };
    same_match(&question.r#match)
        && same_action
        && (question.priority == 0 || question.priority == entry.priority)
        && any_or(question.controller_metadata, entry.controller_metadata)
        && (question.metadata.is_empty() || question.metadata == entry.metadata)
}
