//! Tests that the fast codec and prost agree.

use proptest::prelude::*;
use prost::{Message, bytes::Bytes};

use super::{
    ProtoWriter,
    p4::v1::{
        Action, CounterData, Entity, FieldMatch, ReadRequest, TableAction, TableEntry, Uint128,
        Unserved, Update, WriteRequest, action, entity,
        field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary},
        table_action, table_entry,
    },
    parse,
};

/// Generates bytes.
fn bytes() -> impl Strategy<Value = Bytes> {
    // Some values are long enough for a two-byte length.
    prop_oneof![8 => prop::collection::vec(any::<u8>(), 0..17), 1 => Just(vec![7; 200])]
        .prop_map(Bytes::from)
}

/// Generates match fields.
fn fields() -> impl Strategy<Value = FieldMatch> {
    let kind = prop_oneof![
        4 => bytes().prop_map(|value| FieldMatchType::Exact(Exact { value })),
        8 => (bytes(), bytes())
            .prop_map(|(value, mask)| FieldMatchType::Ternary(Ternary { value, mask })),
        1 => (bytes(), any::<i32>())
            .prop_map(|(value, prefix_len)| FieldMatchType::Lpm(Lpm { value, prefix_len })),
        1 => (bytes(), bytes()).prop_map(|(low, high)| FieldMatchType::Range(Range { low, high })),
        1 => bytes().prop_map(|value| FieldMatchType::Optional(Optional { value })),
    ];
    (any::<u32>(), prop::option::of(kind))
        .prop_map(|(field_id, field_match_type)| FieldMatch { field_id, field_match_type })
}

fn table_actions() -> impl Strategy<Value = TableAction> {
    let param =
        (any::<u32>(), bytes()).prop_map(|(param_id, value)| action::Param { param_id, value });
    let action = (any::<u32>(), prop::collection::vec(param, 0..12))
        .prop_map(|(action_id, params)| table_action::Type::Action(Action { action_id, params }));
    let kind = prop_oneof![
        8 => action,
        1 => any::<u32>().prop_map(table_action::Type::ActionProfileMemberId),
    ];
    prop::option::of(kind).prop_map(|r#type| TableAction { r#type })
}

/// Generates an entry with the usual fields.
fn plain() -> impl Strategy<Value = TableEntry> {
    let numbers = (any::<u32>(), any::<i32>(), any::<u64>(), any::<i64>());
    let parts = (prop::collection::vec(fields(), 0..6), prop::option::of(table_actions()));
    (numbers, parts).prop_map(|((table_id, priority, name, idle_timeout_ns), (list, action))| {
        TableEntry {
            table_id,
            r#match: list,
            action,
            priority,
            controller_metadata: name,
            idle_timeout_ns,
            ..TableEntry::default()
        }
    })
}

/// Generates table entries.
fn entries() -> impl Strategy<Value = TableEntry> {
    let counter = (any::<i64>(), any::<i64>())
        .prop_map(|(byte_count, packet_count)| CounterData { byte_count, packet_count });
    let rare = (prop::option::of(counter), 0u8..32, bytes());
    (plain(), rare).prop_map(|(entry, (counter_data, rare, metadata))| {
        let is_set = |bit: u8| rare == bit;
        let time = table_entry::IdleTimeout { elapsed_ns: 3 };
        TableEntry {
            counter_data,
            is_const: is_set(1),
            is_default_action: is_set(2),
            time_since_last_hit: is_set(3).then_some(time),
            meter_config: is_set(4).then_some(Unserved {}),
            meter_counter_data: is_set(5).then_some(Unserved {}),
            metadata: if is_set(6) { metadata.into() } else { Vec::new() },
            ..entry
        }
    })
}

/// Returns a table entry as an entity.
fn entity(entry: TableEntry) -> Entity {
    Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) }
}

/// Generates write requests.
fn requests(entry: impl Strategy<Value = TableEntry>) -> impl Strategy<Value = WriteRequest> {
    let update =
        (0i32..5, entry).prop_map(|(r#type, entry)| Update { r#type, entity: Some(entity(entry)) });
    let election = prop::option::of(any::<u64>().prop_map(|low| Uint128 { high: 0, low }));
    let numbers = (any::<u64>(), election, 0i32..3);
    (numbers, prop::collection::vec(update, 0..5)).prop_map(
        |((device_id, election_id, atomicity), updates)| WriteRequest {
            device_id,
            role: "both".to_owned(),
            election_id,
            atomicity,
            updates,
        },
    )
}

/// Checks that the fast parser agrees with prost if it accepts the bytes.
fn check_parsed(bytes: &[u8]) -> Result<(), TestCaseError> {
    let whole = Bytes::copy_from_slice(bytes);
    if let Some(parsed) = parse::write_request(&whole) {
        prop_assert_eq!(Ok(parsed), WriteRequest::decode(bytes));
    }
    if let Some(parsed) = parse::read_request(&whole) {
        prop_assert_eq!(Ok(parsed), ReadRequest::decode(bytes));
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_writer_agrees_with_prost(entry in entries()) {
        let mut writer = ProtoWriter::new();
        writer.entry(&entry);
        prop_assert_eq!(writer.into_vec(), entry.encode_to_vec());
    }

    #[test]
    fn the_parser_agrees_with_prost(request in requests(entries())) {
        check_parsed(&request.encode_to_vec())?;
        let entities = request.updates.into_iter().filter_map(|update| update.entity).collect();
        let read = ReadRequest { entities, device_id: 1, ..ReadRequest::default() };
        check_parsed(&read.encode_to_vec())?;
    }

    #[test]
    fn broken_bytes_are_not_parsed(
        request in requests(entries()),
        broken in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end: prop::sample::Index,
    ) {
        let mut bytes = request.encode_to_vec();
        for (at, byte) in broken {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check_parsed(&bytes)?;
        check_parsed(&bytes[..end.index(bytes.len())])?;
    }
}

#[test]
fn requests_of_a_nic_controller_are_parsed() {
    let exact = FieldMatchType::Exact(Exact { value: vec![1].into() });
    let ternary = FieldMatchType::Ternary(Ternary { value: vec![1].into(), mask: vec![3].into() });
    let field = |(field_id, kind)| FieldMatch { field_id, field_match_type: Some(kind) };
    let params = vec![action::Param { param_id: 1, value: vec![9].into() }];
    let action = table_action::Type::Action(Action { action_id: 0x0100_0001, params });
    let entry = TableEntry {
        table_id: 0x0200_0001,
        r#match: [(1, exact), (2, ternary)].map(field).into(),
        action: Some(TableAction { r#type: Some(action) }),
        priority: 3,
        controller_metadata: u64::from(u32::MAX) << 8,
        counter_data: Some(CounterData::default()),
        idle_timeout_ns: 1_000_000_000,
        ..TableEntry::default()
    };
    let updates = vec![Update { r#type: 1, entity: Some(entity(entry.clone())) }; 3];
    let election_id = Some(Uint128 { high: 0, low: 1 });
    let write = WriteRequest { device_id: 1, election_id, updates, ..WriteRequest::default() };
    assert_eq!(parse::write_request(&write.encode_to_vec().into()), Some(write));
    let entities = vec![entity(entry); 3];
    let read = ReadRequest { device_id: 1, entities, ..ReadRequest::default() };
    assert_eq!(parse::read_request(&read.encode_to_vec().into()), Some(read));
}
