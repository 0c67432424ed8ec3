//! What is to be done so that a device holds just what it confirmed.

use std::collections::BTreeMap;

use shunt_gigaflow::target::LtmIndex;

use crate::{
    entry::{EntryKey, key_of},
    wire::p4::v1::TableEntry,
};

/// The entries to delete, and those to insert afterwards.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Repair {
    pub(super) delete: Vec<TableEntry>,
    pub(super) insert: Vec<TableEntry>,
}

/// An entry's place: table, match and priority.
fn place(entry: &TableEntry) -> (u32, EntryKey) {
    (entry.table_id, key_of(&entry.r#match, entry.priority))
}

/// Compares what was confirmed with what was read back. Deletes go first table first, inserts last
/// table first, so that no packet walks into a hole.
pub(super) fn repair(confirmed: &BTreeMap<LtmIndex, TableEntry>, held: Vec<TableEntry>) -> Repair {
    let mut missing: BTreeMap<_, &TableEntry> =
        confirmed.values().map(|entry| (place(entry), entry)).collect();
    let mut repair = Repair::default();
    for entry in held {
        let place = place(&entry);
        match missing.get(&place) {
            Some(meant) if is_same(meant, &entry) => {
                missing.remove(&place);
            }
            // A modify would do, but not every device has one.
            Some(_) | None => repair.delete.push(entry),
        }
    }
    repair.delete.sort_by_key(|entry| entry.table_id);
    repair.insert = missing.into_values().cloned().collect();
    repair.insert.sort_by_key(|entry| std::cmp::Reverse(entry.table_id));
    repair
}

/// Whether an entry does what was confirmed, under the same name.
fn is_same(meant: &TableEntry, held: &TableEntry) -> bool {
    meant.action == held.action
        && meant.controller_metadata == held.controller_metadata
        && meant.idle_timeout_ns == held.idle_timeout_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(table_id: u32, priority: i32, name: u64) -> TableEntry {
        TableEntry { table_id, priority, controller_metadata: name, ..TableEntry::default() }
    }

    fn confirmed(entries: &[TableEntry]) -> BTreeMap<LtmIndex, TableEntry> {
        entries.iter().map(|e| (LtmIndex(e.controller_metadata), e.clone())).collect()
    }

    #[test]
    fn what_is_there_stays_what_is_not_comes_and_what_is_too_much_goes() {
        let meant = confirmed(&[entry(1, 1, 1), entry(1, 2, 2), entry(2, 1, 3)]);
        let stranger = entry(2, 9, 77);
        let renamed = entry(1, 2, 99);
        let repair = repair(&meant, vec![entry(1, 1, 1), stranger.clone(), renamed.clone()]);
        assert_eq!(repair.delete, [renamed, stranger]);
        assert_eq!(repair.insert, [entry(2, 1, 3), entry(1, 2, 2)]);
    }

    #[test]
    fn a_device_that_holds_what_it_confirmed_needs_no_repair() {
        let entries = [entry(1, 1, 1), entry(2, 1, 2)];
        assert_eq!(repair(&confirmed(&entries), entries.to_vec()), Repair::default());
    }
}
