//! Tests of writes: P4Runtime, "TableEntry", "Write RPC" and "Error Reporting".

use shunt_p4runtime::{
    program::{MISS_ACTION, START_ACTION, START_TABLE},
    server::EntryHits,
    wire::p4::v1::{
        self, CounterData, DirectCounterEntry, Entity, TableEntry, Unserved, Update, WriteRequest,
        entity, table_action, table_entry, update::Type, write_request::Atomicity,
    },
};
use tonic::Code;

use crate::peer::{
    DEVICE, FIXED, LTM, NEXT, ONLY_DEFAULT, ONLY_ENTRY, RANGES, ROUTES, SEND, SMALL, ServerFixture,
    action, exact, id, lpm, ltm, optional, range, route, ternary, update,
};

fn with(change: impl FnOnce(&mut TableEntry)) -> TableEntry {
    let mut entry = ltm(1, 1);
    change(&mut entry);
    entry
}

fn matching(fields: Vec<v1::FieldMatch>) -> TableEntry {
    with(|entry| entry.r#match = fields)
}

fn range_entry(fields: Vec<v1::FieldMatch>, priority: i32) -> TableEntry {
    TableEntry {
        table_id: RANGES,
        r#match: fields,
        action: action(SEND, &[(1, &[1])]),
        priority,
        ..TableEntry::default()
    }
}

fn route_entry(fields: Vec<v1::FieldMatch>) -> TableEntry {
    TableEntry { r#match: fields, ..route(1) }
}

fn default_entry(table_id: u32, action: Option<v1::TableAction>) -> TableEntry {
    TableEntry { table_id, action, is_default_action: true, ..TableEntry::default() }
}

/// The code of an accepted update.
const OK: Code = Code::Ok;
/// The code of a malformed value or an unknown id.
const BAD: Code = Code::InvalidArgument;
/// The code of a value with the wrong width.
const RANGE: Code = Code::OutOfRange;
/// The code of an update that the server never allows.
const DENIED: Code = Code::PermissionDenied;

/// Returns inserts and the expected result of each.
#[expect(clippy::too_many_lines, reason = "the function is a list of cases")]
fn inserts() -> Vec<(&'static str, TableEntry, Code)> {
    let tag = || exact(1, &[1]);
    let dst = || ternary(8, &[10], &[255]);
    let next = |params: &[(u32, &[u8])]| with(|entry| entry.action = action(NEXT, params));
    vec![
        ("an entry", ltm(1, 1), OK),
        ("fields in any order", matching(vec![dst(), tag()]), OK),
        ("leading zeros", matching(vec![exact(1, &[0, 0, 1])]), OK),
        ("no ternary field at all", matching(vec![tag()]), OK),
        (
            "all bits of an odd width",
            matching(vec![tag(), ternary(15, &[15, 255], &[15, 255])]),
            OK,
        ),
        ("table of another kind of id", with(|e| e.table_id = NEXT), BAD),
        ("no table", with(|e| e.table_id = 0), BAD),
        ("unknown table", with(|e| e.table_id = 0x02ff_ffff), Code::NotFound),
        ("unknown field", matching(vec![tag(), ternary(99, &[1], &[1])]), BAD),
        (
            "field without a kind",
            matching(vec![v1::FieldMatch { field_id: 1, ..Default::default() }]),
            BAD,
        ),
        ("field of another kind", matching(vec![ternary(1, &[1], &[1])]), BAD),
        ("field twice", matching(vec![tag(), dst(), dst()]), BAD),
        ("exact field missing", matching(vec![dst()]), BAD),
        ("empty value", matching(vec![exact(1, &[])]), RANGE),
        ("empty mask", matching(vec![tag(), ternary(8, &[1], &[])]), RANGE),
        ("value too wide", matching(vec![exact(1, &[1, 0, 0])]), RANGE),
        ("value too wide by a bit", matching(vec![tag(), ternary(12, &[4], &[7])]), RANGE),
        ("mask of zero", matching(vec![tag(), ternary(8, &[0], &[0])]), BAD),
        ("value outside of its mask", matching(vec![tag(), ternary(8, &[3], &[1])]), BAD),
        ("no priority", with(|e| e.priority = 0), BAD),
        ("negative priority", with(|e| e.priority = -1), BAD),
        ("greatest priority", with(|e| e.priority = i32::MAX), OK),
        ("no action", with(|e| e.action = None), BAD),
        ("action without a kind", with(|e| e.action = Some(v1::TableAction::default())), BAD),
        ("unknown action", with(|e| e.action = action(0x0100_ffff, &[])), BAD),
        ("action of another table", with(|e| e.action = action(SEND, &[(1, &[1])])), BAD),
        ("action for defaults alone", with(|e| e.action = action(MISS_ACTION.id, &[])), DENIED),
        (
            "action of a profile",
            with(|e| {
                let member = table_action::Type::ActionProfileMemberId(1);
                e.action = Some(v1::TableAction { r#type: Some(member) });
            }),
            BAD,
        ),
        (
            "one-shot action",
            with(|e| {
                let set = table_action::Type::ActionProfileActionSet(Unserved {});
                e.action = Some(v1::TableAction { r#type: Some(set) });
            }),
            BAD,
        ),
        ("parameter missing", next(&[]), BAD),
        ("parameter too many", next(&[(1, &[1]), (2, &[1])]), BAD),
        ("parameter twice", next(&[(1, &[1]), (1, &[1])]), BAD),
        ("unknown parameter", next(&[(7, &[1])]), BAD),
        ("parameter empty", next(&[(1, &[])]), RANGE),
        ("parameter too wide", next(&[(1, &[1, 0, 0])]), RANGE),
        ("constant entry", with(|e| e.is_const = true), BAD),
        (
            "time since the last hit",
            with(|e| {
                e.time_since_last_hit = Some(table_entry::IdleTimeout::default());
            }),
            BAD,
        ),
        ("meter", with(|e| e.meter_config = Some(Unserved {})), BAD),
        ("negative timeout", with(|e| e.idle_timeout_ns = -1), BAD),
        ("timeout", with(|e| e.idle_timeout_ns = 1_000_000_000), OK),
        ("counter with a value", with(|e| e.counter_data = Some(CounterData::default())), OK),
        ("metadata", with(|e| e.metadata = b"mine".to_vec()), OK),
        ("route", route(1), OK),
        ("no prefix", route_entry(vec![exact(1, &[1])]), OK),
        ("prefix of all bits", route_entry(vec![exact(1, &[1]), lpm(2, &[10, 0, 0, 1], 32)]), OK),
        ("prefix of zero bits", route_entry(vec![exact(1, &[1]), lpm(2, &[0], 0)]), BAD),
        ("negative prefix", route_entry(vec![exact(1, &[1]), lpm(2, &[0], -1)]), BAD),
        ("prefix too long", route_entry(vec![exact(1, &[1]), lpm(2, &[10, 0, 0, 0], 33)]), BAD),
        (
            "bits after the prefix",
            route_entry(vec![exact(1, &[1]), lpm(2, &[10, 0, 0, 1], 8)]),
            BAD,
        ),
        ("priority without masks", TableEntry { priority: 1, ..route(1) }, BAD),
        ("timeout of a table without", TableEntry { idle_timeout_ns: 1, ..route(1) }, BAD),
        (
            "counter of a table without",
            TableEntry { counter_data: Some(CounterData::default()), ..route(1) },
            BAD,
        ),
        ("range", range_entry(vec![range(1, &[1], &[2])], 1), OK),
        ("range of one", range_entry(vec![range(1, &[2], &[2])], 1), OK),
        ("range of unequal lengths", range_entry(vec![range(1, &[255], &[1, 0])], 1), OK),
        ("range backwards", range_entry(vec![range(1, &[3], &[2])], 1), BAD),
        ("range of everything", range_entry(vec![range(1, &[0], &[255, 255])], 1), BAD),
        ("optional", range_entry(vec![optional(2, &[0])], 1), OK),
        ("optional too wide", range_entry(vec![optional(2, &[1, 0])], 1), RANGE),
        ("range without priority", range_entry(vec![range(1, &[1], &[2])], 0), BAD),
        (
            "constant table",
            TableEntry {
                table_id: FIXED,
                r#match: vec![exact(1, &[1])],
                action: action(SEND, &[(1, &[1])]),
                ..TableEntry::default()
            },
            DENIED,
        ),
        (
            "table without a key",
            TableEntry {
                table_id: START_TABLE,
                action: action(START_ACTION.id, &[(1, &[1])]),
                ..TableEntry::default()
            },
            BAD,
        ),
        ("default entry", default_entry(START_TABLE, action(START_ACTION.id, &[(1, &[1])])), BAD),
    ]
}

#[tokio::test]
async fn an_invalid_insert_returns_its_error() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    for (name, entry, expected) in inserts() {
        assert_eq!(peer.code(Type::Insert, entry.clone()).await, expected, "{name}");
        if expected == OK {
            assert_eq!(peer.code(Type::Delete, entry).await, OK, "{name}");
        }
    }
    assert!(fixture.device.0.lock().entries.is_empty());
}

#[tokio::test]
async fn an_entry_is_identified_by_match_and_priority() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let shorter = with(|entry| entry.priority = 2);
    let padded = matching(vec![ternary(8, &[10, 0, 0, 1], &[255; 4]), exact(1, &[0, 1])]);
    for (name, kind, entry, expected) in [
        ("modify what is not there", Type::Modify, ltm(1, 1), Code::NotFound),
        ("delete what is not there", Type::Delete, ltm(1, 1), Code::NotFound),
        ("insert", Type::Insert, ltm(1, 1), OK),
        ("insert again", Type::Insert, ltm(1, 1), Code::AlreadyExists),
        ("insert in another form", Type::Insert, padded.clone(), Code::AlreadyExists),
        ("insert of another priority", Type::Insert, shorter.clone(), OK),
        ("modify", Type::Modify, padded, OK),
        ("delete of the other priority", Type::Delete, shorter.clone(), OK),
        ("delete it again", Type::Delete, shorter, Code::NotFound),
        ("delete by the key alone", Type::Delete, with(|entry| entry.action = None), OK),
        ("delete without priority", Type::Delete, with(|entry| entry.priority = 0), BAD),
        ("update without a type", Type::Unspecified, ltm(1, 1), BAD),
    ] {
        assert_eq!(peer.code(kind, entry).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_modify_without_an_action_keeps_the_action() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    peer.code(Type::Insert, ltm(1, 1)).await;
    let renamed = with(|entry| {
        entry.action = None;
        entry.controller_metadata = 5;
    });
    assert_eq!(peer.code(Type::Modify, renamed).await, OK);
    let expected = with(|entry| entry.controller_metadata = 5);
    let all = TableEntry { table_id: LTM, ..TableEntry::default() };
    assert_eq!(peer.entries(all).await, [expected]);
}

#[tokio::test]
async fn default_is_modified_and_reset_within_bounds() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let start = |tag: u8| default_entry(START_TABLE, action(START_ACTION.id, &[(1, &[tag])]));
    let only = |id| default_entry(ROUTES, action(id, &[]));
    for (name, kind, entry, expected) in [
        ("modify", Type::Modify, start(7), OK),
        ("delete", Type::Delete, start(7), BAD),
        ("with a priority", Type::Modify, TableEntry { priority: 1, ..start(7) }, BAD),
        (
            "with a match",
            Type::Modify,
            TableEntry { r#match: vec![exact(1, &[1])], ..start(7) },
            BAD,
        ),
        ("with a timeout", Type::Modify, TableEntry { idle_timeout_ns: 1, ..start(7) }, BAD),
        (
            "of a constant default",
            Type::Modify,
            default_entry(LTM, action(MISS_ACTION.id, &[])),
            DENIED,
        ),
        ("an action for entries alone", Type::Modify, only(ONLY_ENTRY), DENIED),
        ("an action for defaults alone", Type::Modify, only(ONLY_DEFAULT), OK),
        ("reset", Type::Modify, default_entry(START_TABLE, None), OK),
    ] {
        assert_eq!(peer.code(kind, entry).await, expected, "{name}");
    }
    let defaults = fixture.device.0.lock().defaults.clone();
    assert_eq!(defaults[&START_TABLE].as_ref().unwrap().params[0].value[..], [0]);
    assert_eq!(peer.entries(start(0)).await, [start(0)]);
}

#[tokio::test]
async fn a_full_table_refuses_inserts() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let small = |key: u8| TableEntry {
        table_id: SMALL,
        r#match: vec![exact(1, &[key])],
        action: action(ONLY_ENTRY, &[]),
        ..TableEntry::default()
    };
    for (key, expected) in [(1, OK), (2, OK), (3, Code::ResourceExhausted)] {
        assert_eq!(peer.code(Type::Insert, small(key)).await, expected);
    }
    assert_eq!(peer.code(Type::Delete, small(1)).await, OK);
    assert_eq!(peer.code(Type::Insert, small(3)).await, OK);
    // The device may hold fewer entries than the program promises.
    fixture.device.0.lock().capacity_left = Some(1);
    assert_eq!(peer.code(Type::Insert, ltm(1, 1)).await, OK);
    assert_eq!(peer.code(Type::Insert, ltm(1, 2)).await, Code::ResourceExhausted);
    assert_eq!(peer.entries(ltm(1, 2)).await, []);
}

#[tokio::test]
async fn unsupported_entities_are_refused() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let insert = |entity| Update {
        r#type: Type::Insert.into(),
        entity: Some(Entity { entity: Some(entity) }),
    };
    for entity in [
        entity::Entity::ExternEntry(Unserved {}),
        entity::Entity::ActionProfileMember(Unserved {}),
        entity::Entity::ActionProfileGroup(Unserved {}),
        entity::Entity::MeterEntry(Unserved {}),
        entity::Entity::DirectMeterEntry(Unserved {}),
        entity::Entity::CounterEntry(Unserved {}),
        entity::Entity::PacketReplicationEngineEntry(Unserved {}),
        entity::Entity::ValueSetEntry(Unserved {}),
        entity::Entity::RegisterEntry(Unserved {}),
        entity::Entity::DigestEntry(Unserved {}),
    ] {
        assert_eq!(peer.codes(vec![insert(entity)]).await, [Code::Unimplemented]);
    }
    let nothing = Update { r#type: Type::Insert.into(), entity: None };
    let empty = Update { r#type: Type::Insert.into(), entity: Some(Entity { entity: None }) };
    assert_eq!(peer.codes(vec![nothing, empty]).await, [BAD, BAD]);
}

#[tokio::test]
async fn a_counter_can_only_be_modified() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let counter = |kind: Type, entry| Update {
        r#type: kind.into(),
        entity: Some(Entity {
            entity: Some(entity::Entity::DirectCounterEntry(Box::new(DirectCounterEntry {
                table_entry: entry,
                data: Some(CounterData { byte_count: 1, packet_count: 1 }),
            }))),
        }),
    };
    peer.code(Type::Insert, ltm(1, 1)).await;
    for (name, update, expected) in [
        ("modify", counter(Type::Modify, Some(ltm(1, 1))), OK),
        ("insert", counter(Type::Insert, Some(ltm(1, 1))), BAD),
        ("delete", counter(Type::Delete, Some(ltm(1, 1))), BAD),
        ("of no entry", counter(Type::Modify, None), BAD),
        ("of another entry", counter(Type::Modify, Some(ltm(1, 2))), Code::NotFound),
        ("of a table without", counter(Type::Modify, Some(route(1))), BAD),
    ] {
        assert_eq!(peer.codes(vec![update]).await, [expected], "{name}");
    }
}

#[tokio::test]
async fn each_update_of_batch_has_own_result() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let batch = vec![
        update(Type::Insert, ltm(1, 1)),
        update(Type::Insert, ltm(1, 1)),
        update(Type::Delete, ltm(1, 9)),
        update(Type::Insert, ltm(1, 2)),
    ];
    let codes = peer.codes(batch).await;
    assert_eq!(codes, [OK, Code::AlreadyExists, Code::NotFound, OK]);
    assert_eq!(peer.entries(TableEntry { table_id: LTM, ..Default::default() }).await.len(), 2);
}

#[tokio::test]
async fn a_batch_without_updates_is_fine() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    assert!(peer.write(Vec::new()).await.is_ok());
}

#[tokio::test]
async fn a_thousand_results_fit_into_a_status() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let batch = (0..1000).map(|_| update(Type::Delete, ltm(1, 1))).collect();
    assert_eq!(peer.codes(batch).await, vec![Code::NotFound; 1000]);
    assert_eq!(peer.code(Type::Insert, ltm(1, 1)).await, OK);
}

#[tokio::test]
async fn an_atomic_batch_succeeds_or_is_rolled_back() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    peer.code(Type::Insert, ltm(1, 1)).await;
    peer.code(Type::Insert, ltm(1, 2)).await;
    let changed = with(|entry| entry.action = action(NEXT, &[(1, &[99])]));
    let request = |last, atomicity: Atomicity| WriteRequest {
        device_id: DEVICE,
        election_id: Some(id(1)),
        updates: vec![
            update(Type::Insert, ltm(1, 3)),
            update(Type::Modify, changed.clone()),
            update(Type::Delete, ltm(1, 2)),
            update(Type::Insert, last),
            update(Type::Insert, ltm(1, 5)),
        ],
        atomicity: atomicity.into(),
        ..WriteRequest::default()
    };
    let failed = peer.client.write(request(ltm(1, 3), Atomicity::RollbackOnError)).await;
    let codes = crate::peer::codes_of(&failed.unwrap_err());
    let aborted = Code::Aborted;
    assert_eq!(codes, [aborted, aborted, aborted, Code::AlreadyExists, aborted]);
    let all = TableEntry { table_id: LTM, ..TableEntry::default() };
    assert_eq!(peer.entries(all.clone()).await, [ltm(1, 1), ltm(1, 2)]);
    let held: Vec<_> = fixture.device.0.lock().entries.values().cloned().collect();
    assert_eq!(held, [ltm(1, 1), ltm(1, 2)]);
    let refused = peer.client.write(request(ltm(1, 4), Atomicity::DataplaneAtomic)).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    fixture.device.0.lock().is_atomic = true;
    assert!(peer.client.write(request(ltm(1, 4), Atomicity::DataplaneAtomic)).await.is_ok());
    assert_eq!(peer.entries(all).await.len(), 4);
}

#[tokio::test]
async fn an_unknown_atomicity_is_refused() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let request = WriteRequest {
        device_id: DEVICE,
        election_id: Some(id(1)),
        atomicity: 9,
        ..WriteRequest::default()
    };
    assert_eq!(peer.client.write(request).await.unwrap_err().code(), BAD);
}

