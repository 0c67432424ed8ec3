//! The repair of a device after a reconnect: it must hold exactly the confirmed rules.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use shunt_gigaflow::offload::LtmIndex;
use tonic::Code;
use tracing::debug;

use super::{
    ClientSettings, SessionError,
    batch::ConfirmedRules,
    session::{Requests, update},
};
use crate::{
    entry::{ActionUse, EntryKey, checked_action, checked_match, key_of, table_of},
    error::EntityError,
    schema::Schema,
    wire::p4::v1::{TableEntry, update::Type},
};

/// Number of repair rounds before the session is given up.
const ROUNDS_MAX: usize = 3;

/// The rules that the device should hold.
#[derive(Debug, Default)]
pub(super) struct DesiredRules {
    /// The rules that the device has confirmed.
    pub(super) confirmed: ConfirmedRules,
    /// Confirmed rules that the device did not accept again.
    ///
    /// The owner of these rules is notified in a later session if this session fails first.
    pub(super) lost: BTreeSet<LtmIndex>,
}

/// Repairs a device with entries `found` until it holds the confirmed rules.
///
/// A rule that the device does not accept again moves from `confirmed` to `lost`.
///
/// # Errors
///
/// The session fails, or the device still differs after the last round.
pub(super) async fn restore(
    requests: &mut Requests,
    settings: &ClientSettings,
    batch: usize,
    DesiredRules { confirmed, lost }: &mut DesiredRules,
    mut found: Vec<TableEntry>,
) -> Result<(), SessionError> {
    let schema = Schema::read(&settings.program.p4info()).unwrap_or_default();
    for _ in 0..ROUNDS_MAX {
        let mut desired = BTreeMap::new();
        // A rule that sends to a removed port can no longer be encoded.
        confirmed.retain(|entry, found| {
            let value = found.value(settings, *entry);
            let is_encodable = value.is_ok();
            desired.extend(value.map(|value| (*entry, value)));
            if !is_encodable {
                lost.insert(*entry);
            }
            is_encodable
        });
        let repair =
            repair(&desired, found.into_iter().map(|entry| canonical_entry(&schema, entry)));
        if repair == RepairPlan::default() {
            return Ok(());
        }
        debug!(
            deleted = repair.delete.len(),
            inserted_entry = repair.insert.len(),
            "NIC: entries that differ are deleted and inserted"
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
        found = requests.read_all().await?;
    }
    Err(SessionError::Unrepaired)
}

/// Writes updates of one kind; returns the result of each.
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

/// The entries to delete, and the entries to insert afterwards.
#[derive(Debug, Default, PartialEq)]
struct RepairPlan {
    delete: Vec<TableEntry>,
    insert: Vec<TableEntry>,
}

/// Returns the identity of an entry: table, match and priority.
fn position(entry: &TableEntry) -> (u32, EntryKey) {
    (entry.table_id, key_of(&entry.r#match, entry.priority))
}

/// Returns the canonical form of an entry, with sorted fields and minimal values.
///
/// An entry that does not belong to the program is returned unchanged.
fn canonical_entry(schema: &Schema, entry: TableEntry) -> TableEntry {
    let canonical = || -> Result<TableEntry, EntityError> {
        let table = table_of(schema, entry.table_id)?;
        Ok(TableEntry {
            r#match: checked_match(table, entry.r#match.clone())?,
            action: checked_action(schema, table, entry.action.clone(), ActionUse::Entry)?,
            ..entry.clone()
        })
    };
    canonical().unwrap_or(entry)
}

/// Compares the confirmed entries with the entries that were read from the device.
///
/// Deletes run first table first and inserts last table first, so that no packet is left without
/// its next entry.
fn repair(
    confirmed: &BTreeMap<LtmIndex, TableEntry>,
    found: impl IntoIterator<Item = TableEntry>,
) -> RepairPlan {
    let mut missing: BTreeMap<_, &TableEntry> =
        confirmed.values().map(|entry| (position(entry), entry)).collect();
    let mut repair = RepairPlan::default();
    for entry in found {
        let position = position(&entry);
        match missing.get(&position) {
            Some(desired) if has_same_effect(desired, &entry) => {
                missing.remove(&position);
            }
            // A modify would suffice, but not every device supports it.
            Some(_) | None => repair.delete.push(entry),
        }
    }
    repair.delete.sort_by_key(|entry| entry.table_id);
    repair.insert = missing.into_values().cloned().collect();
    repair.insert.sort_by_key(|entry| std::cmp::Reverse(entry.table_id));
    repair
}

/// Returns whether an entry has the confirmed effect, name and timeout.
fn has_same_effect(desired: &TableEntry, found: &TableEntry) -> bool {
    desired.action == found.action
        && desired.controller_metadata == found.controller_metadata
        && desired.idle_timeout_ns == found.idle_timeout_ns
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

    /// Returns a table entry.
    fn entry(table_id: u32, priority: i32, name: u64) -> TableEntry {
        TableEntry { table_id, priority, controller_metadata: name, ..TableEntry::default() }
    }

    fn confirmed_entries(entries: &[TableEntry]) -> BTreeMap<LtmIndex, TableEntry> {
        entries.iter().map(|e| (LtmIndex(e.controller_metadata), e.clone())).collect()
    }

    #[test]
    fn repair_inserts_missing_and_deletes_unknown_entries() {
        let desired = confirmed_entries(&[entry(1, 1, 1), entry(1, 2, 2), entry(2, 1, 3)]);
        let unknown = entry(2, 9, 77);
        let renamed = entry(1, 2, 99);
        let repair = repair(&desired, vec![entry(1, 1, 1), unknown.clone(), renamed.clone()]);
        assert_eq!(repair.delete, [renamed, unknown]);
        assert_eq!(repair.insert, [entry(2, 1, 3), entry(1, 2, 2)]);
    }

    #[test]
    fn a_device_with_all_entries_needs_no_repair() {
        let entries = [entry(1, 1, 1), entry(2, 1, 2)];
        assert_eq!(repair(&confirmed_entries(&entries), entries.to_vec()), RepairPlan::default());
    }

    #[test]
    fn order_and_padding_do_not_change_an_entry() {
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
        let desired = encode(&program, &Ports::default(), stage, &rule).unwrap();
        let mut found = desired.clone();
        found.r#match.reverse();
        for field in &mut found.r#match {
            if let Some(FieldMatchType::Exact(exact)) = &mut field.field_match_type {
                exact.value = [&[0][..], &exact.value].concat().into();
            }
        }
        if let Some(table_action::Type::Action(action)) =
            found.action.as_mut().unwrap().r#type.as_mut()
        {
            action.params.reverse();
        }
        assert_ne!(found, desired);
        let schema = Schema::read(&program.p4info()).unwrap();
        let found = canonical_entry(&schema, found);
        assert_eq!(repair(&confirmed_entries(&[desired]), [found]), RepairPlan::default());
    }
}
