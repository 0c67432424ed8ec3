//! Whoever else speaks to the socket of a NIC: they get an answer or lose their connection, and what
//! the NIC holds and forwards stays as it is.

use std::{net::SocketAddr, time::Duration};

use prost::Message;
use shunt_flow::FieldId;
use shunt_gigaflow::{
    ltm::Next,
    offload::{OffloadDevice, OffloadEvent},
};
use shunt_p4runtime::{
    program::{PACKET_OUT, Program},
    wire::p4::{
        config::v1::P4Info,
        v1::{
            Entity, ForwardingPipelineConfig, MasterArbitrationUpdate, PacketMetadata, PacketOut,
            SetForwardingPipelineConfigRequest, StreamMessageRequest, StreamMessageResponse,
            TableEntry, Uint128, Update, WriteRequest, entity, p4_runtime_client::P4RuntimeClient,
            set_forwarding_pipeline_config_request::Action,
            stream_message_request::Update as Request, stream_message_response::Update as Reply,
            update,
        },
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::world::{World, frame, program, rule, to};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// What begins a connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A frame of settings without any.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A NIC that forwards what comes by its first port.
async fn forwarding() -> World {
    let mut world = World::new().await;
    world.insert(0, to(2, rule(0, &[(FieldId::EthType, 0x0800)], &[], Next::End))).await;
    forwards(&mut world).await;
    world
}

async fn forwards(world: &mut World) {
    world.send(0, &frame());
    assert_eq!(world.receive(1).await, frame());
}

/// Another controller than that of the world.
struct Stranger {
    client: P4RuntimeClient<Channel>,
}

const ELECTION: Uint128 = Uint128 { high: 9, low: 9 };

impl Stranger {
    async fn new(address: SocketAddr) -> Self {
        let client = P4RuntimeClient::connect(format!("http://{address}")).await.unwrap();
        Self { client: client.max_decoding_message_size(64 << 20) }
    }

    /// Takes the NIC over; its own controller comes back when the stream is dropped.
    async fn take_over(
        &mut self,
    ) -> (mpsc::Sender<StreamMessageRequest>, Streaming<StreamMessageResponse>) {
        let (sender, receiver) = mpsc::channel(4);
        let hello = MasterArbitrationUpdate {
            device_id: 1,
            election_id: Some(ELECTION),
            ..MasterArbitrationUpdate::default()
        };
        let update = Some(Request::Arbitration(hello));
        sender.send(StreamMessageRequest { update }).await.unwrap();
        let replies = self.client.stream_channel(ReceiverStream::new(receiver)).await;
        let mut replies = replies.unwrap().into_inner();
        match replies.message().await.unwrap().unwrap().update {
            Some(Reply::Arbitration(reply)) => assert_eq!(reply.status.unwrap().code, 0),
            other => panic!("{other:?}"),
        }
        (sender, replies)
    }

    async fn set(&mut self, info: &P4Info, device_config: &[u8]) -> Result<(), Status> {
        let config = ForwardingPipelineConfig {
            p4info: Some(info.encode_to_vec()),
            p4_device_config: device_config.to_vec(),
            cookie: None,
        };
        let request = SetForwardingPipelineConfigRequest {
            device_id: 1,
            election_id: Some(ELECTION),
            action: Action::VerifyAndCommit.into(),
            config: Some(config),
            ..SetForwardingPipelineConfigRequest::default()
        };
        let reply = self.client.set_forwarding_pipeline_config(request).await;
        reply.map(drop)
    }

    /// Writes an entry whose note is so long.
    async fn write(&mut self, note_bytes: usize) -> Code {
        let entry = TableEntry { metadata: vec![7; note_bytes], ..TableEntry::default() };
        let entity = Some(Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) });
        let request = WriteRequest {
            device_id: 1,
            election_id: Some(Uint128 { high: 0, low: 1 << 60 }),
            updates: vec![Update { r#type: update::Type::Insert.into(), entity }],
            ..WriteRequest::default()
        };
        let reply = self.client.write(request).await;
        reply.map_or_else(|status| status.code(), |_| Code::Ok)
    }
}

#[tokio::test]
async fn garbage_ends_its_own_connection_and_no_other() {
    let mut world = forwarding().await;
    let framed = |frame: &[u8]| [PREFACE, SETTINGS, frame].concat();
    let noise: Vec<u8> =
        (0..100_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let cases: [(&str, Vec<u8>); 6] = [
        ("noise", noise.clone()),
        ("another protocol", b"GET / HTTP/1.1\r\nhost: nic\r\n\r\n".to_vec()),
        ("noise behind the preface", [PREFACE, &noise].concat()),
        ("a frame that is longer than any may be", framed(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1])),
        ("data of a stream that was not begun", framed(&[0, 0, 1, 0, 0, 0, 0, 0, 1, 7])),
        (
            "headers that are not compressed as they should be",
            framed(&[0, 0, 2, 1, 5, 0, 0, 0, 1, 0xff, 0xff]),
        ),
    ];
    for (name, bytes) in cases {
        let mut socket = TcpStream::connect(world.address).await.unwrap();
        // It may be closed before all is written.
        let _ = socket.write_all(&bytes).await;
        let mut answer = Vec::new();
        // An end, or a reset.
        let end = timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
        assert!(end.is_ok(), "{name}: the connection stays");
        forwards(&mut world).await;
    }
    assert!(events(&mut world).is_empty(), "its controller noticed");
    world.insert(2, to(1, rule(0, &[(FieldId::InPort, 2)], &[], Next::End))).await;
}

/// What the controller of the NIC was told.
fn events(world: &mut World) -> Vec<OffloadEvent> {
    let mut events = Vec::new();
    world.target.poll(&mut events);
    events
}

#[tokio::test]
async fn a_message_is_read_to_eight_mebibytes_and_refused_beyond() {
    let mut world = forwarding().await;
    let mut stranger = Stranger::new(world.address).await;
    // It is read, and whoever wrote it is not the primary.
    assert_eq!(stranger.write(4 << 20).await, Code::PermissionDenied);
    assert_eq!(stranger.write(7 << 20).await, Code::PermissionDenied);
    assert_eq!(stranger.write(8 << 20).await, Code::OutOfRange);
    forwards(&mut world).await;
    assert!(events(&mut world).is_empty());
    // A packet that no wire carries is answered on the stream, which goes on.
    let (sender, mut replies) = stranger.take_over().await;
    let fields = PACKET_OUT.fields.iter().zip([2, 0, 0]);
    let metadata =
        fields.map(|(field, value)| PacketMetadata { metadata_id: field.id, value: vec![value] });
    let mut packet = PacketOut { payload: vec![7; 4 << 20], metadata: metadata.collect() };
    let send = |packet: PacketOut| StreamMessageRequest { update: Some(Request::Packet(packet)) };
    sender.send(send(packet.clone())).await.unwrap();
    match replies.message().await.unwrap().unwrap().update {
        Some(Reply::Error(error)) => {
            assert_eq!(Code::from_i32(error.canonical_code), Code::InvalidArgument);
        }
        other => panic!("{other:?}"),
    }
    packet.payload = frame();
    sender.send(send(packet)).await.unwrap();
    assert_eq!(world.receive(1).await, frame());
}

#[tokio::test]
async fn the_program_of_another_is_refused_and_the_entries_stay() {
    let mut world = forwarding().await;
    let mut stranger = Stranger::new(world.address).await;
    let (sender, mut replies) = stranger.take_over().await;
    let ours = program();
    let [more_stages, more_room] =
        [(4, 64), (3, 128)].map(|(stages, entries)| Program::new(stages, entries).unwrap());
    let json = |program: &Program| program.bmv2().to_string().into_bytes();
    let mut without_action = ours.p4info();
    without_action.actions.pop();
    let other = "is not a program of the P4Info that this device runs";
    let cases: [(&str, &str, P4Info, Vec<u8>); 6] = [
        ("more stages", "and the device has 4", more_stages.p4info(), json(&more_stages)),
        (
            "more room",
            "holds 128 entries in it, and 64 in the device",
            more_room.p4info(),
            json(&more_room),
        ),
        ("an action that is missing", "which is not there", without_action, json(&ours)),
        ("no tables", "it has 0 tables, and the device has 4", P4Info::default(), json(&ours)),
        ("the text of another program", other, ours.p4info(), json(&more_stages)),
        ("a text that is none", other, ours.p4info(), b"{\"pipelines\": 7".to_vec()),
    ];
    for (name, told, info, device_config) in cases {
        let refused = stranger.set(&info, &device_config).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}");
        assert!(refused.message().ends_with(told), "{name}: {}", refused.message());
        forwards(&mut world).await;
    }
    // What it runs already is taken, and nothing is left of what was written.
    stranger.set(&ours.p4info(), &json(&ours)).await.unwrap();
    world.send(0, &frame());
    match replies.message().await.unwrap().unwrap().update {
        Some(Reply::Packet(packet)) => assert_eq!(packet.payload, frame()),
        other => panic!("{other:?}"),
    }
    drop((sender, replies));
    world.restored().await;
    forwards(&mut world).await;
}
