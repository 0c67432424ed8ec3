//! Primary election: P4Runtime, "Client Arbitration and Controller Replication".

use shunt_p4runtime::wire::p4::v1::{
    MasterArbitrationUpdate, PacketOut, Role, StreamMessageRequest, stream_message_request,
};
use tonic::Code;

use crate::peer::{DEVICE, Peer, ServerFixture, Stream, config, id, ltm, status, update};
use shunt_p4runtime::wire::p4::v1::{set_forwarding_pipeline_config_request::Action, update::Type};

async fn join(fixture: &ServerFixture, role: &str, election: Option<u64>) -> (Peer, Stream, Code) {
    let mut peer = fixture.peer().await;
    let (stream, reply) = peer.join(role, election).await;
    (peer, stream, status(&reply))
}

#[tokio::test]
async fn the_first_controller_becomes_primary() {
    let fixture = ServerFixture::new().await;
    let mut peer = fixture.peer().await;
    let (_stream, reply) = peer.join("", Some(5)).await;
    assert_eq!(status(&reply), Code::Ok);
    assert_eq!((reply.device_id, reply.election_id), (DEVICE, Some(id(5))));
}

#[tokio::test]
async fn an_election_id_of_zero_is_one() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream, code) = join(&fixture, "", Some(0)).await;
    assert_eq!(code, Code::Ok);
    assert_eq!(peer.set(Action::VerifyAndCommit, Some(config(1))).await, Ok(()));
}

#[tokio::test]
async fn without_an_election_id_nobody_is_primary() {
    let fixture = ServerFixture::new().await;
    let mut peer = fixture.peer().await;
    let (_stream, reply) = peer.join("", None).await;
    assert_eq!((status(&reply), reply.election_id), (Code::NotFound, None));
    assert_eq!(
        peer.set(Action::VerifyAndCommit, Some(config(1))).await,
        Err(Code::PermissionDenied)
    );
}

#[tokio::test]
async fn lower_id_is_read_only_backup() {
    let fixture = ServerFixture::new().await;
    let (_first, _stream) = fixture.ready().await;
    let (mut second, _other, code) = join(&fixture, "", Some(0)).await;
    assert_eq!(code, Code::AlreadyExists);
    let denied = second.write(vec![update(Type::Insert, ltm(1, 1))]).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(denied.details().is_empty());
}

#[tokio::test]
async fn higher_id_replaces_and_notifies_primary() {
    let fixture = ServerFixture::new().await;
    let (mut first, mut stream) = fixture.ready().await;
    let (mut second, _other, code) = join(&fixture, "", Some(9)).await;
    assert_eq!(code, Code::Ok);
    let received = stream.arbitration().await;
    assert_eq!((status(&received), received.election_id), (Code::AlreadyExists, Some(id(9))));
    let denied = first.write(vec![update(Type::Insert, ltm(1, 1))]).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert_eq!(second.code(Type::Insert, ltm(1, 1)).await, Code::Ok);
}

#[tokio::test]
async fn a_backup_is_notified_of_a_new_primary() {
    let fixture = ServerFixture::new().await;
    let (_first, _stream) = fixture.primary().await;
    let (_backup, mut backup, _) = join(&fixture, "", Some(0)).await;
    let (_third, _other, _) = join(&fixture, "", Some(9)).await;
    let received = backup.arbitration().await;
    assert_eq!((status(&received), received.election_id), (Code::AlreadyExists, Some(id(9))));
}

#[tokio::test]
async fn no_stream_is_promoted_when_the_primary_leaves() {
    let fixture = ServerFixture::new().await;
    let (first, stream, _) = join(&fixture, "", Some(5)).await;
    let (mut second, mut backup, _) = join(&fixture, "", Some(3)).await;
    drop((first, stream));
    let received = backup.arbitration().await;
    assert_eq!((status(&received), received.election_id), (Code::NotFound, Some(id(5))));
    assert_eq!(
        second.set(Action::VerifyAndCommit, Some(config(1))).await,
        Err(Code::PermissionDenied)
    );
    // The new election id must be at least as high as any earlier id.
    backup.arbitrate(DEVICE, "", Some(5)).await;
    assert_eq!(status(&backup.arbitration().await), Code::Ok);
    second.election = Some(id(5));
    assert_eq!(second.set(Action::VerifyAndCommit, Some(config(1))).await, Ok(()));
}

#[tokio::test]
async fn a_primary_steps_down_by_a_lower_id() {
    let fixture = ServerFixture::new().await;
    let (mut peer, mut stream, _) = join(&fixture, "", Some(5)).await;
    stream.arbitrate(DEVICE, "", Some(4)).await;
    let received = stream.arbitration().await;
    assert_eq!((status(&received), received.election_id), (Code::NotFound, Some(id(5))));
    assert_eq!(
        peer.set(Action::VerifyAndCommit, Some(config(1))).await,
        Err(Code::PermissionDenied)
    );
}

