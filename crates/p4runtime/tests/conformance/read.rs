//! Tests of reads: P4Runtime, "Read RPC" and the wildcards of each entity.

use std::time::Duration;

use prost::Message;
use shunt_p4runtime::{
    program::{MISS_ACTION, START_ACTION, START_TABLE},
    server::EntryHits,
    wire::p4::v1::{
        self, CounterData, DirectCounterEntry, Entity, ReadRequest, TableEntry, Unserved, Update,
        entity, table_entry, update::Type,
    },
};
use tonic::Code;

use crate::peer::{
    DEVICE, LTM, NEXT, Peer, ROUTES, ServerFixture, action, exact, ltm, route, ternary, update,
};

fn all_of_table(table_id: u32) -> TableEntry {
    TableEntry { table_id, ..TableEntry::default() }
}

/// Returns entries of two tables that differ in every field of a query.
fn entries() -> Vec<TableEntry> {
    let mut first = ltm(1, 1);
    first.controller_metadata = 11;
    let mut second = ltm(1, 2);
    second.metadata = b"second".to_vec();
    let mut third = ltm(2, 3);
    third.priority = 9;
    third.action = action(0x0100_0003, &[]);
    vec![first, second, third, route(1)]
}

async fn peer_with_entries(fixture: &ServerFixture) -> Peer {
    let (mut peer, stream) = fixture.ready().await;
    let updates = entries().into_iter().map(|entry| update(Type::Insert, entry)).collect();
    assert!(peer.write(updates).await.is_ok());
    // The stream must live as long as the test.
    std::mem::forget(stream);
    peer
}