#[tokio::test]
async fn a_rolled_back_delete_keeps_the_count() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    peer.code(Type::Insert, ltm(1, 1)).await;
    let no = *fixture.device.0.lock().entries.keys().next().unwrap();
    let hits = |packets| EntryHits { packets, bytes: packets * 100, last: None };
    fixture.device.0.lock().hits.insert(no, hits(7));
    let request = WriteRequest {
        device_id: DEVICE,
        election_id: peer.election,
        atomicity: Atomicity::RollbackOnError.into(),
        // The second delete fails, and the first one is rolled back.
        updates: vec![update(Type::Delete, ltm(1, 1)), update(Type::Delete, ltm(1, 2))],
        ..Default::default()
    };
    peer.client.write(request).await.unwrap_err();
    let again = *fixture.device.0.lock().entries.keys().next().unwrap();
    assert_ne!(no, again, "numbers are never reused");
    fixture.device.0.lock().hits.insert(again, hits(1));
    let selecting = TableEntry { counter_data: Some(CounterData::default()), ..ltm(1, 1) };
    let counted = peer.entries(selecting).await[0].counter_data.unwrap();
    assert_eq!((counted.packet_count, counted.byte_count), (8, 800));
}

#[tokio::test]
async fn a_failed_rollback_is_reported() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    peer.code(Type::Insert, ltm(1, 1)).await;
    fixture.device.0.lock().capacity_left = Some(0);
    let request = WriteRequest {
        device_id: DEVICE,
        election_id: peer.election,
        atomicity: Atomicity::RollbackOnError.into(),
        updates: vec![update(Type::Delete, ltm(1, 1)), update(Type::Delete, ltm(1, 2))],
        ..Default::default()
    };
    let failed = peer.client.write(request).await.unwrap_err();
    assert_eq!(crate::peer::codes_of(&failed), [Code::Internal, Code::NotFound]);
}

