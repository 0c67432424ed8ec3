//! Checks at the end of a transaction: references, garbage, row limits and indexes.
//!
//! The checks have the order and the messages of Open vSwitch. Strong references are
//! counted, so that the cost depends on the change and not on the database. A reference of a row to
//! itself does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Row, RowChange, WorkingSet, store::index_key};
use crate::{
    error::{ErrorTag, TransactionError},
    schema::{BaseType, ReferenceStrength, TableDefinition},
    value::{Atom, Datum, RowUuid},
};

/// A reference from a column.
struct Reference<'a> {
    /// Index of the column in its table.
    column: usize,
    /// Index of the referenced table in the schema.
    table: usize,
    /// The name of the referenced table.
    table_name: &'a str,
    /// The UUID of the referenced row.
    uuid: RowUuid,
}

/// Changes of the number of strong references, by referenced table and row.
type ReferenceDeltas = BTreeMap<(usize, RowUuid), i64>;

/// Counts the references that changed rows add and remove.
///
/// The rows that strong references name must exist.
pub(super) fn count_references(set: &mut WorkingSet<'_>) -> Result<(), TransactionError> {
    count_references_unchecked(set);
    let referential = |details| TransactionError::new(ErrorTag::Referential, details);
    // Without a deleted row, the references that a row keeps name rows that exist.
    let has_deletion = set.change.rows().any(|(_, _, change)| change.new.is_none());
    for (table, uuid, change) in set.change.rows() {
        let Some(definition) = set.definition(table) else { continue };
        if change.new.is_none() {
            let count = references_to(set, table, uuid);
            if count > 0 {
                return Err(referential(format!(
                    "cannot delete {} row {uuid} because of {count} remaining reference(s)",
                    definition.name()
                )));
            }
        }
        let Some(row) = &change.new else { continue };
        let references = if has_deletion {
            references_of(set, definition, row, ReferenceStrength::Strong)
        } else {
            let [_, added] = changed_references(set, definition, change);
            added
        };
        for reference in references {
            if set.row(reference.table, reference.uuid).is_none() {
                let column = definition.columns().get(reference.column);
                return Err(referential(format!(
                    "Table {} column {} row {uuid} references nonexistent row {} in table {}.",
                    definition.name(),
                    column.map_or("", |column| column.name()),
                    reference.uuid,
                    reference.table_name,
                )));
            }
        }
    }
    Ok(())
}

/// Counts the references that changed rows add and remove, without checks.
pub(super) fn count_references_unchecked(set: &mut WorkingSet<'_>) {
    let mut deltas = BTreeMap::new();
    for (table, uuid, change) in set.change.rows() {
        let Some(definition) = set.definition(table) else { continue };
        let [removed, added] = changed_references(set, definition, change);
        count(&mut deltas, (table, uuid), &removed, -1);
        count(&mut deltas, (table, uuid), &added, 1);
    }
    set.change.references = deltas;
}

