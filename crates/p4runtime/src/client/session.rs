//! One connection: arbitration, the program, batches, reads.

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use prost::Message;
use shunt_gigaflow::offload::Refusal;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Response, Status, Streaming,
    transport::{Channel, Endpoint},
};
use tracing::{debug, info};

use super::{
    Settings,
    encoded::{Counted, CountedEntity, EncodedRead, EncodedWrite, Stub},
};
use crate::{
    error::{PartCode, batch_codes},
    program::{PACKET_IN, PACKET_OUT, START_ACTION, START_TABLE, TAG_FIRST},
    schema::Schema,
    server::{ElectionId, election_id, election_message},
    value,
    wire::p4::{
        config::v1::P4Info,
        v1::{
            self, Entity, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest,
            MasterArbitrationUpdate, PacketIn, PacketMetadata, PacketOut, ReadRequest, Role,
            SetForwardingPipelineConfigRequest, StreamMessageRequest, StreamMessageResponse,
            TableAction, TableEntry, Update, action, entity, forwarding_pipeline_config::Cookie,
            get_forwarding_pipeline_config_request::ResponseType,
            p4_runtime_client::P4RuntimeClient, set_forwarding_pipeline_config_request::Action,
            stream_message_request, stream_message_response, table_action, update,
        },
    },
};

/// Why a session cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is nobody at the address.
    #[error("cannot connect to the device")]
    Connect(#[source] tonic::transport::Error),
    /// A request failed as a whole.
    #[error("the device refused a request: {0}")]
    Refused(#[source] Box<Status>),
    /// A request was not answered in time.
    #[error("the device does not answer")]
    Silent,
    /// The stream ended.
    #[error("the device ended the stream")]
    Ended,
    /// Another controller has the election id.
    #[error("another controller has the election id")]
    ElectionTaken,
    /// Another controller is the primary.
    #[error("another controller is the primary")]
    Backup,
    /// Nobody is the primary: there was one, with this id.
    #[error("the election id is below that of a primary that is gone")]
    TooLow(ElectionId),
    /// A batch failed, and the device does not say which of its updates.
    #[error("the device does not say which updates failed: {0}")]
    NoDetails(#[source] Box<Status>),
    /// What the device holds cannot be made what it confirmed.
    #[error("the device does not take a repair: {0:?}")]
    Repair(Code),
    /// What the device holds is not what it confirmed, however often it is repaired.
    #[error("the device does not keep what it takes")]
    Unrepaired,
    /// The first tag cannot be set.
    #[error("the device does not take the first tag: {0:?}")]
    StartTag(Code),
    /// It is asked what it holds, and answers with more than it can.
    #[error("the device says that it holds more than {max} entries")]
    Endless {
        /// As many as are listened to.
        max: usize,
    },
    /// What was written, and may have been done, cannot be written again.
    #[error("what was written cannot be written again: {0}")]
    Unsaid(#[from] Refusal),
    /// The answers are not those of the batch.
    #[error("the device answered {answers} of {updates} updates")]
    Answers {
        /// Answers that came.
        answers: usize,
        /// Updates that were sent.
        updates: usize,
    },
}

impl From<Status> for SessionError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// A packet that the device handed over, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The port of the device that it came in by.
    pub ingress_port: u16,
    /// Why: 0 no entry was found, 1 it cannot be taken apart, 2 an entry says so.
    pub reason: u8,
    /// The tag that no entry was found for.
    pub miss_tag: u16,
    /// The last stage that had an entry; 0: none.
    pub last_stage: u8,
    /// The frame.
    pub payload: Vec<u8>,
}

/// A packet for the device to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketToSend {
    /// Out by a port, as it is.
    Direct {
        /// The port of the device.
        port: u16,
        /// The frame.
        payload: Vec<u8>,
    },
    /// Through the stages, as if it came in by a port.
    Resubmit {
        /// The port of the device.
        port: u16,
        /// The frame.
        payload: Vec<u8>,
    },
}

/// Largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Entries of an answer beyond twice as many as the stages are for.
const STRANGERS_MAX: usize = 1024;

/// A reading may take so many times as long as another request.
const READ_TIMEOUTS: u32 = 6;

/// Bytes of a header list: details of a failed batch come in one, and about 90 bytes for each update.
const HEADER_BYTES_MIN: usize = 64 << 10;
const HEADER_BYTES_PER_UPDATE: usize = 160;

/// Messages to the device that wait.
const STREAM_QUEUE: usize = 1024;

/// A device that is asked whether it is there, and does not answer for as long, is lost.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// What a controller of this kind notes with the program.
const COOKIE: u64 = u64::from_be_bytes(*b"shuntltm");

/// The requests of a session; clones make them at the same time.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    client: P4RuntimeClient<Channel>,
    /// The same for what is encoded already.
    stub: Stub,
    settings: Arc<Settings>,
    election: ElectionId,
}

