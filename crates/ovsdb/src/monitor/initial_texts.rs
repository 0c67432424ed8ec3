//! The initial rows of monitors as text, of which the text of unchanged rows is kept.
//!
//! Each command of `ovs-vsctl` is a client that monitors some columns of all rows. The commands
//! name the same columns, and few rows change between two commands. So the server keeps the texts
//! of the monitors that were started last, and encodes only changed rows. A table has parts, of
//! which those without a change are not read. Rows and parts are compared by identity, because
//! changed ones are new. The texts keep no row in memory.

use std::{
    ops::Range,
    ptr,
    sync::{Arc, Weak},
};

use super::monitored_table::MonitorVersion;
use crate::{
    database::{ColumnId, Row, RowsPart},
    value::RowUuid,
};

/// The texts of initial rows, by the monitored part of a table.
#[derive(Debug, Default)]
pub(crate) struct InitialTexts {
    /// The tables in the order of their last use.
    tables: Vec<TableTexts>,
}

/// The part of a table that a monitor reads, in the form of its generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MonitoredPart {
    pub(super) version: MonitorVersion,
    /// The position of the table in the schema.
    pub(super) table: usize,
    pub(super) columns: Vec<ColumnId>,
}

/// The texts of the rows of one table.
#[derive(Debug)]
struct TableTexts {
    /// The monitored columns of the table.
    part: MonitoredPart,
    /// One text for each part of the table.
    parts: Vec<PartText>,
    /// Number of bytes of the texts, with a comma for each.
    bytes: usize,
}

/// The text of the rows in one part of a table, separated by commas.
#[derive(Debug, Default)]
struct PartText {
    /// The part of the table, of which the rows move to a new one with each change.
    ///
    /// The address is not used again while this reference exists.
    rows: Weak<RowsPart>,
    /// The places of the rows in the text, in the order of their UUIDs.
    places: Vec<RowPlace>,
    /// The members of the initial reply, separated by commas.
    text: String,
}

/// The place of a row in the text of its part.
#[derive(Debug)]
struct RowPlace {
    /// The UUID of the row.
    uuid: RowUuid,
    /// The row, of which the values are freed when the row changes.
    ///
    /// The address is not used again while this reference exists.
    row: Weak<Row>,
    /// The bytes of the member of the initial reply, such as `"UUID":{"initial":{}}`.
    bytes: Range<usize>,
}

/// Maximum number of kept tables.
///
/// A command of `ovs-vsctl` monitors up to ten tables.
const TABLES_MAX: usize = 64;

/// Maximum number of bytes of kept texts.
const BYTES_MAX: usize = 16 << 20;

impl InitialTexts {
    /// Adds the texts of rows to `text`, and returns whether there are any.
    ///
    /// Commas separate the texts. `parts` has the rows of the table. `encode` adds the text of a
    /// row that has changed since the last call for the same part of a monitor, or leaves the row
    /// out. Without a part, all rows are encoded, and no text is kept.
    pub(super) fn write(
        &mut self,
        text: &mut String,
        part: Option<MonitoredPart>,
        parts: &[Arc<RowsPart>],
        encode: impl Fn(&Row, &mut String),
    ) -> bool {
        let kept = self.tables.iter().position(|own| Some(&own.part) == part.as_ref());
        let kept = kept.map(|place| self.tables.remove(place).parts).unwrap_or_default();
        let mut kept = kept.into_iter();
        let update = |rows| kept.next().unwrap_or_default().after(rows, &encode);
        let parts: Vec<PartText> = parts.iter().map(update).collect();
        let lengths = parts.iter().map(|part| part.text.len().saturating_add(1));
        let bytes = lengths.fold(0, usize::saturating_add);
        text.reserve(bytes);
        let mut has_rows = false;
        for part in parts.iter().filter(|part| !part.text.is_empty()) {
            if has_rows {
                text.push(',');
            }
            text.push_str(&part.text);
            has_rows = true;
        }
        if let Some(part) = part {
            self.tables.push(TableTexts { part, parts, bytes });
            self.limit(TABLES_MAX, BYTES_MAX);
        }
        has_rows
    }

    /// Removes the tables that were used least recently, until the others fit.
    fn limit(&mut self, tables_max: usize, bytes_max: usize) {
        let (mut count, mut bytes) = (0_usize, 0_usize);
        let fits = |table: &&TableTexts| {
            count = count.saturating_add(1);
            bytes = bytes.saturating_add(table.bytes);
            count <= tables_max && bytes <= bytes_max
        };
        let kept = self.tables.iter().rev().take_while(fits).count();
        let removed = self.tables.len().saturating_sub(kept);
        self.tables.drain(..removed);
    }
}