/// Adds a step to the deltas of the rows to which a row refers.
fn count(
    deltas: &mut ReferenceDeltas,
    row: (usize, RowUuid),
    references: &[Reference<'_>],
    step: i64,
) {
    for reference in references {
        if (reference.table, reference.uuid) != row {
            let delta = deltas.entry((reference.table, reference.uuid)).or_default();
            *delta = delta.saturating_add(step);
        }
    }
}

/// Deletes rows without strong references from tables that are no roots.
///
/// Rows that only deleted rows referred to are deleted as well.
pub(super) fn collect_garbage(set: &mut WorkingSet<'_>) {
    let inserted = set.change.rows().map(|(table, uuid, _)| (table, uuid));
    let released = set.change.references.keys().copied();
    let mut pending: Vec<(usize, RowUuid)> = inserted.chain(released).collect();
    while let Some((table, uuid)) = pending.pop() {
        let Some(definition) = set.definition(table).filter(|table| !table.is_root()) else {
            continue;
        };
        let Some(row) = set.row(table, uuid).cloned() else { continue };
        if references_to(set, table, uuid) > 0 {
            continue;
        }
        let targets = references_of(set, definition, &row, ReferenceStrength::Strong);
        count(&mut set.change.references, (table, uuid), &targets, -1);
        pending.extend(targets.into_iter().map(|reference| (reference.table, reference.uuid)));
        set.delete(table, uuid);
    }
}

/// Checks `maxRows` of changed tables.
pub(super) fn check_row_limits(set: &WorkingSet<'_>) -> Result<(), TransactionError> {
    for (table, rows) in &set.change.tables {
        let Some(definition) = set.definition(*table) else { continue };
        let Some(limit) = definition.max_rows() else { continue };
        let before = set.state.tables.get(*table).map_or(0, |table| table.rows.len());
        let removed = rows.values().filter(|change| change.old.is_some()).count();
        let added = rows.values().filter(|change| change.new.is_some()).count();
        let count = (before + added).saturating_sub(removed);
        if added > removed && count > limit {
            let details = format!(
                "transaction causes \"{}\" table to contain {count} rows, greater than the schema-defined limit of {limit} row(s)",
                definition.name()
            );
            return Err(TransactionError::new(ErrorTag::Constraint, details));
        }
    }
    Ok(())
}

/// Removes weak references to rows that do not exist.
///
/// The search covers changed rows, and tables with weak references to a table with deleted rows.
pub(super) fn prune_weak_references(set: &mut WorkingSet<'_>) -> Result<(), TransactionError> {
    let lost = |table: &usize| {
        let rows = set.change.tables.get(table);
        rows.is_some_and(|rows| rows.values().any(|change| change.new.is_none()))
    };
    let schema = set.schema();
    let lost: BTreeSet<&str> = (0..schema.tables().len())
        .filter(lost)
        .filter_map(|table| schema.tables().get(table))
        .map(TableDefinition::name)
        .collect();
    for (table, definition) in schema.tables().iter().enumerate() {
        let weak: Vec<usize> = columns_with(definition, ReferenceStrength::Weak).collect();
        if weak.is_empty() {
            continue;
        }
        let refers_to_lost = weak.iter().filter_map(|column| definition.columns().get(*column));
        let refers_to_lost = refers_to_lost
            .flat_map(|column| std::iter::once(&column.kind().key).chain(&column.kind().value))
            .filter_map(BaseType::reference)
            .any(|(target, strength)| strength == ReferenceStrength::Weak && lost.contains(target));
        let rows: Vec<Arc<Row>> = if refers_to_lost {
            set.rows(table)
        } else {
            let changed = set.change.tables.get(&table);
            changed.into_iter().flatten().filter_map(|(_, change)| change.new.clone()).collect()
        };
        for row in rows {
            prune_row(set, table, definition, &weak, &row)?;
        }
    }
    Ok(())
}

/// Removes weak references to rows that do not exist.
fn prune_row(
    set: &mut WorkingSet<'_>,
    table: usize,
    definition: &TableDefinition,
    weak: &[usize],
    row: &Arc<Row>,
) -> Result<(), TransactionError> {
    for index in weak {
        let Some(column) = definition.columns().get(*index) else { continue };
        let kind = column.kind();
        let exists = |base: Option<&BaseType>, atom: Option<&Atom>| {
            let reference = base.and_then(BaseType::reference);
            match (reference, atom) {
                (Some((target, ReferenceStrength::Weak)), Some(Atom::Uuid(uuid))) => {
                    let target = set.schema().find_table(target).map(|(index, _)| index);
                    target.is_some_and(|target| set.row(target, *uuid).is_some())
                }
                _ => true,
            }
        };
        let current = set.row(table, row.uuid).unwrap_or(row);
        let Some(mut value) = current.values.get(*index).cloned() else { continue };
        let removed = value.retain(|key, value| {
            exists(Some(&kind.key), Some(key)) && exists(kind.value.as_ref(), value)
        });
        if removed == 0 {
            continue;
        }
        if value.len() < kind.min {
            let details = format!(
                "Deletion of {removed} weak reference(s) to deleted (or never-existing) rows from column \"{}\" in \"{}\" row {} has reduced the number of elements below the minimum {}",
                column.name(),
                definition.name(),
                row.uuid,
                kind.min
            );
            return Err(TransactionError::new(ErrorTag::Constraint, details));
        }
        let mut pruned = Row::clone(current);
        pruned.set(*index, value);
        set.put(table, pruned);
    }
    Ok(())
}

/// Checks that no two rows have equal values in the columns of an index.
pub(super) fn check_indexes(set: &WorkingSet<'_>) -> Result<(), TransactionError> {
    for (table, changes) in &set.change.tables {
        let Some(definition) = set.definition(*table) else { continue };
        let Some(state) = set.state.tables.get(*table) else { continue };
        for (columns, entries) in definition.indexes().iter().zip(&state.indexes) {
            let mut fresh: BTreeMap<Vec<Datum>, RowUuid> = BTreeMap::new();
            for row in changes.values().filter_map(|change| change.new.as_deref()) {
                let key = index_key(columns, row);
                let base = entries.get(&key).copied();
                if let Some(other) = base.filter(|uuid| !changes.contains_key(uuid)) {
                    return Err(duplicate_key(set, *table, columns, &key, [row.uuid, other]));
                }
                if let Some(other) = fresh.get(&key).copied() {
                    return Err(duplicate_key(set, *table, columns, &key, [other, row.uuid]));
                }
                fresh.insert(key, row.uuid);
            }
        }
    }
    Ok(())
}

/// Returns the error of two rows with equal values in an index.
fn duplicate_key(
    set: &WorkingSet<'_>,
    table: usize,
    columns: &[usize],
    key: &[Datum],
    rows: [RowUuid; 2],
) -> TransactionError {
    let definition = set.definition(table);
    let column = |index: &usize| definition.and_then(|table| table.columns().get(*index));
    let names: Vec<String> =
        columns.iter().filter_map(column).map(|column| format!("\"{}\"", column.name())).collect();
    let values: Vec<String> = columns
        .iter()
        .filter_map(column)
        .zip(key)
        .map(|(column, value)| value.to_text(column.kind()))
        .collect();
    let [first, second] = rows.map(|uuid| {
        let change = set.change.tables.get(&table).and_then(|rows| rows.get(&uuid));
        let history = match change {
            None => "existed in the database before this transaction and was not modified by the transaction",
            Some(change) if change.old.is_none() => "was inserted by this transaction",
            Some(change) => {
                let old = change.old.as_deref().map(|old| index_key(columns, old));
                if old.as_deref() == Some(key) {
                    "had the same index values before the transaction"
                } else {
                    "had other index values before the transaction"
                }
            }
        };
        (uuid, history)
    });
    let plural = if columns.len() == 1 { "" } else { "s" };
    let details = format!(
        "Transaction causes multiple rows in \"{}\" table to have identical values ({}) for index on column{plural} {}.  First row, with UUID {}, {}.  Second row, with UUID {}, {}.",
        definition.map_or("", TableDefinition::name),
        values.join(", "),
        names.join(" and "),
        first.0,
        first.1,
        second.0,
        second.1,
    );
    TransactionError::new(ErrorTag::Constraint, details)
}

/// Returns the number of strong references to a row from other rows.
fn references_to(set: &WorkingSet<'_>, table: usize, uuid: RowUuid) -> i64 {
    let base = set.state.tables.get(table).and_then(|table| table.references.get(&uuid));
    let delta = set.change.references.get(&(table, uuid)).copied().unwrap_or_default();
    base.copied().unwrap_or_default().saturating_add(delta)
}

/// Returns the indices of the columns with references of this strength.
fn columns_with(
    definition: &TableDefinition,
    strength: ReferenceStrength,
) -> impl Iterator<Item = usize> {
    let columns = definition.columns().iter().enumerate();
    columns.filter(move |(_, column)| column.has_references(strength)).map(|(index, _)| index)
}

/// Returns the references of a row.
fn references_of<'a>(
    set: &WorkingSet<'a>,
    definition: &'a TableDefinition,
    row: &Row,
    strength: ReferenceStrength,
) -> Vec<Reference<'a>> {
    let mut references = Vec::new();
    for index in columns_with(definition, strength) {
        let (Some(column), Some(value)) = (definition.columns().get(index), row.values.get(index))
        else {
            continue;
        };
        let sides = [
            (Some(&column.kind().key), value.keys()),
            (column.kind().value.as_ref(), value.values()),
        ];
        for (base, atoms) in sides {
            references.extend(references_in(set, index, base, strength, atoms));
        }
    }
    references
}

