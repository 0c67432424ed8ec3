//! Tests of streams: packets, idle notifications and errors. P4Runtime, "Stream RPC".

use std::time::Duration;

use shunt_p4runtime::{
    server::EntryHits,
    wire::p4::v1::{
        DigestListAck, PacketIn, PacketMetadata, PacketOut, StreamError, TableEntry, stream_error,
        stream_message_request::Update as Request, stream_message_response::Update as Reply,
        update::Type,
    },
};
use tonic::Code;

use crate::peer::{ServerFixture, Stream, ltm};

fn metadata(fields: &[(u32, &[u8])]) -> Vec<PacketMetadata> {
    let field = |(metadata_id, value): &(u32, &[u8])| PacketMetadata {
        metadata_id: *metadata_id,
        value: value.to_vec(),
    };
    fields.iter().map(field).collect()
}

fn packet_out(fields: &[(u32, &[u8])]) -> PacketOut {
    PacketOut { payload: b"frame".to_vec(), metadata: metadata(fields) }
}

async fn error(stream: &mut Stream) -> StreamError {
    match stream.next().await.unwrap() {
        Reply::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_packet_in_reaches_only_the_primary() {
    let fixture = ServerFixture::new().await;
    let (_primary, mut stream) = fixture.ready().await;
    let mut backup = fixture.peer().await;
    let (mut other, _) = backup.join("", Some(0)).await;
    let packet = PacketIn { payload: b"frame".to_vec(), metadata: metadata(&[(1, &[1])]) };
    assert!(fixture.service.packet_in(packet.clone()));
    assert_eq!(stream.next().await, Ok(Reply::Packet(packet)));
    // The next message for the backup is the first one that it receives.
    other.arbitrate(1, "", Some(0)).await;
    other.arbitration().await;
}

#[tokio::test]
async fn a_packet_out_of_the_primary_is_sent() {
    let fixture = ServerFixture::new().await;
    let (_peer, mut stream) = fixture.ready().await;
    let packet = packet_out(&[(1, &[3]), (2, &[0]), (3, &[0])]);
    stream.send(Request::Packet(packet.clone())).await;
    // Later requests get later responses.
    stream.arbitrate(1, "", Some(1)).await;
    stream.arbitration().await;
    assert_eq!(fixture.device.0.lock().sent, [packet]);
}

#[tokio::test]
async fn bad_packet_out_does_not_end_stream() {
    let fixture = ServerFixture::new().await;
    let (_peer, mut stream) = fixture.ready().await;
    for (name, fields) in [
        ("no metadata", &[][..]),
        ("a field missing", &[(1, &[3][..]), (2, &[0])]),
        ("a field twice", &[(1, &[3]), (1, &[3]), (2, &[0]), (3, &[0])]),
        ("an unknown field", &[(1, &[3]), (2, &[0]), (9, &[0])]),
        ("a field too wide", &[(1, &[1, 0, 0]), (2, &[0]), (3, &[0])]),
        ("an empty field", &[(1, &[]), (2, &[0]), (3, &[0])]),
    ] {
        let packet = packet_out(fields);
        stream.send(Request::Packet(packet.clone())).await;
        let error = error(&mut stream).await;
        assert_eq!(Code::from_i32(error.canonical_code), Code::InvalidArgument, "{name}");
        let Some(stream_error::Details::PacketOut(details)) = error.details else {
            panic!("{name}")
        };
        assert_eq!(details.packet_out, Some(packet));
    }
    assert!(fixture.device.0.lock().sent.is_empty());
}

#[tokio::test]
async fn a_packet_out_of_a_backup_is_dropped() {
    let fixture = ServerFixture::new().await;
    let (_primary, _stream) = fixture.ready().await;
    let mut peer = fixture.peer().await;
    let (mut stream, _) = peer.join("", Some(0)).await;
    stream.send(Request::Packet(packet_out(&[(1, &[3]), (2, &[0]), (3, &[0])]))).await;
    let error = error(&mut stream).await;
    assert_eq!(Code::from_i32(error.canonical_code), Code::PermissionDenied);
    assert!(fixture.device.0.lock().sent.is_empty());
}

#[tokio::test]
async fn a_packet_out_without_a_pipeline_is_dropped() {
    let fixture = ServerFixture::new().await;
    let (_primary, mut stream) = fixture.primary().await;
    stream.send(Request::Packet(packet_out(&[]))).await;
    let error = error(&mut stream).await;
    assert_eq!(Code::from_i32(error.canonical_code), Code::FailedPrecondition);
}

#[tokio::test]
async fn unsupported_stream_messages_get_an_error() {
    let fixture = ServerFixture::new().await;
    let (_primary, mut stream) = fixture.ready().await;
    stream.send(Request::DigestAck(DigestListAck { digest_id: 1, list_id: 1 })).await;
    assert_eq!(Code::from_i32(error(&mut stream).await.canonical_code), Code::NotFound);
    stream.send(Request::Other(prost_types::Any::default())).await;
    assert_eq!(Code::from_i32(error(&mut stream).await.canonical_code), Code::Unimplemented);
}

#[tokio::test]
async fn an_idle_notification_has_the_controllers_metadata() {
    let fixture = ServerFixture::new().await;
    let (mut peer, mut stream) = fixture.ready().await;
    let mut entry = ltm(1, 1);
    entry.idle_timeout_ns = 1_000_000_000;
    entry.controller_metadata = 77;
    entry.metadata = b"mine".to_vec();
    assert_eq!(peer.code(Type::Insert, entry.clone()).await, Code::Ok);
    fixture.pass(Duration::from_millis(999));
    let now = fixture.pass(Duration::from_millis(1));
    let Reply::IdleTimeoutNotification(notice) = stream.next().await.unwrap() else {
        panic!("a notice")
    };
    // The notification identifies the entry, but has no action.
    assert_eq!(notice.table_entry, [TableEntry { action: None, ..entry.clone() }]);
    assert_eq!(u128::try_from(notice.timestamp).unwrap(), now.as_nanos());
    // The entry stays, and is reported again after another timeout.
    assert_eq!(peer.entries(entry.clone()).await, [entry]);
    fixture.pass(Duration::from_secs(1));
    assert!(matches!(stream.next().await, Ok(Reply::IdleTimeoutNotification(_))));
}

#[tokio::test]
async fn a_hit_postpones_an_idle_notification() {
    let fixture = ServerFixture::new().await;
    let (mut peer, mut stream) = fixture.ready().await;
    let mut entry = ltm(1, 1);
    entry.idle_timeout_ns = 1_000_000_000;
    peer.code(Type::Insert, entry.clone()).await;
    let no = *fixture.device.0.lock().entries.keys().next().unwrap();
    let hit = fixture.pass(Duration::from_millis(600));
    fixture.device.0.lock().hits.insert(no, EntryHits { packets: 1, bytes: 64, last: Some(hit) });
    fixture.pass(Duration::from_millis(600));
    let now = fixture.pass(Duration::from_millis(400));
    let Reply::IdleTimeoutNotification(notice) = stream.next().await.unwrap() else {
        panic!("a notice")
    };
    assert_eq!(u128::try_from(notice.timestamp).unwrap(), now.as_nanos());
}

#[tokio::test]
async fn deleted_entries_and_cleared_timeouts_are_not_reported() {
    let fixture = ServerFixture::new().await;
    let (mut peer, mut stream) = fixture.ready().await;
    for address in 1..=3 {
        let mut entry = ltm(1, address);
        entry.idle_timeout_ns = 1_000_000_000;
        peer.code(Type::Insert, entry).await;
    }
    peer.code(Type::Delete, ltm(1, 1)).await;
    peer.code(Type::Modify, ltm(1, 2)).await;
    fixture.pass(Duration::from_secs(2));
    let Reply::IdleTimeoutNotification(notice) = stream.next().await.unwrap() else {
        panic!("a notice")
    };
    let received: Vec<_> = notice.table_entry.iter().map(|entry| &entry.r#match).collect();
    assert_eq!(received, [&ltm(1, 3).r#match]);
}
