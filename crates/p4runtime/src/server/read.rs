//! Reading: one entity asked for, all entries that it means.
//!
//! What is zero or unset in the question means any. A table number of zero means all tables, and then
//! nothing else can be asked for. Counters and times are told only if they are set in the question.
//!
//! A question is checked at once and answered in parts: it remembers how far it has come, so that
//! nothing is held between two parts and no part takes long, however much is asked for.

use std::{
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use prost::Message;

use super::{
    device::Device,
    part::{EncodedEntity, Part},
    store::{Store, Stored},
};
use crate::{
    entry::{EntryKey, action_of, checked_match, key_of, table_of},
    error::EntityError,
    wire::{
        Writer,
        p4::v1::{
            CounterData, DirectCounterEntry, Entity, FieldMatch, TableEntry, entity, table_action,
            table_entry,
        },
    },
};

/// A question that makes sense, and how far it is answered.
#[derive(Debug)]
pub(super) struct Question {
    entry: TableEntry,
    kind: Kind,
    next: Option<Next>,
}

/// What is told of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Entry,
    Counter,
}

/// Where to go on.
#[derive(Debug)]
enum Next {
    /// At the beginning of this table, or of the first behind it.
    Table(u32),
    /// Behind an entry.
    Behind(u32, EntryKey),
}

impl Question {
    /// Whether everything is told.
    pub(super) const fn is_answered(&self) -> bool {
        self.next.is_none()
    }

    /// Whether some of the entries that are where it looks are none of those that it means.
    fn is_filter(&self) -> bool {
        let TableEntry { r#match, action, priority, controller_metadata, metadata, .. } =
            &self.entry;
        // With both it looks in one place, with neither everywhere.
        let is_partly_place = r#match.is_empty() != (*priority == 0);
        is_partly_place || action.is_some() || *controller_metadata != 0 || !metadata.is_empty()
    }

    /// The last table that it means.
    const fn last_table(&self) -> u32 {
        if self.entry.table_id == 0 { u32::MAX } else { self.entry.table_id }
    }
}

impl Store {
    /// Takes a question.
    pub(super) fn check(&self, asked: Option<entity::Entity>) -> Result<Question, EntityError> {
        let (kind, mut entry) = match asked.ok_or(EntityError::NoEntity)? {
            entity::Entity::TableEntry(entry) => (Kind::Entry, *entry),
            entity::Entity::DirectCounterEntry(counter) => {
                let mut entry = counter.table_entry.unwrap_or_default();
                entry.counter_data = Some(CounterData::default());
                (Kind::Counter, entry)
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
            // "No other filter can be used" (P4Runtime 1.4.1, "Wildcard Reads").
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
            if kind == Kind::Counter && !table.has_counters {
                return Err(EntityError::NoResource("direct counter"));
            }
            if !entry.r#match.is_empty() {
                entry.r#match = checked_match(table, std::mem::take(&mut entry.r#match))?;
            }
        }
        let next = Some(Next::Table(entry.table_id));
        Ok(Question { entry, kind, next })
    }

    /// Tells the next of what is asked for, and looks at so many entries at most.
    pub(super) fn answer(
        &self,
        device: &mut dyn Device,
        question: &mut Question,
        (now, mut left): (Duration, usize),
        part: &mut Part,
    ) {
        if question.entry.is_default_action {
            return self.answer_defaults(question, part);
        }
        if !question.entry.r#match.is_empty() && question.entry.priority != 0 {
            question.next = None;
            let key = key_of(&question.entry.r#match, question.entry.priority);
            let shelf = self.tables.get(&question.entry.table_id);
            let stored = shelf.and_then(|shelf| shelf.entries.get(&key));
            let table = question.entry.table_id;
            let told = |stored| self.told(device, (question, table), (stored, now));
            return stored.and_then(told).into_iter().for_each(|entity| part.push(entity));
        }
        while let Some(next) = question.next.take() {
            let (first, behind) = match next {
                Next::Table(table) => (table, None),
                Next::Behind(table, key) => (table, Some(key)),
            };
            let mut tables = self.tables.range(first..=question.last_table());
            let Some((table, shelf)) = tables.next() else { return };
            let from = match &behind {
                Some(key) if *table == first => Excluded(key),
                _ => Unbounded,
            };
            for (key, stored) in shelf.entries.range::<EntryKey, _>((from, Unbounded)) {
                let told = self.told(device, (question, *table), (stored, now));
                told.into_iter().for_each(|entity| part.push(entity));
                left = left.saturating_sub(1);
                if left == 0 || part.is_full() {
                    question.next = Some(Next::Behind(*table, key.clone()));
                    return;
                }
            }
            question.next = (*table < question.last_table()).then(|| Next::Table(table + 1));
        }
    }

    /// Tells the next of the defaults that are asked for.
    fn answer_defaults(&self, question: &mut Question, part: &mut Part) {
        let Some(Next::Table(first)) = question.next.take() else { return };
        for (table, _) in self.schema.tables.range(first..=question.last_table()) {
            if part.is_full() {
                question.next = Some(Next::Table(*table));
                return;
            }
            let default = self.default_of(*table).map(|entry| wrap(&entry.encode_to_vec()));
            default.into_iter().for_each(|entity| part.push(entity));
        }
    }

    /// What is told of an entry, if it is one of those that are asked for.
    fn told(
        &self,
        device: &mut dyn Device,
        (question, table): (&Question, u32),
        (stored, now): (&Stored, Duration),
    ) -> Option<EncodedEntity> {
        let asked = &question.entry;
        if question.is_filter() && !fits(asked, &stored.entry()) {
            return None;
        }
        let table = self.schema.tables.get(&table);
        let counts = asked.counter_data.is_some() && table.is_some_and(|table| table.has_counters);
        let times = asked.time_since_last_hit.is_some();
        let hits = if counts || times { device.hits(stored.no) } else { Default::default() };
        let counter = counts.then(|| stored.counter(hits));
        if question.kind == Kind::Counter {
            let TableEntry { table_id, r#match, priority, .. } = stored.entry();
            let named = TableEntry { table_id, r#match, priority, ..TableEntry::default() };
            let counter = DirectCounterEntry { table_entry: Some(named), data: Some(counter?) };
            let entity = entity::Entity::DirectCounterEntry(Box::new(counter));
            return Some(Entity { entity: Some(entity) }.encode_to_vec());
        }
        let time_since_last_hit = times.then(|| {
            let idle = now.saturating_sub(stored.idle_since(hits));
            let elapsed_ns = i64::try_from(idle.as_nanos()).unwrap_or(i64::MAX);
            table_entry::IdleTimeout { elapsed_ns }
        });
        let found =
            TableEntry { counter_data: counter, time_since_last_hit, ..TableEntry::default() };
        let mut writer = Writer::new();
        writer.entity(|writer| {
            writer.written(&stored.said);
            // Two messages, one behind the other, are one that says what both say.
            writer.message(&found);
        });
        Some(writer.into_vec())
    }
}

fn wrap(entry: &[u8]) -> EncodedEntity {
    let mut writer = Writer::new();
    writer.entity(|writer| writer.written(entry));
    writer.into_vec()
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