#[tokio::test]
async fn high_word_of_election_id_comes_first() {
    let fixture = ServerFixture::new().await;
    let (_low, _stream, _) = join(&fixture, "", Some(u64::MAX)).await;
    let mut peer = fixture.peer().await;
    let mut stream = peer.stream().await;
    let update = MasterArbitrationUpdate {
        device_id: DEVICE,
        election_id: Some(shunt_p4runtime::wire::p4::v1::Uint128 { high: 1, low: 0 }),
        ..MasterArbitrationUpdate::default()
    };
    stream.send(stream_message_request::Update::Arbitration(update)).await;
    assert_eq!(status(&stream.arbitration().await), Code::Ok);
}

#[tokio::test]
async fn an_unknown_device_ends_the_stream() {
    let fixture = ServerFixture::new().await;
    let mut stream = fixture.peer().await.stream().await;
    stream.arbitrate(DEVICE + 1, "", Some(1)).await;
    assert_eq!(stream.next().await, Err(Code::NotFound));
}

#[tokio::test]
async fn an_election_id_in_use_is_refused() {
    let fixture = ServerFixture::new().await;
    let (_first, _stream) = fixture.primary().await;
    let mut stream = fixture.peer().await.stream().await;
    stream.arbitrate(DEVICE, "", Some(1)).await;
    assert_eq!(stream.next().await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn live_election_id_cannot_be_taken() {
    let fixture = ServerFixture::new().await;
    let (_first, _stream) = fixture.primary().await;
    let (_second, mut backup, _) = join(&fixture, "", Some(0)).await;
    backup.arbitrate(DEVICE, "", Some(1)).await;
    assert_eq!(backup.next().await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn a_stream_keeps_its_device() {
    let fixture = ServerFixture::new().await;
    let (_peer, mut stream) = fixture.primary().await;
    stream.arbitrate(DEVICE + 1, "", Some(1)).await;
    assert_eq!(stream.next().await, Err(Code::FailedPrecondition));
}

#[tokio::test]
async fn a_stream_keeps_its_role() {
    let fixture = ServerFixture::new().await;
    let (_peer, mut stream) = fixture.primary().await;
    stream.arbitrate(DEVICE, "other", Some(1)).await;
    assert_eq!(stream.next().await, Err(Code::FailedPrecondition));
}

#[tokio::test]
async fn each_role_has_a_primary_of_its_own() {
    let fixture = ServerFixture::new().await;
    let (_first, _stream) = fixture.ready().await;
    let mut peer = fixture.peer().await;
    let (_other, reply) = peer.join("monitor", Some(1)).await;
    assert_eq!(status(&reply), Code::Ok);
    assert_eq!(reply.role, Some(Role { name: "monitor".to_owned(), ..Role::default() }));
    // A write is checked against the role that it names.
    let denied = peer.write(vec![update(Type::Insert, ltm(1, 1))]).await;
    assert!(denied.is_ok(), "the id is that of the default role's primary, too");
    let request = shunt_p4runtime::wire::p4::v1::WriteRequest {
        device_id: DEVICE,
        role: "nobody".to_owned(),
        election_id: Some(id(1)),
        ..Default::default()
    };
    assert_eq!(peer.client.write(request).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn role_configuration_is_refused() {
    let fixture = ServerFixture::new().await;
    let mut stream = fixture.peer().await.stream().await;
    let role = Role { config: Some(prost_types::Any::default()), name: "a".to_owned() };
    let update = MasterArbitrationUpdate {
        device_id: DEVICE,
        role: Some(role),
        election_id: Some(id(1)),
        status: None,
    };
    stream.send(stream_message_request::Update::Arbitration(update)).await;
    assert_eq!(stream.next().await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn streams_beyond_the_most_are_refused() {
    let fixture = ServerFixture::new().await;
    let mut held = Vec::new();
    for election in 1..=4 {
        held.push(join(&fixture, "", Some(election)).await);
    }
    let mut peer = fixture.peer().await;
    let (_sender, receiver) = tokio::sync::mpsc::channel::<StreamMessageRequest>(1);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let refused = peer.client.stream_channel(stream).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_stream_begins_with_arbitration() {
    let fixture = ServerFixture::new().await;
    let mut stream = fixture.peer().await.stream().await;
    stream.send(stream_message_request::Update::Packet(PacketOut::default())).await;
    assert_eq!(stream.next().await, Err(Code::FailedPrecondition));
}

#[tokio::test]
async fn a_repeated_arbitration_gets_the_same_response() {
    let fixture = ServerFixture::new().await;
    let (_peer, mut stream) = fixture.primary().await;
    stream.arbitrate(DEVICE, "", Some(1)).await;
    assert_eq!(status(&stream.arbitration().await), Code::Ok);
}

#[tokio::test]
async fn silent_streams_do_not_block_others() {
    let fixture = ServerFixture::new().await;
    let mut silent = Vec::new();
    // The server accepts four streams.
    for _ in 0..6 {
        let mut peer = fixture.peer().await;
        silent.push((peer.stream().await, peer));
    }
    let (_peer, _stream, code) = join(&fixture, "", Some(1)).await;
    assert_eq!(code, Code::Ok);
    assert_eq!(silent[0].0.next().await, Err(Code::Unavailable));
}