#[tokio::test]
async fn queries_select_matching_entries() {
    let fixture = ServerFixture::new().await;
    let mut peer = peer_with_entries(&fixture).await;
    let [first, second, third, route] = &entries()[..] else { panic!("four entries") };
    let selecting = |change: fn(&mut TableEntry)| {
        let mut query = all_of_table(LTM);
        change(&mut query);
        query
    };
    for (name, query, expected) in [
        ("all tables", all_of_table(0), vec![first, second, third, route]),
        ("one table", all_of_table(LTM), vec![first, second, third]),
        ("another table", all_of_table(ROUTES), vec![route]),
        ("an empty table", all_of_table(LTM + 1), vec![]),
        ("a priority", selecting(|e| e.priority = 9), vec![third]),
        ("controller metadata", selecting(|e| e.controller_metadata = 11), vec![first]),
        ("metadata", selecting(|e| e.metadata = b"second".to_vec()), vec![second]),
        ("an action", selecting(|e| e.action = action(NEXT, &[])), vec![first, second]),
        ("a match", selecting(|e| e.r#match = ltm(1, 2).r#match), vec![second]),
        (
            "a match in another form",
            selecting(|e| {
                e.r#match = vec![ternary(8, &[0, 10, 0, 0, 2], &[255; 4]), exact(1, &[0, 1])];
            }),
            vec![second],
        ),
        ("a match and its priority", ltm(1, 1), vec![first]),
        ("a match and another priority", TableEntry { priority: 4, ..ltm(1, 1) }, vec![]),
        ("a match that nobody has", selecting(|e| e.r#match = vec![exact(1, &[7])]), vec![]),
    ] {
        let mut found = peer.entries(query).await;
        found.sort_by_key(|entry| entries().iter().position(|known| known == entry));
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{name}");
    }
}

#[tokio::test]
async fn read_entries_are_canonical() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let mut padded = ltm(1, 1);
    padded.r#match =
        vec![ternary(8, &[0, 10, 0, 0, 1], &[0, 255, 255, 255, 255]), exact(1, &[0, 1])];
    padded.action = action(NEXT, &[(1, &[0, 2])]);
    assert_eq!(peer.code(Type::Insert, padded).await, Code::Ok);
    assert_eq!(peer.entries(all_of_table(LTM)).await, [ltm(1, 1)]);
}

#[tokio::test]
async fn an_entry_keeps_its_metadata() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let mut entry = ltm(1, 1);
    entry.controller_metadata = u64::MAX;
    entry.metadata = vec![0, 1, 2];
    entry.idle_timeout_ns = 12_345_678_901;
    assert_eq!(peer.code(Type::Insert, entry.clone()).await, Code::Ok);
    assert_eq!(peer.entries(all_of_table(LTM)).await, [entry]);
}

#[tokio::test]
async fn default_entries_are_read_on_request() {
    let fixture = ServerFixture::new().await;
    let mut peer = peer_with_entries(&fixture).await;
    let default = |table_id| TableEntry { is_default_action: true, ..all_of_table(table_id) };
    let miss = TableEntry { action: action(MISS_ACTION.id, &[]), ..default(LTM) };
    assert_eq!(peer.entries(default(LTM)).await, [miss]);
    let start =
        TableEntry { action: action(START_ACTION.id, &[(1, &[0])]), ..default(START_TABLE) };
    assert_eq!(peer.entries(default(START_TABLE)).await, [start]);
    assert_eq!(peer.entries(all_of_table(START_TABLE)).await, []);
}

#[tokio::test]
async fn counters_and_times_are_returned_on_request() {
    let fixture = ServerFixture::new().await;
    let mut peer = peer_with_entries(&fixture).await;
    let now = fixture.pass(Duration::from_secs(3));
    let hit = {
        let memory = &mut *fixture.device.0.lock();
        let (no, _) = memory.entries.iter().find(|(_, e)| e.controller_metadata == 11).unwrap();
        let last = Some(now - Duration::from_secs(1));
        memory.hits.insert(*no, EntryHits { packets: 2, bytes: 128, last });
        *no
    };
    let mut query = TableEntry { controller_metadata: 11, ..all_of_table(LTM) };
    let plain = peer.entries(query.clone()).await;
    assert!(plain[0].counter_data.is_none() && plain[0].time_since_last_hit.is_none());
    query.counter_data = Some(CounterData::default());
    query.time_since_last_hit = Some(table_entry::IdleTimeout::default());
    let received = peer.entries(query).await;
    assert_eq!(received[0].counter_data, Some(CounterData { byte_count: 128, packet_count: 2 }));
    assert_eq!(received[0].time_since_last_hit.unwrap().elapsed_ns, 1_000_000_000);
    fixture.device.0.lock().hits.remove(&hit);
}

#[tokio::test]
async fn direct_counters_are_read_one_or_all() {
    let fixture = ServerFixture::new().await;
    let mut peer = peer_with_entries(&fixture).await;
    let request = |table_entry| {
        entity::Entity::DirectCounterEntry(Box::new(DirectCounterEntry { table_entry, data: None }))
    };
    for (name, query, count) in [
        ("one entry", request(Some(ltm(1, 1))), 1),
        ("one table", request(Some(all_of_table(LTM))), 3),
        ("all tables", request(Some(all_of_table(0))), 3),
        ("no table", request(None), 3),
    ] {
        let entries = peer.read(query).await.unwrap();
        assert_eq!(entries.len(), count, "{name}");
        for entity in entries {
            let Some(entity::Entity::DirectCounterEntry(counter)) = entity.entity else {
                panic!("{name}")
            };
            assert_eq!(counter.data, Some(CounterData::default()));
        }
    }
    assert_eq!(
        failure(&mut peer, request(Some(all_of_table(ROUTES)))).await,
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_counter_continues_from_a_written_value() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let mut entry = ltm(1, 1);
    entry.counter_data = Some(CounterData { byte_count: 1000, packet_count: 10 });
    peer.code(Type::Insert, entry).await;
    let no = *fixture.device.0.lock().entries.keys().next().unwrap();
    let hits = |packets| EntryHits { packets, bytes: packets * 100, last: None };
    fixture.device.0.lock().hits.insert(no, hits(1));
    let query = TableEntry { counter_data: Some(CounterData::default()), ..all_of_table(LTM) };
    let received = peer.entries(query.clone()).await;
    assert_eq!(received[0].counter_data, Some(CounterData { byte_count: 1100, packet_count: 11 }));
    let counter = DirectCounterEntry {
        table_entry: Some(ltm(1, 1)),
        data: Some(CounterData { byte_count: 0, packet_count: 0 }),
    };
    let entity = Entity { entity: Some(entity::Entity::DirectCounterEntry(Box::new(counter))) };
    let reset = Update { r#type: Type::Modify.into(), entity: Some(entity) };
    assert_eq!(peer.codes(vec![reset]).await, [Code::Ok]);
    fixture.device.0.lock().hits.insert(no, hits(3));
    let received = peer.entries(query).await;
    assert_eq!(received[0].counter_data, Some(CounterData { byte_count: 200, packet_count: 2 }));
}

/// Returns the error code of a query with one entity.
async fn failure(peer: &mut Peer, query: entity::Entity) -> Code {
    let status = peer.read(query).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let codes = crate::peer::codes_of(&status);
    assert_eq!(codes.len(), 1);
    codes[0]
}

#[tokio::test]
async fn an_invalid_query_returns_its_error() {
    let fixture = ServerFixture::new().await;
    let mut peer = peer_with_entries(&fixture).await;
    let entry = |entry: TableEntry| entity::Entity::TableEntry(Box::new(entry));
    for (name, query, expected) in [
        ("unknown table", entry(all_of_table(0x02ff_ffff)), Code::NotFound),
        ("no table's id", entry(all_of_table(NEXT)), Code::InvalidArgument),
        (
            "a priority in all tables",
            entry(TableEntry { priority: 9, ..all_of_table(0) }),
            Code::InvalidArgument,
        ),
        (
            "a match in all tables",
            entry(TableEntry { table_id: 0, ..ltm(1, 1) }),
            Code::InvalidArgument,
        ),
        (
            "no match of the table",
            entry(TableEntry { r#match: vec![ternary(8, &[1], &[1])], ..all_of_table(LTM) }),
            Code::InvalidArgument,
        ),
        ("what is not served", entity::Entity::MeterEntry(Unserved {}), Code::Unimplemented),
    ] {
        assert_eq!(failure(&mut peer, query).await, expected, "{name}");
    }
    let entities = vec![Entity { entity: None }];
    let request = ReadRequest { device_id: DEVICE, entities, ..ReadRequest::default() };
    let status = peer.client.read(request).await.unwrap_err();
    let codes = crate::peer::codes_of(&status);
    assert_eq!((status.code(), codes), (Code::Unknown, vec![Code::InvalidArgument]));
}

#[tokio::test]
async fn reading_needs_no_stream_and_no_election_id() {
    let fixture = ServerFixture::new().await;
    let _primary = peer_with_entries(&fixture).await;
    assert_eq!(fixture.peer().await.entries(all_of_table(LTM)).await.len(), 3);
}

#[tokio::test]
async fn a_long_response_has_several_messages() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let count = 5000u32;
    for batch in (0..count).collect::<Vec<_>>().chunks(1000) {
        let entry = |number: &u32| {
            let mut entry = ltm(1, 1);
            let address = (number + 1).to_be_bytes();
            entry.r#match[1] = ternary(8, &address, &[255; 4]);
            update(Type::Insert, entry)
        };
        assert!(peer.write(batch.iter().map(entry).collect()).await.is_ok());
    }
    let entities =
        vec![Entity { entity: Some(entity::Entity::TableEntry(Box::new(all_of_table(LTM)))) }];
    let request = ReadRequest { device_id: DEVICE, entities, ..ReadRequest::default() };
    let mut replies = peer.client.read(request).await.unwrap().into_inner();
    let mut lengths = Vec::new();
    while let Some(reply) = replies.message().await.unwrap() {
        lengths.push(reply.entities.len());
    }
    assert!(lengths.len() > 1, "{lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), count as usize);
}

#[tokio::test]
async fn a_query_with_an_invalid_filter_is_refused() {
    let fixture = ServerFixture::new().await;
    let mut peer = peer_with_entries(&fixture).await;
    let member = v1::table_action::Type::ActionProfileMemberId(1);
    for (name, query) in [
        (
            "a member",
            TableEntry {
                action: Some(v1::TableAction { r#type: Some(member) }),
                ..all_of_table(LTM)
            },
        ),
        (
            "no action",
            TableEntry { action: Some(v1::TableAction { r#type: None }), ..all_of_table(LTM) },
        ),
        ("below zero", TableEntry { priority: -1, ..all_of_table(LTM) }),
        ("a default with a match", TableEntry { is_default_action: true, ..ltm(1, 1) }),
    ] {
        let query = entity::Entity::TableEntry(Box::new(query));
        assert_eq!(failure(&mut peer, query).await, Code::InvalidArgument, "{name}");
    }
}

#[tokio::test]
async fn a_response_in_parts_has_each_entry_once() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let entry = |priority| TableEntry { priority, ..ltm(1, 1) };
    let updates = (1..=5000).map(|priority| update(Type::Insert, entry(priority)));
    assert!(peer.write(updates.collect()).await.is_ok());
    let mut priorities: Vec<i32> =
        peer.entries(all_of_table(0)).await.iter().map(|entry| entry.priority).collect();
    priorities.sort_unstable();
    assert_eq!(priorities, (1..=5000).collect::<Vec<_>>());
}

#[tokio::test]
async fn response_messages_fit_the_default_client_limit() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    for batch in (1..=6000).collect::<Vec<i32>>().chunks(1000) {
        let recorded = |priority: &i32| {
            let entry = TableEntry { metadata: vec![9; 1024], priority: *priority, ..ltm(1, 1) };
            update(Type::Insert, entry)
        };
        assert!(peer.write(batch.iter().map(recorded).collect()).await.is_ok());
    }
    let entities =
        vec![Entity { entity: Some(entity::Entity::TableEntry(Box::new(all_of_table(LTM)))) }];
    let request = ReadRequest { device_id: DEVICE, entities, ..ReadRequest::default() };
    let mut replies = peer.client.read(request).await.unwrap().into_inner();
    let mut count = 0;
    while let Some(reply) = replies.message().await.unwrap() {
        assert!(reply.encoded_len() <= 1 << 20, "{}", reply.encoded_len());
        count += reply.entities.len();
    }
    assert_eq!(count, 6000);
}
