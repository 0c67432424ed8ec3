//! One session: arbitration, pipeline configuration, writes and reads.

use std::{collections::BTreeMap, fs, future, io, sync::Arc, time::Duration};

use prost::Message;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Response, Status, Streaming,
    transport::{Channel, Endpoint},
};
use tracing::{debug, info};

use super::{
    ClientSettings, DeviceConfig, SessionError,
    encoded::{CountedEntity, EncodedClient, EncodedRead, EncodedWrite, EntryCount},
};
use crate::{
    error::{UpdateCode, batch_codes},
    program::{PACKET_IN, PACKET_OUT, START_ACTION, START_TABLE, TAG_FIRST},
    schema::Schema,
    server::{ElectionId, election_id, election_message},
    value,
    wire::p4::{
        config::v1::P4Info,
        v1::{
            self, CapabilitiesRequest, Entity, ForwardingPipelineConfig,
            GetForwardingPipelineConfigRequest, MasterArbitrationUpdate, PacketIn, PacketMetadata,
            PacketOut, ReadRequest, Role, SetForwardingPipelineConfigRequest, StreamMessageRequest,
            StreamMessageResponse, TableAction, TableEntry, Update, action, entity,
            forwarding_pipeline_config::Cookie,
            get_forwarding_pipeline_config_request::ResponseType,
            p4_runtime_client::P4RuntimeClient, set_forwarding_pipeline_config_request::Action,
            stream_message_request, stream_message_response, table_action, update,
        },
    },
};

/// A packet that the device punted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePacket {
    /// Ingress port of the device.
    pub ingress_port: u16,
    /// The reason code of the punt.
    ///
    /// 0: no entry matched; 1: the parser refused the packet; 2: an entry punts the packet.
    pub reason: u8,
    /// The tag for which no entry matched.
    pub miss_tag: u16,
    /// The last stage with a matching entry; 0 if no entry matched.
    pub last_stage: u8,
    /// The frame of the packet.
    pub payload: Vec<u8>,
}

/// A packet for the device to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketToSend {
    /// The device sends the packet by an egress port, unmodified.
    Direct {
        /// The egress port of the device.
        port: u16,
        /// The frame of the packet.
        payload: Vec<u8>,
    },
    /// The stages process the packet, as if it had arrived on a port.
    Resubmit {
        /// The ingress port of the device.
        port: u16,
        /// The frame of the packet.
        payload: Vec<u8>,
    },
}

/// Maximum size of a response in bytes.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// Number of entries that a read may return beyond twice the device size.
const UNKNOWN_ENTRIES_MAX: usize = 1024;

/// A read may take this many times as long as another request.
const READ_TIMEOUTS: u32 = 6;

/// Accepted size of an HTTP/2 header list for a batch without updates, in bytes.
///
/// A failed batch returns about 90 bytes per update in one header.
const HEADER_BYTES_MIN: usize = 64 << 10;
const HEADER_BYTES_PER_UPDATE: usize = 160;

/// Number of messages that may wait for the device.
const STREAM_QUEUE: usize = 1024;

/// The cookie that is stored with the program.
const COOKIE: u64 = u64::from_be_bytes(*b"shuntltm");

/// The requests of a session. Clones send requests concurrently.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    client: P4RuntimeClient<Channel>,
    /// The client for encoded requests.
    stub: EncodedClient,
    settings: Arc<ClientSettings>,
    election: ElectionId,
}

/// A session in which this client is primary and the device runs the program.
pub(super) struct Session {
    pub(super) requests: Requests,
    stream: Option<Streaming<StreamMessageResponse>>,
    to_device: mpsc::Sender<StreamMessageRequest>,
    /// True if the program was already running, so that the device may hold entries.
    pub(super) is_known: bool,
}

impl Session {
    /// Connects to the device, and becomes primary.
    pub(super) async fn open(
        settings: &Arc<ClientSettings>,
        election: ElectionId,
    ) -> Result<Self, SessionError> {
        let headers = HEADER_BYTES_MIN + settings.batch.saturating_mul(HEADER_BYTES_PER_UPDATE);
        let endpoint = Endpoint::from_shared(settings.address.clone())
            .map_err(SessionError::Connect)?
            .tcp_nodelay(true)
            .connect_timeout(settings.request_timeout)
            // The largest size that HTTP/2 can express is enough for any batch.
            .http2_max_header_list_size(u32::try_from(headers).unwrap_or(u32::MAX));
        let channel = endpoint.connect().await.map_err(SessionError::Connect)?;
        let stub = EncodedClient::new(channel.clone(), RESPONSE_BYTES_MAX);
        let client = P4RuntimeClient::new(channel)
            .max_decoding_message_size(RESPONSE_BYTES_MAX)
            .max_encoding_message_size(RESPONSE_BYTES_MAX);
        let (to_device, receiver) = mpsc::channel(STREAM_QUEUE);
        let requests = Requests { client, stub, settings: Arc::clone(settings), election };
        let mut session = Self { requests, stream: None, to_device, is_known: false };
        session.arbitrate(receiver).await?;
        Ok(session)
    }

