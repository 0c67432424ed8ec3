//! A server with an in-memory device, and its controllers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prost::Message;
use shunt_p4runtime::{
    error::batch_codes,
    program::Program,
    server::{ClockReading, GrpcServer, ServerSettings, Service},
    testing::MemoryDevice,
    wire::p4::{
        config::v1::{
            Action, ActionRef, MatchField, P4Info, Preamble, Table, action, action_ref, match_field,
        },
        v1::{
            self, Entity, ForwardingPipelineConfig, MasterArbitrationUpdate, Role,
            StreamMessageRequest, StreamMessageResponse, TableEntry, Uint128, Update, WriteRequest,
            entity, field_match, p4_runtime_client::P4RuntimeClient,
            set_forwarding_pipeline_config_request::Action as SetAction, stream_message_request,
            stream_message_response, table_action, update,
        },
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

/// The device id of the server.
pub(crate) const DEVICE: u64 = 1;

/// A table with an exact and a longest-prefix field.
pub(crate) const ROUTES: u32 = 0x0200_1000;
/// A table with a range and an optional field.
pub(crate) const RANGES: u32 = 0x0200_1001;
/// A table of constant entries.
pub(crate) const FIXED: u32 = 0x0200_1002;
/// A table with an exact field and two entries.
pub(crate) const SMALL: u32 = 0x0200_1003;
/// An action with a nine-bit parameter, for entries and defaults.
pub(crate) const SEND: u32 = 0x0100_1000;
/// An action for entries only.
pub(crate) const ONLY_ENTRY: u32 = 0x0100_1001;
/// An action for default entries only.
pub(crate) const ONLY_DEFAULT: u32 = 0x0100_1002;

fn table(id: u32, fields: &[(i32, match_field::MatchType)], size: i64) -> Table {
    let field = |(id, (bitwidth, kind)): (u32, &(i32, match_field::MatchType))| MatchField {
        id,
        name: format!("f{id}"),
        bitwidth: *bitwidth,
        r#match: Some(match_field::Match::MatchType((*kind).into())),
        ..MatchField::default()
    };
    let scoped = |id, scope: action_ref::Scope| ActionRef {
        id,
        scope: scope.into(),
        ..ActionRef::default()
    };
    Table {
        preamble: Some(Preamble { id, name: format!("t{id}"), ..Preamble::default() }),
        match_fields: (1..).zip(fields).map(field).collect(),
        action_refs: vec![
            scoped(SEND, action_ref::Scope::TableAndDefault),
            scoped(ONLY_ENTRY, action_ref::Scope::TableOnly),
            scoped(ONLY_DEFAULT, action_ref::Scope::DefaultOnly),
        ],
        size,
        ..Table::default()
    }
}

/// Returns the LTM program, with more tables of the kinds that the program lacks.
pub(crate) fn info() -> P4Info {
    use match_field::MatchType::{Exact, Lpm, Optional, Range};
    let mut info = Program::default().p4info();
    info.tables.extend([
        table(ROUTES, &[(9, Exact), (32, Lpm)], 64),
        table(RANGES, &[(16, Range), (8, Optional)], 64),
        Table { is_const_table: true, ..table(FIXED, &[(8, Exact)], 64) },
        table(SMALL, &[(8, Exact)], 2),
    ]);
    for (id, widths) in [(SEND, &[9][..]), (ONLY_ENTRY, &[]), (ONLY_DEFAULT, &[])] {
        let param = |(id, bitwidth): (u32, &i32)| action::Param {
            id,
            bitwidth: *bitwidth,
            ..action::Param::default()
        };
        info.actions.push(Action {
            preamble: Some(Preamble { id, name: format!("a{id}"), ..Preamble::default() }),
            params: (1..).zip(widths).map(param).collect(),
        });
    }
    info
}

pub(crate) fn config(cookie: u64) -> ForwardingPipelineConfig {
    ForwardingPipelineConfig {
        p4info: Some(info().encode_to_vec()),
        p4_device_config: b"program".to_vec(),
        cookie: Some(v1::forwarding_pipeline_config::Cookie { cookie }),
    }
}

/// A server, its device and its clock.
pub(crate) struct ServerFixture {
    pub(crate) address: String,
    pub(crate) device: MemoryDevice,
    pub(crate) service: Service,
    clock: Arc<AtomicU64>,
}

impl ServerFixture {
    pub(crate) async fn new() -> Self {
        Self::with(ServerSettings {
            device_id: DEVICE,
            streams_max: 4,
            ..ServerSettings::default()
        })
        .await
    }

    pub(crate) async fn with(settings: ServerSettings) -> Self {
        let server = GrpcServer::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = format!("http://{}", server.address());
        let (device, clock) = (MemoryDevice::default(), Arc::new(AtomicU64::new(1 << 60)));
        let time = Arc::clone(&clock);
        let service = Service::new(settings, device.clone(), move || {
            let now = Duration::from_nanos(time.load(Ordering::SeqCst));
            ClockReading { steady: now, day: now }
        });
        tokio::spawn(server.run(service.clone(), std::future::pending()));
        Self { address, device, service, clock }
    }

    /// Advances the clock and returns the new time.
    pub(crate) fn pass(&self, duration: Duration) -> Duration {
        let passed = u64::try_from(duration.as_nanos()).unwrap();
        let now = self.clock.fetch_add(passed, Ordering::SeqCst) + passed;
        self.service.tick();
        Duration::from_nanos(now)
    }

    pub(crate) async fn peer(&self) -> Peer {
        let endpoint = tonic::transport::Endpoint::from_shared(self.address.clone()).unwrap();
        let endpoint = endpoint.http2_max_header_list_size(1 << 20);
        let client = P4RuntimeClient::new(endpoint.connect().await.unwrap());
        Peer { client: client.max_decoding_message_size(64 << 20), election: None }
    }

    /// Returns a primary controller and its stream.
    pub(crate) async fn primary(&self) -> (Peer, Stream) {
        let mut peer = self.peer().await;
        let (stream, reply) = peer.join("", Some(1)).await;
        assert_eq!(status(&reply), Code::Ok);
        (peer, stream)
    }

    /// Returns a primary controller that has set the pipeline.
    pub(crate) async fn ready(&self) -> (Peer, Stream) {
        let (mut peer, stream) = self.primary().await;
        peer.set(SetAction::VerifyAndCommit, Some(config(7))).await.unwrap();
        (peer, stream)
    }
}

/// A controller.
pub(crate) struct Peer {
    pub(crate) client: P4RuntimeClient<Channel>,
    pub(crate) election: Option<Uint128>,
}

pub(crate) fn id(low: u64) -> Uint128 {
    Uint128 { high: 0, low }
}

impl Peer {
    /// Opens a stream and sends an arbitration update.
    pub(crate) async fn join(
        &mut self,
        role: &str,
        election: Option<u64>,
    ) -> (Stream, MasterArbitrationUpdate) {
        self.election = election.map(id);
        let mut stream = self.stream().await;
        stream.arbitrate(DEVICE, role, election).await;
        let reply = stream.arbitration().await;
        (stream, reply)
    }

    pub(crate) async fn stream(&mut self) -> Stream {
        let (sender, receiver) = mpsc::channel(16);
        let replies = self.client.stream_channel(ReceiverStream::new(receiver)).await.unwrap();
        Stream { sender, replies: replies.into_inner() }
    }

    pub(crate) async fn set(
        &mut self,
        action: SetAction,
        config: Option<ForwardingPipelineConfig>,
    ) -> Result<(), Code> {
        let request = v1::SetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            election_id: self.election,
            action: action.into(),
            config,
            ..Default::default()
        };
        let reply = self.client.set_forwarding_pipeline_config(request).await;
        reply.map(|_| ()).map_err(|status| status.code())
    }

    pub(crate) async fn write(&mut self, updates: Vec<Update>) -> Result<(), Status> {
        let request = WriteRequest {
            device_id: DEVICE,
            election_id: self.election,
            updates,
            ..WriteRequest::default()
        };
        self.client.write(request).await.map(|_| ())
    }

    /// Returns the result of each update.
    pub(crate) async fn codes(&mut self, updates: Vec<Update>) -> Vec<Code> {
        let count = updates.len();
        match self.write(updates).await {
            Ok(()) => vec![Code::Ok; count],
            Err(status) => {
                assert_eq!(status.code(), Code::Unknown, "{status:?}");
                codes_of(&status)
            }
        }
    }

    pub(crate) async fn code(&mut self, kind: update::Type, entry: TableEntry) -> Code {
        let codes = self.codes(vec![update(kind, entry)]).await;
        assert_eq!(codes.len(), 1);
        codes[0]
    }

    pub(crate) async fn read(&mut self, query: entity::Entity) -> Result<Vec<Entity>, Status> {
        let entities = vec![Entity { entity: Some(query) }];
        let request = v1::ReadRequest { device_id: DEVICE, entities, ..Default::default() };
        let mut replies = self.client.read(request).await?.into_inner();
        let mut entries = Vec::new();
        while let Some(reply) = replies.message().await? {
            entries
                .extend(reply.entities.iter().map(|entity| Entity::decode(&entity[..]).unwrap()));
        }
        Ok(entries)
    }

    pub(crate) async fn entries(&mut self, query: TableEntry) -> Vec<TableEntry> {
        let entries = self.read(entity::Entity::TableEntry(Box::new(query))).await.unwrap();
        let entry = |entity: Entity| match entity.entity.unwrap() {
            entity::Entity::TableEntry(entry) => *entry,
            other => panic!("{other:?}"),
        };
        entries.into_iter().map(entry).collect()
    }
}

/// The stream of a controller.
pub(crate) struct Stream {
    pub(crate) sender: mpsc::Sender<StreamMessageRequest>,
    pub(crate) replies: Streaming<StreamMessageResponse>,
}

impl Stream {
    pub(crate) async fn send(&self, update: stream_message_request::Update) {
        self.sender.send(StreamMessageRequest { update: Some(update) }).await.unwrap();
    }

    pub(crate) async fn arbitrate(&self, device: u64, role: &str, election: Option<u64>) {
        let role = (!role.is_empty()).then(|| Role { name: role.to_owned(), ..Role::default() });
        let update = MasterArbitrationUpdate {
            device_id: device,
            role,
            election_id: election.map(id),
            status: None,
        };
        self.send(stream_message_request::Update::Arbitration(update)).await;
    }

    pub(crate) async fn next(&mut self) -> Result<stream_message_response::Update, Code> {
        match self.replies.message().await {
            Ok(Some(reply)) => Ok(reply.update.unwrap()),
            Ok(None) => Err(Code::Ok),
            Err(status) => Err(status.code()),
        }
    }

    pub(crate) async fn arbitration(&mut self) -> MasterArbitrationUpdate {
        match self.next().await.unwrap() {
            stream_message_response::Update::Arbitration(update) => update,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the result codes of a batch.
pub(crate) fn codes_of(status: &Status) -> Vec<Code> {
    batch_codes(status).unwrap().into_iter().map(|part| part.code).collect()
}

pub(crate) fn status(update: &MasterArbitrationUpdate) -> Code {
    Code::from_i32(update.status.as_ref().unwrap().code)
}

pub(crate) fn update(kind: update::Type, entry: TableEntry) -> Update {
    let entity = Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
    Update { r#type: kind.into(), entity: Some(entity) }
}

pub(crate) fn exact(field: u32, value: &[u8]) -> v1::FieldMatch {
    let kind =
        field_match::FieldMatchType::Exact(field_match::Exact { value: value.to_vec().into() });
    v1::FieldMatch { field_id: field, field_match_type: Some(kind) }
}

pub(crate) fn ternary(field: u32, value: &[u8], mask: &[u8]) -> v1::FieldMatch {
    let ternary = field_match::Ternary { value: value.to_vec().into(), mask: mask.to_vec().into() };
    let kind = field_match::FieldMatchType::Ternary(ternary);
    v1::FieldMatch { field_id: field, field_match_type: Some(kind) }
}

pub(crate) fn lpm(field: u32, value: &[u8], prefix_len: i32) -> v1::FieldMatch {
    let lpm = field_match::Lpm { value: value.to_vec().into(), prefix_len };
    v1::FieldMatch {
        field_id: field,
        field_match_type: Some(field_match::FieldMatchType::Lpm(lpm)),
    }
}

pub(crate) fn range(field: u32, low: &[u8], high: &[u8]) -> v1::FieldMatch {
    let range = field_match::Range { low: low.to_vec().into(), high: high.to_vec().into() };
    let kind = field_match::FieldMatchType::Range(range);
    v1::FieldMatch { field_id: field, field_match_type: Some(kind) }
}

pub(crate) fn optional(field: u32, value: &[u8]) -> v1::FieldMatch {
    let optional = field_match::Optional { value: value.to_vec().into() };
    let kind = field_match::FieldMatchType::Optional(optional);
    v1::FieldMatch { field_id: field, field_match_type: Some(kind) }
}

pub(crate) fn action(id: u32, params: &[(u32, &[u8])]) -> Option<v1::TableAction> {
    let param = |(param_id, value): &(u32, &[u8])| v1::action::Param {
        param_id: *param_id,
        value: value.to_vec().into(),
    };
    let action = v1::Action { action_id: id, params: params.iter().map(param).collect() };
    Some(v1::TableAction { r#type: Some(table_action::Type::Action(action)) })
}

/// The first LTM table.
pub(crate) const LTM: u32 = 0x0200_0001;
/// The `next` action of the first LTM table.
pub(crate) const NEXT: u32 = 0x0100_0001;

/// Returns an entry of an LTM table: a tag, a destination and a next tag.
pub(crate) fn ltm(tag: u8, address: u8) -> TableEntry {
    TableEntry {
        table_id: LTM,
        r#match: vec![exact(1, &[tag]), ternary(8, &[10, 0, 0, address], &[255; 4])],
        action: action(NEXT, &[(1, &[tag + 1])]),
        priority: 3,
        ..TableEntry::default()
    }
}

/// Returns an entry of the routing table.
pub(crate) fn route(port: u8) -> TableEntry {
    TableEntry {
        table_id: ROUTES,
        r#match: vec![exact(1, &[port]), lpm(2, &[10, 0, 0, 0], 8)],
        action: action(SEND, &[(1, &[port])]),
        ..TableEntry::default()
    }
}
