//! Tests other clients on the socket of a NIC.
//!
//! Each client gets a reply or loses its connection. The entries and the forwarding of the NIC do
//! not change.

use std::{net::SocketAddr, time::Duration};

use prost::Message;
use shunt_flow::FieldId;
use shunt_gigaflow::{
    ltm::Next,
    offload::{OffloadDevice, OffloadEvent},
};
use shunt_p4runtime::{
    client::{ClientSettings, P4RuntimeDevice},
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
    runtime::Handle,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::fixture::{NicFixture, frame, program, rule, with_output};

/// Maximum time until a reply of the NIC.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The preface of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty HTTP/2 SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Creates a NIC that forwards the packets of its first port.
async fn forwarding() -> NicFixture {
    let mut fixture = NicFixture::new().await;
    fixture.insert(0, with_output(2, rule(0, &[(FieldId::EthType, 0x0800)], &[], Next::End))).await;
    forwards(&mut fixture).await;
    fixture
}

async fn forwards(fixture: &mut NicFixture) {
    fixture.send(0, &frame());
    assert_eq!(fixture.receive(1).await, frame());
}

/// A second controller of the NIC.
struct SecondController {
    client: P4RuntimeClient<Channel>,
}

/// Election id of the second controller.
const ELECTION: Uint128 = Uint128 { high: 9, low: 9 };

impl SecondController {
    async fn new(address: SocketAddr) -> Self {
        let client = P4RuntimeClient::connect(format!("http://{address}")).await.unwrap();
        Self { client: client.max_decoding_message_size(64 << 20) }
    }

    /// Makes this client the primary controller.
    ///
    /// The first controller is primary again when the stream is dropped.
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

    /// Writes an entry with metadata of this size.
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
async fn garbage_ends_only_its_own_connection() {
    let mut fixture = forwarding().await;
    let framed = |frame: &[u8]| [PREFACE, SETTINGS, frame].concat();
    let noise: Vec<u8> =
        (0..100_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let cases: [(&str, Vec<u8>); 6] = [
        ("noise", noise.clone()),
        ("another protocol", b"GET / HTTP/1.1\r\nhost: nic\r\n\r\n".to_vec()),
        ("noise after the preface", [PREFACE, &noise].concat()),
        ("a frame that is longer than any may be", framed(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1])),
        ("data of a stream that was not begun", framed(&[0, 0, 1, 0, 0, 0, 0, 0, 1, 7])),
        (
            "headers that are not compressed as they should be",
            framed(&[0, 0, 2, 1, 5, 0, 0, 0, 1, 0xff, 0xff]),
        ),
    ];
    for (name, bytes) in cases {
        let mut socket = TcpStream::connect(fixture.address).await.unwrap();
        // The connection may be closed before all bytes are written.
        let _ = socket.write_all(&bytes).await;
        let mut answer = Vec::new();
        // The read ends with the end of the stream or with a reset.
        let end = timeout(ANSWER_TIMEOUT, socket.read_to_end(&mut answer)).await;
        assert!(end.is_ok(), "{name}: the connection stays");
        forwards(&mut fixture).await;
    }
    assert!(events(&mut fixture).is_empty(), "the first controller has no events");
    fixture.insert(2, with_output(1, rule(0, &[(FieldId::InPort, 2)], &[], Next::End))).await;
}

/// Returns the events of the device of the first controller.
fn events(fixture: &mut NicFixture) -> Vec<OffloadEvent> {
    let mut events = Vec::new();
    fixture.target.poll(&mut events);
    events
}

#[tokio::test]
async fn a_message_beyond_eight_mebibytes_is_refused() {
    let mut fixture = forwarding().await;
    let mut stranger = SecondController::new(fixture.address).await;
    // The server reads the message, and refuses it because the sender is not the primary
    // controller.
    assert_eq!(stranger.write(4 << 20).await, Code::PermissionDenied);
    assert_eq!(stranger.write(7 << 20).await, Code::PermissionDenied);
    assert_eq!(stranger.write(8 << 20).await, Code::OutOfRange);
    forwards(&mut fixture).await;
    assert!(events(&mut fixture).is_empty());
    // An oversized packet-out gets an error on the stream, and the stream stays open.
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
    assert_eq!(fixture.receive(1).await, frame());
}

#[tokio::test]
async fn client_of_other_program_names_the_difference() {
    let fixture = NicFixture::new().await;
    let settings = ClientSettings {
        program: Program::new(4, 64).unwrap(),
        // A higher id makes this client primary.
        election_id: 1000,
        retry: Duration::from_millis(5),
        ..ClientSettings::new(format!("http://{}", fixture.address))
    };
    let last_error = settings.last_error.clone();
    let _client = P4RuntimeDevice::new(settings, &Handle::current(), || {});
    let expected = "the device refused the program: it has 3 stages of 64 entries, and 4 stages of \
                    64 entries are configured: ";
    let is_refused = async {
        while !last_error.text().is_some_and(|text| text.starts_with(expected)) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(ANSWER_TIMEOUT, is_refused).await.unwrap();
}

#[tokio::test]
async fn another_program_is_refused_and_the_entries_stay() {
    let mut fixture = forwarding().await;
    let mut stranger = SecondController::new(fixture.address).await;
    let (sender, mut replies) = stranger.take_over().await;
    let ours = program();
    let [more_stages, more_room] =
        [(4, 64), (3, 128)].map(|(stages, entries)| Program::new(stages, entries).unwrap());
    let json = |program: &Program| program.bmv2_json().to_string().into_bytes();
    let mut without_action = ours.p4info();
    without_action.actions.pop();
    let other = "is not a program with the P4Info of this device";
    let cases: [(&str, &str, P4Info, Vec<u8>); 6] = [
        (
            "more stages",
            "but that of the device has 4: use the P4Info of the device",
            more_stages.p4info(),
            json(&more_stages),
        ),
        (
            "more room",
            "has 128 entries, and that of the device 64",
            more_room.p4info(),
            json(&more_room),
        ),
        ("an action that is missing", "which does not exist", without_action, json(&ours)),
        (
            "no tables",
            "the P4Info has 0 tables, but that of the device has 4: use the P4Info of the device",
            P4Info::default(),
            json(&ours),
        ),
        ("the text of another program", other, ours.p4info(), json(&more_stages)),
        ("a text that is none", other, ours.p4info(), b"{\"pipelines\": 7".to_vec()),
    ];
    for (name, message, info, device_config) in cases {
        let refused = stranger.set(&info, &device_config).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}");
        assert!(refused.message().ends_with(message), "{name}: {}", refused.message());
        forwards(&mut fixture).await;
    }
    // The current program is accepted, and clears all entries.
    stranger.set(&ours.p4info(), &json(&ours)).await.unwrap();
    fixture.send(0, &frame());
    match replies.message().await.unwrap().unwrap().update {
        Some(Reply::Packet(packet)) => assert_eq!(packet.payload, frame()),
        other => panic!("{other:?}"),
    }
    drop((sender, replies));
    fixture.wait_until_restored().await;
    forwards(&mut fixture).await;
}