    /// Configures the pipeline and the first tag.
    pub(super) async fn prepare(&mut self) -> Result<(), SessionError> {
        self.is_known = self.requests.ensure_program().await?;
        self.requests.set_start_tag().await
    }

    /// Becomes the primary controller of the device.
    async fn arbitrate(
        &mut self,
        receiver: mpsc::Receiver<StreamMessageRequest>,
    ) -> Result<(), SessionError> {
        self.send(stream_message_request::Update::Arbitration(self.arbitration_request())).await?;
        let settings = Arc::clone(&self.requests.settings);
        let opened = self.requests.client.stream_channel(ReceiverStream::new(receiver));
        let mut stream = match with_timeout(&settings, opened).await {
            Ok(opened) => opened.into_inner(),
            // Some devices support one controller only, without arbitration.
            Err(SessionError::Refused(status)) if status.code() == Code::Unimplemented => {
                debug!("NIC: the device has no stream channel");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let first =
            with_timeout(&settings, stream.message()).await.map_err(|error| match error {
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

    /// Returns the request to become the primary.
    fn arbitration_request(&self) -> MasterArbitrationUpdate {
        let name = &self.requests.settings.role;
        let role = (!name.is_empty()).then(|| Role { name: name.clone(), ..Role::default() });
        MasterArbitrationUpdate {
            device_id: self.requests.settings.device_id,
            role,
            election_id: election_message(Some(self.requests.election)),
            status: None,
        }
    }

    /// Sends a message on the stream.
    async fn send(&self, update: stream_message_request::Update) -> Result<(), SessionError> {
        let request = StreamMessageRequest { update: Some(update) };
        self.to_device.send(request).await.map_err(|_| SessionError::Ended)
    }

    /// Sends a packet that the device is to forward.
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

    /// Returns the next stream message; never returns if the device has no stream.
    pub(super) async fn next(&mut self) -> Result<stream_message_response::Update, SessionError> {
        let Some(stream) = &mut self.stream else { return future::pending().await };
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
    /// Checks that the device still answers.
    ///
    /// HTTP/2 pings are no alternative: gRPC servers end a connection with more than a few pings.
    pub(super) async fn probe(&self) -> Result<(), SessionError> {
        let mut client = self.client.clone();
        let request = CapabilitiesRequest { device_id: self.settings.device_id };
        match with_timeout(&self.settings, client.capabilities(request)).await {
            Ok(_) => Ok(()),
            // A refusal by the device is an answer, too; a refusal by the transport is not.
            Err(SessionError::Refused(status)) if !is_of_transport(status.code()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets the program unless it already runs; returns whether it already ran.
    async fn ensure_program(&mut self) -> Result<bool, SessionError> {
        let info = self.settings.program.p4info();
        let query = GetForwardingPipelineConfigRequest {
            device_id: self.settings.device_id,
            response_type: ResponseType::P4infoAndCookie.into(),
        };
        let request = self.client.get_forwarding_pipeline_config(query);
        let running = match with_timeout(&self.settings, request).await {
            Ok(response) => response.into_inner().config.and_then(|config| config.p4info),
            // Some servers return an error for a device without a program.
            Err(SessionError::Refused(_)) => None,
            Err(error) => return Err(error),
        };
        // Only the schema is compared: compilers choose other names and annotations.
        let schema_of = |info: &P4Info| Schema::read(info).ok();
        let running = running.and_then(|bytes| P4Info::decode(&bytes[..]).ok());
        let (running, configured) = (running.as_ref().map(schema_of), schema_of(&info));
        if running.as_ref().is_some_and(|running| *running == configured) {
            return Ok(true);
        }
        let program = match &self.settings.device_config {
            DeviceConfig::Bmv2 => self.settings.program.bmv2_json().to_string().into_bytes(),
            DeviceConfig::File(path) => {
                let failed = |source| SessionError::DeviceConfig { path: path.clone(), source };
                let file = path.clone();
                let read = spawn_blocking(move || fs::read(file)).await;
                read.map_err(io::Error::other).flatten().map_err(failed)?
            }
        };
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
        match with_timeout(&self.settings, set).await {
            Ok(_) => {
                info!(
                    device = self.settings.device_id,
                    "NIC: the P4 program was loaded into the \
                     device"
                );
                Ok(false)
            }
            // A device with a fixed program cannot be configured.
            Err(SessionError::Refused(status)) if status.code() == Code::Unimplemented => Ok(true),
            Err(SessionError::Refused(status)) if status.code() == Code::InvalidArgument => {
                let running = running.flatten();
                let configured = configured.unwrap_or_default();
                Err(SessionError::program_refused(running.as_ref(), &configured, &status))
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the first tag of packets at the device.
    async fn set_start_tag(&mut self) -> Result<(), SessionError> {
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
        // A device that cannot change the default may refuse the write of the same value.
        if code == Code::Ok || self.settings.start_tag == TAG_FIRST {
            return Ok(());
        }
        Err(SessionError::StartTag(code))
    }

    /// Writes a batch of encoded updates and returns the result of each.
    pub(super) async fn write(
        &mut self,
        updates: Vec<Vec<u8>>,
    ) -> Result<Vec<UpdateCode>, SessionError> {
        let count = updates.len();
        let request = EncodedWrite {
            device_id: self.settings.device_id,
            election_id: election_message(Some(self.election)),
            updates,
            role: self.settings.role.clone(),
        };
        match with_timeout(&self.settings, self.stub.write(request)).await {
            Ok(_) => Ok(vec![Code::Ok.into(); count]),
            Err(SessionError::Refused(status)) => match batch_codes(&status) {
                Some(codes) if codes.len() == count => Ok(codes),
                Some(codes) => {
                    Err(SessionError::ResultCount { responses: codes.len(), updates: count })
                }
                None if may_concern_updates(&status, count) => Err(SessionError::NoDetails(status)),
                None => Err(SessionError::Refused(status)),
            },
            Err(error) => Err(error),
        }
    }

    /// Writes the updates one by one, each with its own result.
    ///
    /// Devices that do not report which update of a batch failed need this. Some updates of the
    /// failed batch may have succeeded. An insert of an entry that the device already holds under
    /// the same name counts as done.
    pub(super) async fn write_each(
        &mut self,
        updates: Vec<Vec<u8>>,
    ) -> Result<Vec<UpdateCode>, SessionError> {
        let mut codes = Vec::with_capacity(updates.len());
        for update in updates {
            let inserted_entry = inserted_entry(&update);
            let mut code = match self.write(vec![update]).await {
                Ok(result) => result.into_iter().next().unwrap_or_else(|| Code::Ok.into()),
                Err(SessionError::NoDetails(status)) => status.code().into(),
                Err(error) => return Err(error),
            };
            if code.code == Code::AlreadyExists
                && let Some((name, query)) = inserted_entry
                && self.read(vec![query]).await?.iter().any(|e| e.controller_metadata == name)
            {
                code = Code::Ok.into();
            }
            codes.push(code);
        }
        Ok(codes)
    }

    /// Reads the selected entries, with their counters if the queries request them.
    pub(super) async fn read(
        &mut self,
        queries: Vec<TableEntry>,
    ) -> Result<Vec<TableEntry>, SessionError> {
        let wrap = |entry| Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
        let request = ReadRequest {
            device_id: self.settings.device_id,
            role: self.settings.role.clone(),
            entities: queries.into_iter().map(wrap).collect(),
        };
        let mut entries = Vec::new();
        let request = self.client.read(request);
        read_stream(&self.settings, request, |response| {
            for entity in &response.entities {
                let entity = Entity::decode(&entity[..])
                    .map_err(|error| Status::internal(error.to_string()))?;
                if let Some(entity::Entity::TableEntry(entry)) = entity.entity {
                    entries.push(*entry);
                }
            }
            Ok(response.entities.len())
        })
        .await?;
        Ok(entries)
    }

    /// Reads the counters that the encoded queries select.
    pub(super) async fn count(
        &mut self,
        queries: Vec<Vec<u8>>,
    ) -> Result<Vec<EntryCount>, SessionError> {
        let request = EncodedRead {
            device_id: self.settings.device_id,
            entities: queries,
            role: self.settings.role.clone(),
        };
        let mut entries = Vec::new();
        let request = self.stub.read_counts(request);
        read_stream(&self.settings, request, |response| {
            entries.extend(response.entities.iter().filter_map(CountedEntity::count));
            Ok(response.entities.len())
        })
        .await?;
        Ok(entries)
    }

    /// Reads all entries of the stages.
    pub(super) async fn read_all(&mut self) -> Result<Vec<TableEntry>, SessionError> {
        let program = self.settings.program;
        let stages = (0..program.stages())
            .map(|stage| TableEntry { table_id: program.table_id(stage), ..TableEntry::default() });
        self.read(stages.collect()).await
    }
}

/// Returns the name of the entry that an update inserts, and a query for the entry.
fn inserted_entry(update: &[u8]) -> Option<(u64, TableEntry)> {
    let update = Update::decode(update).ok()?;
    let is_insert = update.r#type() == update::Type::Insert;
    match update.entity?.entity? {
        entity::Entity::TableEntry(entry) if is_insert => {
            let TableEntry { table_id, r#match, priority, controller_metadata, .. } = *entry;
            let query = TableEntry { table_id, r#match, priority, ..TableEntry::default() };
            Some((controller_metadata, query))
        }
        _ => None,
    }
}

/// Creates an update of an entry.
pub(crate) fn update(kind: update::Type, entry: TableEntry) -> Update {
    let entity = Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
    Update { r#type: kind as i32, entity: Some(entity) }
}

/// Returns whether a status may concern single updates of a batch.
///
/// Other statuses concern the whole request.
fn may_concern_updates(status: &Status, count: usize) -> bool {
    let is_of_one = count == 1
        && matches!(
            status.code(),
            Code::AlreadyExists | Code::NotFound | Code::InvalidArgument | Code::OutOfRange
        );
    let is_of_some =
        matches!(status.code(), Code::Unknown | Code::Internal | Code::ResourceExhausted);
    is_of_one || is_of_some
}

/// Decodes a packet-in of the program.
pub(super) fn packet_of(packet: PacketIn) -> Option<DevicePacket> {
    let numbers: BTreeMap<u32, u128> = packet
        .metadata
        .iter()
        .filter_map(|field| Some((field.metadata_id, value::decode(&field.value)?)))
        .collect();
    let [ingress, reason, tag, stage] = PACKET_IN.fields else { return None };
    let number = |field: &crate::program::PacketField| numbers.get(&field.id).copied();
    Some(DevicePacket {
        ingress_port: number(ingress)?.try_into().ok()?,
        reason: number(reason)?.try_into().ok()?,
        miss_tag: number(tag)?.try_into().ok()?,
        last_stage: number(stage)?.try_into().ok()?,
        payload: packet.payload,
    })
}

/// Returns an error if this client is not the primary.
fn check_primary(advice: &MasterArbitrationUpdate) -> Result<(), SessionError> {
    let code = advice.status.as_ref().map_or(Code::Ok, |status| Code::from_i32(status.code));
    match (code, election_id(advice.election_id)) {
        (Code::Ok, _) => Ok(()),
        (Code::NotFound, Some(highest)) => Err(SessionError::TooLow(highest)),
        _ => Err(SessionError::Backup),
    }
}

/// Reads a response part by part, and passes each part to `take`.
///
/// `take` returns the number of entities in the part. The sum must not exceed the number of entries
/// that the device can hold.
async fn read_stream<A>(
    settings: &ClientSettings,
    request: impl Future<Output = Result<Response<Streaming<A>>, Status>>,
    mut take: impl FnMut(A) -> Result<usize, Status>,
) -> Result<(), SessionError> {
    let program = settings.program;
    let stages_max = usize::from(program.stages()).saturating_mul(program.size() as usize);
    let max = stages_max.saturating_mul(2).saturating_add(UNKNOWN_ENTRIES_MAX);
    let reading = async {
        let mut responses = with_timeout(settings, request).await?.into_inner();
        let mut left = max;
        while let Some(response) = with_timeout(settings, responses.message()).await? {
            left = left.checked_sub(take(response)?).ok_or(SessionError::Endless { max })?;
        }
        Ok(())
    };
    let within = settings.request_timeout.saturating_mul(READ_TIMEOUTS);
    timeout(within, reading).await.map_err(|_| SessionError::Silent)?
}

/// Probes an idle device after a pause; never returns if it is not idle.
pub(super) async fn probed_when_idle(
    idle: Option<&Requests>,
    pause: Duration,
) -> Result<(), SessionError> {
    let Some(requests) = idle else { return future::pending().await };
    sleep(pause).await;
    requests.probe().await
}

/// Returns whether a code reports a broken connection, not an answer.
const fn is_of_transport(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown)
}

/// Waits for a request, at most for the timeout of the settings.
async fn with_timeout<T>(
    settings: &ClientSettings,
    request: impl Future<Output = Result<T, Status>>,
) -> Result<T, SessionError> {
    let result = timeout(settings.request_timeout, request).await;
    result.map_err(|_| SessionError::Silent)?.map_err(SessionError::from)
}
