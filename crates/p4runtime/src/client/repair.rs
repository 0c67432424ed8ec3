//! What is to be done so that a device holds just what it confirmed, and doing it.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use shunt_gigaflow::offload::LtmIndex;
use tonic::Code;
use tracing::debug;

use super::{
    SessionError, Settings,
    batch::Confirmed,
    session::{Requests, update},
};
use crate::{
    entry::{EntryKey, Use, checked_action, checked_match, key_of, table_of},
    error::EntityError,
    schema::Schema,
    wire::p4::v1::{TableEntry, update::Type},
};

/// How often a device is repaired, and read back, before it is given up.
const ROUNDS_MAX: usize = 3;

/// What a device is to hold.
#[derive(Debug, Default)]
pub(super) struct Meant {
    /// What it has confirmed.
    pub(super) confirmed: Confirmed,
    /// What it had confirmed, and did not take again: its owner is still to hear of that, in whatever
    /// session it comes to hear of anything.
    pub(super) lost: BTreeSet<LtmIndex>,
}

/// Makes a device hold what it confirmed; what it does not take again is lost, and confirmed no more.
/// `held` is what it holds.
///
/// # Errors
///
/// It cannot be done.
pub(super) async fn restore(
    requests: &mut Requests,
    (settings, batch): (&Settings, usize),
    Meant { confirmed, lost }: &mut Meant,
    mut held: Vec<TableEntry>,
) -> Result<(), SessionError> {
    let schema = Schema::read(&settings.program.p4info()).unwrap_or_default();
    for _ in 0..ROUNDS_MAX {
        let mut meant = BTreeMap::new();
        // What sends to a port that is gone cannot be said any more.
        confirmed.retain(|entry, held| {
            let value = held.value(settings, *entry);
            let is_said = value.is_ok();
            meant.extend(value.map(|value| (*entry, value)));
            if !is_said {
                lost.insert(*entry);
            }
            is_said
        });
        let repair = repair(&meant, held.into_iter().map(|entry| in_one_form(&schema, entry)));
        if repair == Repair::default() {
            return Ok(());
        }
        debug!(
            deleted = repair.delete.len(),
            inserted = repair.insert.len(),
            "the device is repaired"
        );
        for (kind, entries) in [(Type::Delete, repair.delete), (Type::Insert, repair.insert)] {
            for part in entries.chunks(batch.max(1)) {
                let codes = write(requests, kind, part).await?;
                for (entry, code) in part.iter().zip(codes) {
                    match (kind, code) {
                        (_, Code::Ok) | (Type::Delete, Code::NotFound) => {}
                        (Type::Delete, _) | (_, Code::AlreadyExists) => {
                            return Err(SessionError::Repair(code));
                        }
                        _ => {
                            let index = LtmIndex(entry.controller_metadata);
                            confirmed.remove(&index);
                            lost.insert(index);
                        }
                    }
                }
            }
        }
        held = requests.read_all().await?;
    }
    Err(SessionError::Unrepaired)
}

async fn write(
    requests: &mut Requests,
    kind: Type,
    entries: &[TableEntry],
) -> Result<Vec<Code>, SessionError> {
    let encoded = |entry: &TableEntry| update(kind, entry.clone()).encode_to_vec();
    let updates = || entries.iter().map(encoded).collect();
    let codes = match requests.write(updates()).await {
        Err(SessionError::NoDetails(_)) => requests.write_each(updates()).await?,
        written => written?,
    };
    Ok(codes.into_iter().map(|part| part.code).collect())
}

/// The entries to delete, and those to insert afterwards.
#[derive(Debug, Default, PartialEq)]
struct Repair {
    delete: Vec<TableEntry>,
    insert: Vec<TableEntry>,
}

/// An entry's place: table, match and priority.
fn place(entry: &TableEntry) -> (u32, EntryKey) {
    (entry.table_id, key_of(&entry.r#match, entry.priority))
}

/// An entry as it would be written here, whatever order and padding the device has; one that is not of
/// the program stays as it is.
fn in_one_form(schema: &Schema, entry: TableEntry) -> TableEntry {
    let formed = || -> Result<TableEntry, EntityError> {
        let table = table_of(schema, entry.table_id)?;
        Ok(TableEntry {
            r#match: checked_match(table, entry.r#match.clone())?,
            action: checked_action(schema, table, (entry.action.clone(), Use::Entry))?,
            ..entry.clone()
        })
    };
    formed().unwrap_or(entry)
}

/// Compares what was confirmed with what was read back. Deletes go first table first, inserts last
/// table first, so that no packet walks into a hole.
fn repair(
    confirmed: &BTreeMap<LtmIndex, TableEntry>,
    held: impl IntoIterator<Item = TableEntry>,
) -> Repair {
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
    use crate::{
        codec::{Ports, encode},
        program::Program,
        wire::p4::v1::{field_match::FieldMatchType, table_action},
    };
    use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
    use shunt_gigaflow::{
        ltm::{LtmRule, Next, Tag},
        partition::StageId,
    };

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

    #[test]
    fn another_order_and_other_padding_are_the_same_entry() {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        key.set_field(FieldId::NwTtl, 7);
        mask.add_field(FieldId::NwTtl);
        mask.add_field(FieldId::EthType);
        let rule = LtmRule {
            tag: Tag::new(3),
            matching: Match::new(&key, &mask),
            length: 2,
            actions: [].into(),
            rewrite: Match::new(&key, &{
                let mut mask = FlowMask::EMPTY;
                mask.add_field(FieldId::NwTtl);
                mask
            }),
            next: Next::Tag(Tag::new(4)),
        };
        let program = Program::default();
        let stage = StageId::new(0).unwrap();
        let meant = encode(&program, &Ports::default(), (stage, &rule)).unwrap();
        let mut held = meant.clone();
        held.r#match.reverse();
        for field in &mut held.r#match {
            if let Some(FieldMatchType::Exact(exact)) = &mut field.field_match_type {
                exact.value = [&[0][..], &exact.value].concat().into();
            }
        }
        if let Some(table_action::Type::Action(action)) =
            held.action.as_mut().unwrap().r#type.as_mut()
        {
            action.params.reverse();
        }
        assert_ne!(held, meant);
        let schema = Schema::read(&program.p4info()).unwrap();
        let held = in_one_form(&schema, held);
        assert_eq!(repair(&confirmed(&[meant]), [held]), Repair::default());
    }
}