#[tokio::test]
async fn a_counter_is_not_negative() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let counter_data = Some(CounterData { byte_count: 0, packet_count: -5 });
    assert_eq!(peer.code(Type::Insert, TableEntry { counter_data, ..ltm(1, 1) }).await, BAD);
}

#[tokio::test]
async fn a_batch_with_too_many_updates_is_refused() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let status = peer.write(vec![Update::default(); 16385]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn client_headers_hold_150_update_details() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let updates = (0..150).map(|number| update(Type::Delete, ltm(1, number + 1))).collect();
    let status = peer.write(updates).await.unwrap_err();
    // The details are sent in base64, with the rest of the trailer, and clients accept 8 KiB.
    assert!(status.details().len() * 4 / 3 + 256 <= 8192, "{}", status.details().len());
}

#[tokio::test]
async fn too_long_metadata_is_refused_with_the_limit() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let recorded = |bytes| TableEntry { metadata: vec![1; bytes], ..ltm(1, 1) };
    let status = peer.write(vec![update(Type::Insert, recorded(1025))]).await.unwrap_err();
    assert_eq!(crate::peer::codes_of(&status), [Code::ResourceExhausted]);
    let details = String::from_utf8_lossy(status.details()).into_owned();
    assert!(
        details.contains("metadata of 1025 bytes is too long: the limit is 1024 bytes"),
        "{details}"
    );
    assert_eq!(peer.code(Type::Insert, recorded(1024)).await, OK);
    assert_eq!(peer.code(Type::Modify, recorded(1025)).await, Code::ResourceExhausted);
}