/// A connection whose client is primary, to a device that runs the program.
pub(super) struct Session {
    pub(super) requests: Requests,
    stream: Option<Streaming<StreamMessageResponse>>,
    to_device: mpsc::Sender<StreamMessageRequest>,
    /// The program was there already, and so may be entries.
    pub(super) is_known: bool,
}

impl Session {
    /// Connects and becomes primary.
    pub(super) async fn open(
        settings: &Arc<Settings>,
        election: ElectionId,
    ) -> Result<Self, SessionError> {
        let headers = HEADER_BYTES_MIN + settings.batch.saturating_mul(HEADER_BYTES_PER_UPDATE);
        let endpoint = Endpoint::from_shared(settings.address.clone())
            .map_err(SessionError::Connect)?
            .tcp_nodelay(true)
            .connect_timeout(settings.request_timeout)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(u32::try_from(headers).unwrap_or(u32::MAX));
        let channel = endpoint.connect().await.map_err(SessionError::Connect)?;
        let stub = Stub::new(channel.clone(), ANSWER_BYTES_MAX);
        let client = P4RuntimeClient::new(channel)
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX);
        let (to_device, receiver) = mpsc::channel(STREAM_QUEUE);
        let requests = Requests { client, stub, settings: Arc::clone(settings), election };
        let mut session = Self { requests, stream: None, to_device, is_known: false };
        session.arbitrate(receiver).await?;
        Ok(session)
    }

    /// Sees to the program and the first tag.
    pub(super) async fn prepare(&mut self) -> Result<(), SessionError> {
        self.is_known = self.requests.see_to_program().await?;
        self.requests.set_start().await
    }

    async fn arbitrate(
        &mut self,
        receiver: mpsc::Receiver<StreamMessageRequest>,
    ) -> Result<(), SessionError> {
        self.send(stream_message_request::Update::Arbitration(self.candidacy())).await?;
        let settings = Arc::clone(&self.requests.settings);
        let opened = self.requests.client.stream_channel(ReceiverStream::new(receiver));
        let mut stream = match in_time(&settings, opened).await {
            Ok(opened) => opened.into_inner(),
            // Some devices have one controller and no arbitration.
            Err(SessionError::Refused(status)) if status.code() == Code::Unimplemented => {
                debug!("the device has no stream");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let first = in_time(&settings, stream.message()).await.map_err(|error| match error {
            SessionError::Refused(status) if status.code() == Code::InvalidArgument => {
                SessionError::ElectionTaken
            }
            error => error,
        })?;
        let first = first.ok_or(SessionError::Ended)?;
        if let Some(stream_message_response::Update::Arbitration(advice)) = first.update {
            check_primary(&advice)?;
        }
        self.stream = Some(stream);
        Ok(())
    }

    fn candidacy(&self) -> MasterArbitrationUpdate {
        let name = &self.requests.settings.role;
        let role = (!name.is_empty()).then(|| Role { name: name.clone(), ..Role::default() });
        MasterArbitrationUpdate {
            device_id: self.requests.settings.device_id,
            role,
            election_id: election_message(Some(self.requests.election)),
            status: None,
        }
    }

    async fn send(&self, update: stream_message_request::Update) -> Result<(), SessionError> {
        let request = StreamMessageRequest { update: Some(update) };
        self.to_device.send(request).await.map_err(|_| SessionError::Ended)
    }

    pub(super) async fn send_packet(&self, packet: PacketToSend) -> Result<(), SessionError> {
        let (egress, ingress, resubmit, payload) = match packet {
            PacketToSend::Direct { port, payload } => (port, 0, 0, payload),
            PacketToSend::Resubmit { port, payload } => (0, port, 1, payload),
        };
        let values = [u128::from(egress), u128::from(ingress), resubmit];
        let metadata = PACKET_OUT.fields.iter().zip(values).map(|(field, number)| PacketMetadata {
            metadata_id: field.id,
            value: value::encode(number),
        });
        let packet = PacketOut { payload, metadata: metadata.collect() };
        self.send(stream_message_request::Update::Packet(packet)).await
    }

    /// The next message of the stream; nothing ever comes of a device that has none.
    pub(super) async fn next(&mut self) -> Result<stream_message_response::Update, SessionError> {
        let Some(stream) = &mut self.stream else { return std::future::pending().await };
        loop {
            let message = stream.message().await?.ok_or(SessionError::Ended)?;
            match message.update {
                Some(stream_message_response::Update::Arbitration(advice)) => {
                    check_primary(&advice)?;
                }
                Some(update) => return Ok(update),
                None => {}
            }
        }
    }
}

impl Requests {
    /// Leaves the program alone if it is ours, else sets it; whether it was there.
    async fn see_to_program(&mut self) -> Result<bool, SessionError> {
        let info = self.settings.program.p4info();
        let question = GetForwardingPipelineConfigRequest {
            device_id: self.settings.device_id,
            response_type: ResponseType::P4infoAndCookie.into(),
        };
        let asked = self.client.get_forwarding_pipeline_config(question);
        let running = match in_time(&self.settings, asked).await {
            Ok(answer) => answer.into_inner().config.and_then(|config| config.p4info),
            // Of a device without a program some servers say that.
            Err(SessionError::Refused(_)) => None,
            Err(error) => return Err(error),
        };
        // Names and annotations are for people: what a compiler says of the program is the same.
        let schema_of = |info: &P4Info| Schema::read(info).ok();
        let running = running.and_then(|bytes| P4Info::decode(&bytes[..]).ok());
        if running.is_some_and(|running| schema_of(&running) == schema_of(&info)) {
            return Ok(true);
        }
        let own = || self.settings.program.bmv2().to_string().into_bytes();
        let program = self.settings.device_config.as_deref().map_or_else(own, <[u8]>::to_vec);
        let config = ForwardingPipelineConfig {
            p4info: Some(info.encode_to_vec()),
            p4_device_config: program,
            cookie: Some(Cookie { cookie: COOKIE }),
        };
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.settings.device_id,
            role: self.settings.role.clone(),
            election_id: election_message(Some(self.election)),
            action: Action::VerifyAndCommit.into(),
            config: Some(config),
        };
        let set = self.client.set_forwarding_pipeline_config(request);
        match in_time(&self.settings, set).await {
            Ok(_) => {
                info!(device = self.settings.device_id, "the program was set");
                Ok(false)
            }
            // A device whose program is fixed has the one that it has.
            Err(SessionError::Refused(status)) if status.code() == Code::Unimplemented => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Sets the first tag.
    async fn set_start(&mut self) -> Result<(), SessionError> {
        let value = value::encode(self.settings.start_tag.into()).into();
        let params = vec![action::Param { param_id: 1, value }];
        let action = v1::Action { action_id: START_ACTION.id, params };
        let entry = TableEntry {
            table_id: START_TABLE,
            action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
            is_default_action: true,
            ..TableEntry::default()
        };
        let codes =
            self.write_each(vec![update(update::Type::Modify, entry).encode_to_vec()]).await?;
        let code = codes.first().map_or(Code::Ok, |part| part.code);
        // A device that has the tag as it is may refuse to be told.
        if code == Code::Ok || self.settings.start_tag == TAG_FIRST {
            return Ok(());
        }
        Err(SessionError::StartTag(code))
    }

    /// Writes a batch of encoded updates; what became of each.
    pub(super) async fn write(
        &mut self,
        updates: Vec<Vec<u8>>,
    ) -> Result<Vec<PartCode>, SessionError> {
        let count = updates.len();
        let request = EncodedWrite {
            device_id: self.settings.device_id,
            election_id: election_message(Some(self.election)),
            updates,
            role: self.settings.role.clone(),
        };
        match in_time(&self.settings, self.stub.write(request)).await {
            Ok(_) => Ok(vec![Code::Ok.into(); count]),
            Err(SessionError::Refused(status)) => match batch_codes(&status) {
                Some(codes) if codes.len() == count => Ok(codes),
                Some(codes) => Err(SessionError::Answers { answers: codes.len(), updates: count }),
                None if is_of_batch(&status, count) => Err(SessionError::NoDetails(status)),
                None => Err(SessionError::Refused(status)),
            },
            Err(error) => Err(error),
        }
    }

    /// Writes one update after the other, each with its own answer: for devices that do not say which
    /// part of a batch has failed. Of the batch some may have been done: what is there already under the
    /// name that it is to have was inserted then.
    pub(super) async fn write_each(
        &mut self,
        updates: Vec<Vec<u8>>,
    ) -> Result<Vec<PartCode>, SessionError> {
        let mut codes = Vec::with_capacity(updates.len());
        for update in updates {
            let inserted = inserted(&update);
            let mut code = match self.write(vec![update]).await {
                Ok(answered) => answered.into_iter().next().unwrap_or_else(|| Code::Ok.into()),
                Err(SessionError::NoDetails(status)) => status.code().into(),
                Err(error) => return Err(error),
            };
            if code.code == Code::AlreadyExists
                && let Some((name, question)) = inserted
                && self.read(vec![question]).await?.iter().any(|e| e.controller_metadata == name)
            {
                code = Code::Ok.into();
            }
            codes.push(code);
        }
        Ok(codes)
    }

    /// Reads the entries that are meant; with their counters if the questions have some.
    pub(super) async fn read(
        &mut self,
        questions: Vec<TableEntry>,
    ) -> Result<Vec<TableEntry>, SessionError> {
        let wrap = |entry| Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
        let request = ReadRequest {
            device_id: self.settings.device_id,
            role: self.settings.role.clone(),
            entities: questions.into_iter().map(wrap).collect(),
        };
        let mut found = Vec::new();
        let asked = self.client.read(request);
        listen(&self.settings, asked, |answer| {
            for entity in &answer.entities {
                let entity = Entity::decode(&entity[..])
                    .map_err(|error| Status::internal(error.to_string()))?;
                if let Some(entity::Entity::TableEntry(entry)) = entity.entity {
                    found.push(*entry);
                }
            }
            Ok(answer.entities.len())
        })
        .await?;
        Ok(found)
    }

    /// Reads the counters of the entries that are meant, by encoded questions.
    pub(super) async fn count(
        &mut self,
        questions: Vec<Vec<u8>>,
    ) -> Result<Vec<Counted>, SessionError> {
        let request = EncodedRead {
            device_id: self.settings.device_id,
            entities: questions,
            role: self.settings.role.clone(),
        };
        let mut found = Vec::new();
        let asked = self.stub.read_counts(request);
        listen(&self.settings, asked, |answer| {
            found.extend(answer.entities.iter().filter_map(CountedEntity::counted));
            Ok(answer.entities.len())
        })
        .await?;
        Ok(found)
    }

    /// Everything that the stages hold.
    pub(super) async fn read_all(&mut self) -> Result<Vec<TableEntry>, SessionError> {
        let program = self.settings.program;
        let stages = (0..program.stages())
            .map(|stage| TableEntry { table_id: program.table_id(stage), ..TableEntry::default() });
        self.read(stages.collect()).await
    }
}

/// The name of what an update inserts, and the question for it.
fn inserted(update: &[u8]) -> Option<(u64, TableEntry)> {
    let update = Update::decode(update).ok()?;
    let is_insert = update.r#type() == update::Type::Insert;
    match update.entity?.entity? {
        entity::Entity::TableEntry(entry) if is_insert => {
            let TableEntry { table_id, r#match, priority, controller_metadata, .. } = *entry;
            let question = TableEntry { table_id, r#match, priority, ..TableEntry::default() };
            Some((controller_metadata, question))
        }
        _ => None,
    }
}

/// An update of an entry.
pub(crate) fn update(kind: update::Type, entry: TableEntry) -> Update {
    let entity = Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
    Update { r#type: kind as i32, entity: Some(entity) }
}

/// Whether a status can be that of some updates, and need not be that of the whole request or of the
/// connection.
fn is_of_batch(status: &Status, count: usize) -> bool {
    let is_from_device = status.source().is_none();
    let is_of_one = count == 1
        && matches!(
            status.code(),
            Code::AlreadyExists | Code::NotFound | Code::InvalidArgument | Code::OutOfRange
        );
    let is_of_some =
        matches!(status.code(), Code::Unknown | Code::Internal | Code::ResourceExhausted);
    is_from_device && (is_of_one || is_of_some)
}

/// What a packet-in says, if it is of the program.
pub(super) fn packet_of(packet: PacketIn) -> Option<Packet> {
    let numbers: BTreeMap<u32, u128> = packet
        .metadata
        .iter()
        .filter_map(|field| Some((field.metadata_id, value::decode(&field.value)?)))
        .collect();
    let [ingress, reason, tag, stage] = PACKET_IN.fields else { return None };
    let number = |field: &crate::program::Meta| numbers.get(&field.id).copied();
    Some(Packet {
        ingress_port: number(ingress)?.try_into().ok()?,
        reason: number(reason)?.try_into().ok()?,
        miss_tag: number(tag)?.try_into().ok()?,
        last_stage: number(stage)?.try_into().ok()?,
        payload: packet.payload,
    })
}

fn check_primary(advice: &MasterArbitrationUpdate) -> Result<(), SessionError> {
    let code = advice.status.as_ref().map_or(Code::Ok, |status| Code::from_i32(status.code));
    match (code, election_id(advice.election_id)) {
        (Code::Ok, _) => Ok(()),
        (Code::NotFound, Some(highest)) => Err(SessionError::TooLow(highest)),
        _ => Err(SessionError::Backup),
    }
}

/// Hears an answer part by part, and gives each to `take`, which says how many entities are in it: no
/// more than could be held.
async fn listen<A>(
    settings: &Settings,
    asked: impl Future<Output = Result<Response<Streaming<A>>, Status>>,
    mut take: impl FnMut(A) -> Result<usize, Status>,
) -> Result<(), SessionError> {
    let program = settings.program;
    let stages_max = usize::from(program.stages()).saturating_mul(program.size() as usize);
    let max = stages_max.saturating_mul(2).saturating_add(STRANGERS_MAX);
    let reading = async {
        let mut answers = in_time(settings, asked).await?.into_inner();
        let mut left = max;
        while let Some(answer) = in_time(settings, answers.message()).await? {
            left = left.checked_sub(take(answer)?).ok_or(SessionError::Endless { max })?;
        }
        Ok(())
    };
    let within = settings.request_timeout.saturating_mul(READ_TIMEOUTS);
    timeout(within, reading).await.map_err(|_| SessionError::Silent)?
}

async fn in_time<T>(
    settings: &Settings,
    request: impl Future<Output = Result<T, Status>>,
) -> Result<T, SessionError> {
    let answered = timeout(settings.request_timeout, request).await;
    answered.map_err(|_| SessionError::Silent)?.map_err(SessionError::from)
}
