//! The initial rows of monitors as text, of which the text of unchanged rows is kept.
//!
//! Each command of `ovs-vsctl` is a client that monitors some columns of all rows. The commands
//! name the same columns, and few rows change between two commands. So the server keeps the text
//! of each row for the monitors that were started last, and encodes only changed rows. Rows are
//! compared by identity, because a changed row is a new [`Row`]. The texts keep no row in memory.

use std::{
    ptr,
    sync::{Arc, Weak},
};

use super::monitored_table::MonitorVersion;
use crate::{
    database::{ColumnId, Row},
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
    part: MonitoredPart,
    /// The rows in the order of their UUIDs.
    rows: Vec<RowText>,
    /// Number of bytes of the texts, with a comma for each.
    bytes: usize,
}

/// A row with its member of the initial reply, such as `"UUID":{"initial":{}}`.
#[derive(Debug)]
struct RowText {
    uuid: RowUuid,
    /// The row, of which the values are freed when the row changes.
    ///
    /// The address is not used again while this reference exists.
    row: Weak<Row>,
    text: String,
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
    /// Commas separate the texts. `rows` are in the order of their UUIDs. `encode` is called for
    /// each row that has changed since the last call for the same part; `None` leaves the row out.
    /// Without a part, all rows are encoded, and no text is kept.
    pub(super) fn write<'a>(
        &mut self,
        text: &mut String,
        part: Option<MonitoredPart>,
        rows: impl Iterator<Item = &'a Arc<Row>>,
        encode: impl Fn(&Arc<Row>) -> Option<String>,
    ) -> bool {
        let kept = self.tables.iter().position(|own| Some(&own.part) == part.as_ref());
        let kept = kept.map(|place| self.tables.remove(place).rows).unwrap_or_default();
        let rows = update_texts(kept, rows, encode);
        let lengths = rows.iter().map(|row| row.text.len().saturating_add(1));
        let bytes = lengths.fold(0, usize::saturating_add);
        text.reserve(bytes);
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&row.text);
        }
        let has_rows = !rows.is_empty();
        if let Some(part) = part {
            self.tables.push(TableTexts { part, rows, bytes });
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

/// Returns the texts of `rows`, of which those in `kept` are not encoded again.
fn update_texts<'a>(
    kept: Vec<RowText>,
    rows: impl Iterator<Item = &'a Arc<Row>>,
    encode: impl Fn(&Arc<Row>) -> Option<String>,
) -> Vec<RowText> {
    let mut texts = Vec::with_capacity(kept.len().saturating_add(1));
    let mut kept = kept.into_iter().peekable();
    for row in rows {
        // Rows that were deleted since are dropped.
        while kept.next_if(|own| own.uuid < row.uuid).is_some() {}
        let own = kept.next_if(|own| own.uuid == row.uuid);
        match own.filter(|own| ptr::eq(own.row.as_ptr(), Arc::as_ptr(row))) {
            Some(own) => texts.push(own),
            None => {
                let (uuid, own) = (row.uuid, Arc::downgrade(row));
                texts.extend(encode(row).map(|text| RowText { uuid, row: own, text }));
            }
        }
    }
    texts
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

    fn apply(database: &mut Database, change: &Change) {
        let (table, _) = database.schema().find_table("Interface").unwrap();
        let (mut set, _) = database.begin();
        let definition = set.definition(table).unwrap();
        match *change {
            Change::Put(number, value) => {
                let mut row = Row::new(RowUuid::from_bits(number.into()), definition);
                let (name, _) = definition.find_column("name").unwrap();
                let (mtu, _) = definition.find_column("mtu_request").unwrap();
                row.set(name, Datum::string(&format!("p\"{number}")));
                row.set(mtu, Datum::integer(value));
                set.put(table, row);
            }
            Change::Delete(number) => set.delete(table, RowUuid::from_bits(number.into())),
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
        /// The kept texts are those of a monitor that encodes all rows.
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
            let encode = |row: &Arc<Row>| {
                encoded.set(encoded.get() + 1);
                Some(row.uuid.to_string())
            };
            texts.write(&mut String::new(), Some(part.clone()), database.rows(table), encode);
            encoded.get()
        };
        assert_eq!(count(&database), 200);
        assert_eq!(count(&database), 0);
        apply(&mut database, &Change::Put(7, 2));
        apply(&mut database, &Change::Delete(8));
        apply(&mut database, &Change::Put(201, 1));
        assert_eq!(count(&database), 2);
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