impl PartText {
    /// Returns the text of the same part with these rows.
    ///
    /// Unchanged rows are not encoded again.
    fn after(self, rows: &Arc<RowsPart>, encode: &impl Fn(&Row, &mut String)) -> Self {
        if ptr::eq(self.rows.as_ptr(), Arc::as_ptr(rows)) {
            return self;
        }
        let Self { places: kept, text: old, .. } = self;
        let mut kept = kept.into_iter().peekable();
        let mut text = String::with_capacity(old.len());
        let mut places = Vec::with_capacity(rows.len());
        for (uuid, row) in rows.iter() {
            // Rows that were deleted since are dropped.
            while kept.next_if(|own| own.uuid < *uuid).is_some() {}
            let own = kept.next_if(|own| own.uuid == *uuid);
            let own = own.filter(|own| ptr::eq(own.row.as_ptr(), Arc::as_ptr(row)));
            let before = text.len();
            if before > 0 {
                text.push(',');
            }
            let start = text.len();
            match own.and_then(|own| old.get(own.bytes)) {
                Some(own) => text.push_str(own),
                None => encode(row, &mut text),
            }
            if text.len() == start {
                text.truncate(before);
                continue;
            }
            places.push(RowPlace {
                uuid: *uuid,
                row: Arc::downgrade(row),
                bytes: start..text.len(),
            });
        }
        Self { rows: Arc::downgrade(rows), places, text }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{database::Database, monitor::RowMonitor, schema, value::Datum};

    /// A change of the interface with the given number.
    #[derive(Clone, Debug)]
    enum Change {
        /// Inserts or changes the row.
        Put(u8, i64),
        Delete(u8),
    }

    fn any_change() -> impl Strategy<Value = Change> {
        prop_oneof![
            3 => (0..8_u8, 0..3_i64).prop_map(|(row, value)| Change::Put(row, value)),
            1 => (0..8_u8).prop_map(Change::Delete),
        ]
    }

    /// Returns a UUID of one of all parts.
    fn uuid(number: u8) -> RowUuid {
        RowUuid::from_bits(u128::from(number) << 120)
    }

    /// Applies a change to a database.
    fn apply(database: &mut Database, change: &Change) {
        let (table, _) = database.schema().find_table("Interface").unwrap();
        let (mut set, _) = database.begin();
        let definition = set.definition(table).unwrap();
        match *change {
            Change::Put(number, value) => {
                let mut row = Row::new(uuid(number), definition);
                let (name, _) = definition.find_column("name").unwrap();
                let (mtu, _) = definition.find_column("mtu_request").unwrap();
                row.set(name, Datum::string(&format!("p\"{number}")));
                row.set(mtu, Datum::integer(value));
                set.put(table, row);
            }
            Change::Delete(number) => set.delete(table, uuid(number)),
        }
        let change = set.finish_replay();
        database.apply(&change);
    }

    /// Returns monitors of several columns, conditions and generations.
    fn monitors(database: &Database) -> Vec<RowMonitor> {
        let monitor = |requests: &Value, version| {
            RowMonitor::from_json(requests, database.schema(), version).unwrap()
        };
        let all = json!({"Interface": {}, "Bridge": {}});
        let name = json!({"Interface": {"columns": ["name"]}});
        let large = json!({"Interface": {"where": [["mtu_request", "==", 2]]}});
        let later = json!({"Interface": {"columns": ["name"], "select": {"initial": false}}});
        let empty = json!({"Interface": {"columns": []}});
        let two = MonitorVersion::Two;
        let mut all: Vec<_> = [MonitorVersion::One, two, MonitorVersion::Three]
            .map(|version| monitor(&all, version))
            .into();
        all.extend([name, large, later, empty].map(|requests| monitor(&requests, two)));
        all
    }

    proptest! {
        /// The kept texts equal the texts of a monitor that encodes all rows.
        #[test]
        fn kept_texts_equal_encoded_rows(
            changes in prop::collection::vec((any_change(), 0..7_usize), 1..40),
        ) {
            let mut database = Database::new(schema::open_vswitch(), [7; 20]);
            let (mut texts, monitors) = (InitialTexts::default(), monitors(&database));
            for (change, place) in changes {
                apply(&mut database, &change);
                let mut text = String::new();
                monitors[place].write_initial(&database, &mut texts, &mut text);
                let found: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(found, monitors[place].initial(&database));
            }
        }
    }

    /// One changed row of many is encoded alone.
    #[test]
    fn only_changed_rows_are_encoded() {
        let mut database = Database::new(schema::open_vswitch(), [7; 20]);
        let (table, _) = database.schema().find_table("Interface").unwrap();
        (0..200).for_each(|number| apply(&mut database, &Change::Put(number, 1)));
        let (mut texts, encoded) = (InitialTexts::default(), Cell::new(0));
        let part = MonitoredPart { version: MonitorVersion::Two, table, columns: Vec::new() };
        let mut count = |database: &Database| {
            encoded.set(0);
            let encode = |row: &Row, text: &mut String| {
                encoded.set(encoded.get() + 1);
                text.push_str(&row.uuid.to_string());
            };
            texts.write(&mut String::new(), Some(part.clone()), database.parts(table), encode);
            encoded.get()
        };
        assert_eq!(count(&database), 200);
        assert_eq!(count(&database), 0);
        apply(&mut database, &Change::Put(7, 2));
        apply(&mut database, &Change::Delete(8));
        apply(&mut database, &Change::Put(201, 1));
        assert_eq!(count(&database), 2);
    }

    /// The text of a part without a change stays in its place in memory.
    #[test]
    fn only_changed_parts_are_read() {
        let mut database = Database::new(schema::open_vswitch(), [7; 20]);
        let (table, _) = database.schema().find_table("Interface").unwrap();
        (0..200).for_each(|number| apply(&mut database, &Change::Put(number, 1)));
        let part = MonitoredPart { version: MonitorVersion::Two, table, columns: Vec::new() };
        let mut texts = InitialTexts::default();
        let mut places = |database: &Database| -> Vec<*const u8> {
            let encode = |row: &Row, text: &mut String| text.push_str(&row.uuid.to_string());
            texts.write(&mut String::new(), Some(part.clone()), database.parts(table), encode);
            let parts = texts.tables.iter().flat_map(|own| &own.parts);
            parts.filter(|part| !part.text.is_empty()).map(|part| part.text.as_ptr()).collect()
        };
        let before = places(&database);
        // The owner of a server keeps a snapshot of the rows.
        let snapshot = database.snapshot();
        apply(&mut database, &Change::Put(7, 2));
        let after = places(&database);
        assert_eq!((before.len(), after.len()), (50, 50));
        let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
        assert_eq!(changed, 1);
        drop(snapshot);
    }

    #[test]
    fn texts_that_were_not_used_are_removed() {
        let mut database = Database::new(schema::open_vswitch(), [7; 20]);
        apply(&mut database, &Change::Put(1, 1));
        let mut texts = InitialTexts::default();
        for monitor in monitors(&database) {
            monitor.write_initial(&database, &mut texts, &mut String::new());
        }
        let last = texts.tables.last().map(|own| own.part.clone());
        texts.limit(2, usize::MAX);
        assert_eq!(texts.tables.len(), 2);
        assert_eq!(texts.tables.last().map(|own| own.part.clone()), last);
        texts.limit(2, 1);
        assert!(texts.tables.is_empty());
    }

    /// A condition may be long, and would be in memory after its client has left.
    #[test]
    fn no_condition_is_kept() {
        let mut database = Database::new(schema::open_vswitch(), [7; 20]);
        apply(&mut database, &Change::Put(1, 2));
        let mut texts = InitialTexts::default();
        for (condition, count) in [(json!([["mtu_request", "==", 2]]), 0), (json!([true]), 1)] {
            let requests = json!({"Interface": {"where": condition}});
            let two = MonitorVersion::Two;
            let monitor = RowMonitor::from_json(&requests, database.schema(), two).unwrap();
            let mut text = String::new();
            monitor.write_initial(&database, &mut texts, &mut text);
            assert!(text.contains("mtu_request"), "{text}");
            assert_eq!(texts.tables.len(), count, "{condition}");
        }
    }

    /// Statistics replace all rows often, and old values would fill the memory.
    #[test]
    fn a_kept_text_keeps_no_values() {
        let mut database = Database::new(schema::open_vswitch(), [7; 20]);
        apply(&mut database, &Change::Put(1, 1));
        let mut texts = InitialTexts::default();
        for monitor in monitors(&database) {
            monitor.write_initial(&database, &mut texts, &mut String::new());
        }
        let (table, _) = database.schema().find_table("Interface").unwrap();
        let row = Arc::downgrade(database.rows(table).next().unwrap());
        assert!(row.upgrade().is_some());
        apply(&mut database, &Change::Put(1, 2));
        assert!(row.upgrade().is_none());
    }
}