/// Returns the strong references that a changed row loses, and those that it gains.
///
/// A bridge may have thousands of ports, and a change usually adds one.
fn changed_references<'a>(
    set: &WorkingSet<'a>,
    definition: &'a TableDefinition,
    change: &RowChange,
) -> [Vec<Reference<'a>>; 2] {
    let strength = ReferenceStrength::Strong;
    let empty = Datum::empty();
    let [mut removed, mut added] = [Vec::new(), Vec::new()];
    for index in columns_with(definition, strength) {
        let Some(column) = definition.columns().get(index) else { continue };
        let [old, new] = [&change.old, &change.new]
            .map(|row| row.as_ref().and_then(|row| row.values.get(index)).unwrap_or(&empty));
        for (own, other, references) in [(old, new, &mut removed), (new, old, &mut added)] {
            let key = Some(&column.kind().key);
            let keys = own.keys_beyond(other);
            references.extend(references_in(set, index, key, strength, keys));
            // The values of a map are in the order of their keys, so equal ones are not searched.
            if own.values() != other.values() {
                let value = column.kind().value.as_ref();
                references.extend(references_in(set, index, value, strength, own.values()));
            }
        }
    }
    [removed, added]
}

/// Returns the references of atoms of a column, if their type is a reference.
fn references_in<'a, 'b>(
    set: &WorkingSet<'a>,
    column: usize,
    base: Option<&'a BaseType>,
    strength: ReferenceStrength,
    atoms: impl IntoIterator<Item = &'b Atom>,
) -> Vec<Reference<'a>> {
    let reference = base.and_then(BaseType::reference).filter(|(_, kind)| *kind == strength);
    let Some((table_name, _)) = reference else { return Vec::new() };
    let Some((table, _)) = set.schema().find_table(table_name) else { return Vec::new() };
    let uuids = atoms.into_iter().filter_map(Atom::as_uuid);
    uuids.map(|uuid| Reference { column, table, table_name, uuid }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{database::Database, schema};

    /// The values of two rows: ports of a bridge, and queues of a QoS by their numbers.
    #[derive(Clone, Debug)]
    struct TwoRows {
        ports: Option<BTreeSet<u8>>,
        queues: Option<BTreeMap<u8, u8>>,
    }

    fn two_rows() -> impl Strategy<Value = TwoRows> {
        let ports = prop::option::of(prop::collection::btree_set(0..6_u8, 0..5));
        let queues = prop::option::of(prop::collection::btree_map(0..4_u8, 0..3_u8, 0..4));
        (ports, queues).prop_map(|(ports, queues)| TwoRows { ports, queues })
    }

    /// Returns a UUID with a number.
    fn uuid(number: u8) -> RowUuid {
        RowUuid::from_bits(number.into())
    }

    /// Sets a column of the row with the UUID 200; `None` deletes the row.
    fn put(set: &mut WorkingSet<'_>, table: &str, column: &str, value: Option<Datum>) {
        let (index, definition) = set.schema().find_table(table).unwrap();
        match value {
            None => set.delete(index, uuid(200)),
            Some(value) => {
                let mut row = Row::new(uuid(200), definition);
                row.set(definition.find_column(column).unwrap().0, value);
                set.put(index, row);
            }
        }
    }

    fn put_rows(set: &mut WorkingSet<'_>, rows: &TwoRows) {
        let atom = |number: &u8| Atom::Uuid(uuid(*number));
        let ports = rows.ports.as_ref().map(|ports| Datum::set(ports.iter().map(atom)));
        let pair = |(key, value): (&u8, &u8)| (Atom::Integer(i64::from(*key)), atom(value));
        let queues = rows.queues.as_ref().map(|queues| Datum::map(queues.iter().map(pair)));
        put(set, "Bridge", "ports", ports);
        put(set, "QoS", "queues", queues);
    }

    /// Counts all references of the old and of the new rows.
    fn whole_deltas(set: &WorkingSet<'_>) -> ReferenceDeltas {
        let mut deltas = BTreeMap::new();
        for (table, uuid, change) in set.change.rows() {
            let definition = set.definition(table).unwrap();
            for (row, step) in [(&change.old, -1), (&change.new, 1)] {
                let Some(row) = row else { continue };
                let all = references_of(set, definition, row, ReferenceStrength::Strong);
                count(&mut deltas, (table, uuid), &all, step);
            }
        }
        deltas
    }

    proptest! {
        /// The deltas of changed references equal the deltas of all references.
        #[test]
        fn changed_references_have_the_same_deltas(
            [before, after] in [two_rows(), two_rows()],
        ) {
            let mut database = Database::new(schema::open_vswitch(), [7; 20]);
            let (mut set, _) = database.begin();
            put_rows(&mut set, &before);
            let change = set.finish_replay();
            database.apply(&change);
            let (mut set, _) = database.begin();
            put_rows(&mut set, &after);
            count_references_unchecked(&mut set);
            let mut whole = whole_deltas(&set);
            let mut found = set.change.references.clone();
            whole.retain(|_, delta| *delta != 0);
            found.retain(|_, delta| *delta != 0);
            prop_assert_eq!(found, whole);
        }
    }

    /// The number of other ports of the bridge makes no difference.
    #[test]
    fn a_new_reference_is_counted_alone() {
        for others in [10, 199] {
            let mut database = Database::new(schema::open_vswitch(), [7; 20]);
            let ports = |end: u8| {
                let ports = Some((0..end).collect());
                TwoRows { ports, queues: None }
            };
            let (mut set, _) = database.begin();
            put_rows(&mut set, &ports(others));
            let change = set.finish_replay();
            database.apply(&change);
            let (mut set, _) = database.begin();
            put_rows(&mut set, &ports(others + 1));
            count_references_unchecked(&mut set);
            let (port, _) = set.schema().find_table("Port").unwrap();
            assert_eq!(set.change.references, BTreeMap::from([((port, uuid(others)), 1)]));
        }
    }
}
