//! The state that all requests share, under one lock.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::task::AbortHandle;
use tonic::Code;

use super::{
    arbiter::{Arbiter, ElectionId, RoleNotice, StreamId, election_message},
    device::{ClockReading, Device},
    pipeline::ForwardingPipeline,
    response_part::PART_BYTES_MAX,
    stream_queue::{StreamQueue, StreamReceiver, stream_queue},
};
use crate::{
    error::RpcError,
    wire::{
        google::rpc,
        p4::v1::{
            IdleTimeoutNotification, MasterArbitrationUpdate, PacketIn, Role,
            stream_message_response::Update,
        },
    },
};

/// Configuration of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Device id that clients must name.
    pub device_id: u64,
    /// Maximum number of connections; further ones are closed at once.
    pub connections_max: usize,
    /// Maximum number of controller streams.
    pub streams_max: usize,
    /// Maximum number of messages that wait for a controller; further ones are dropped.
    pub stream_queue: usize,
    /// Maximum number of bytes of the messages that wait for a controller.
    pub stream_bytes_max: usize,
    /// Time within which a controller must send its arbitration update.
    pub arbitration_timeout: Duration,
    /// Maximum length of a request in bytes.
    pub request_bytes_max: usize,
    /// Simulated time per update before a write is answered.
    pub update_latency: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            device_id: 1,
            connections_max: 64,
            streams_max: 16,
            stream_queue: 4096,
            stream_bytes_max: 4 << 20,
            arbitration_timeout: Duration::from_secs(5),
            request_bytes_max: 8 << 20,
            update_latency: Duration::ZERO,
        }
    }
}

/// The state that all requests share.
pub(super) struct ServiceState {
    pub(super) settings: ServerSettings,
    pub(super) device: Box<dyn Device>,
    pub(super) arbiter: Arbiter,
    pub(super) pipeline: ForwardingPipeline,
    streams: BTreeMap<StreamId, ControllerStream>,
    next_stream: u64,
}

/// The state of one `StreamChannel` of a controller.
struct ControllerStream {
    stream_queue: StreamQueue,
    /// True after the first arbitration update.
    has_begun: bool,
    /// The task that serves the stream.
    task: Option<AbortHandle>,
}

impl ServiceState {
    /// Returns a service without streams, controllers and a loaded pipeline.
    pub(super) fn new(settings: ServerSettings, device: Box<dyn Device>) -> Self {
        Self {
            settings,
            device,
            arbiter: Arbiter::default(),
            pipeline: ForwardingPipeline::default(),
            streams: BTreeMap::new(),
            next_stream: 0,
        }
    }

    /// Refuses a request for another device.
    pub(super) const fn check_device(&self, id: u64) -> Result<(), RpcError> {
        if id == self.settings.device_id { Ok(()) } else { Err(RpcError::NoDevice(id)) }
    }

    /// Checks that a request is for this device and from the primary of its role.
    pub(super) fn check_writer(
        &self,
        device: u64,
        role: &str,
        election: Option<ElectionId>,
    ) -> Result<(), RpcError> {
        self.check_device(device)?;
        let is_primary = self.arbiter.is_primary(role, election);
        if is_primary { Ok(()) } else { Err(RpcError::NotPrimary) }
    }

    /// Adds a stream of a controller.
    ///
    /// If the limit is reached, a stream without arbitration is ended first.
    pub(super) fn open(&mut self) -> Result<(StreamId, StreamQueue, StreamReceiver), RpcError> {
        let silent = self.streams.iter().find(|(_, stream)| !stream.has_begun);
        if self.streams.len() >= self.settings.streams_max
            && let Some(silent) = silent.map(|(id, _)| *id)
        {
            self.end(silent);
        }
        if self.streams.len() >= self.settings.streams_max {
            return Err(RpcError::TooManyStreams(self.streams.len()));
        }
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        let (stream_queue, receiver) =
            stream_queue(self.settings.stream_queue, self.settings.stream_bytes_max);
        let stream =
            ControllerStream { stream_queue: stream_queue.clone(), has_begun: false, task: None };
        self.streams.insert(id, stream);
        Ok((id, stream_queue, receiver))
    }

    /// Stores the task of a stream, unless the stream has ended.
    pub(super) fn attach(&mut self, id: StreamId, task: AbortHandle) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.task = Some(task);
        }
    }

    /// Ends the streams of all controllers.
    pub(super) fn close_all(&mut self) {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.end(stream));
    }

    /// Ends a stream that the controller has not closed.
    fn end(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(&id) {
            stream.stream_queue.end(RpcError::Ended.into());
            if let Some(task) = &stream.task {
                task.abort();
            }
        }
        self.close(id);
    }

    /// Removes a stream that has ended.
    pub(super) fn close(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
        let notices = self.arbiter.remove_stream(stream);
        self.notify_all(notices);
    }

    /// Handles the request of a client to become primary or backup.
    pub(super) fn arbitrate(
        &mut self,
        stream: StreamId,
        message: &MasterArbitrationUpdate,
    ) -> Result<(), RpcError> {
        self.check_device(message.device_id)?;
        let role = message.role.as_ref().map_or("", |role| role.name.as_str());
        if message.role.as_ref().is_some_and(|role| role.config.is_some()) {
            return Err(RpcError::RoleConfig);
        }
        let id = super::arbiter::election_id(message.election_id);
        let notices = self.arbiter.arbitrate(stream, role, id)?;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.has_begun = true;
        }
        self.notify_all(notices);
        Ok(())
    }

    /// Sends role notices to streams.
    ///
    /// A controller that does not read would have a stale role, so its stream is ended. Other
    /// streams may then need notices, too.
    fn notify_all(&mut self, notices: Vec<RoleNotice>) {
        let mut left = VecDeque::from(notices);
        while let Some(notices) = left.pop_front() {
            let message = self.arbitration(&notices);
            let Some(stream) = self.streams.get(&notices.stream) else { continue };
            if stream.stream_queue.push(Update::Arbitration(message)).is_err() {
                if let Some(task) = &stream.task {
                    task.abort();
                }
                self.streams.remove(&notices.stream);
                left.extend(self.arbiter.remove_stream(notices.stream));
            }
        }
    }

    /// Returns the arbitration message for a controller.
    fn arbitration(&self, notices: &RoleNotice) -> MasterArbitrationUpdate {
        let (code, message) = match (notices.is_primary, notices.has_primary) {
            (true, _) => (Code::Ok, "you are the primary"),
            (false, true) => (Code::AlreadyExists, "another controller is the primary"),
            (false, false) => (Code::NotFound, "there is no primary"),
        };
        let role = (!notices.role.is_empty())
            .then(|| Role { name: notices.role.clone(), ..Role::default() });
        MasterArbitrationUpdate {
            device_id: self.settings.device_id,
            role,
            election_id: election_message(notices.highest),
            status: Some(rpc::Status {
                code: code.into(),
                message: message.to_owned(),
                details: Vec::new(),
            }),
        }
    }

    /// Sends a message to a controller, unless its queue is full.
    pub(super) fn send(&self, stream: StreamId, update: Update) {
        if let Some(stream) = self.streams.get(&stream) {
            // The message is best effort: a controller that does not read loses it.
            let _ = stream.stream_queue.push(update);
        }
    }

    /// Sends a packet to every primary.
    pub(super) fn packet_in(&self, packet: &PacketIn) {
        for stream in self.arbiter.primaries() {
            self.send(stream, Update::Packet(packet.clone()));
        }
    }

    /// Notifies primaries of idle entries, if they have read the last notification.
    pub(super) fn tick(&mut self, now: ClockReading) {
        let takes = |id: &StreamId| {
            self.streams.get(id).is_some_and(|stream| stream.stream_queue.accepts_notice())
        };
        let receivers: Vec<StreamId> = self.arbiter.primaries().filter(takes).collect();
        if receivers.is_empty() {
            return;
        }
        // The notification must fit, however small the queue is.
        let bytes_max = PART_BYTES_MAX.min(self.settings.stream_bytes_max / 4);
        let due = self.pipeline.store.due(&mut *self.device, now.steady, bytes_max);
        if due.entries.is_empty() {
            return;
        }
        // 63 bits of nanoseconds since 1970 last until the year 2262.
        let timestamp = i64::try_from(now.day.as_nanos()).unwrap_or(i64::MAX);
        let mut is_sent = false;
        for stream in receivers.iter().filter_map(|id| self.streams.get(id)) {
            let notice = IdleTimeoutNotification { table_entry: due.entries.clone(), timestamp };
            is_sent |= stream.stream_queue.push(Update::IdleTimeoutNotification(notice)).is_ok();
        }
        // If no queue had room, the next tick notifies again.
        if is_sent {
            self.pipeline.store.postpone(&due, now.steady);
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::{
        codec::{Ports, encode},
        program::Program,
        server::write,
        testing::MemoryDevice,
        wire::p4::v1::{
            ForwardingPipelineConfig, TableEntry, Uint128, WriteRequest,
            set_forwarding_pipeline_config_request::Action, update::Type,
        },
    };
    use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
    use shunt_gigaflow::{
        ltm::{LtmRule, Next, Tag},
        partition::StageId,
    };

    /// Returns a table entry with a number.
    fn entry(number: u32) -> TableEntry {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        key.set_field(FieldId::Ipv4Dst, number.into());
        mask.add_field(FieldId::Ipv4Dst);
        let rule = LtmRule {
            tag: Tag::new(0),
            matching: Match::new(&key, &mask),
            length: 1,
            actions: [].into(),
            rewrite: Match::any(),
            next: Next::Tag(Tag::new(1)),
        };
        let stage = StageId::new(0).unwrap();
        let entry = encode(&Program::default(), &Ports::default(), stage, &rule).unwrap();
        TableEntry { idle_timeout_ns: 1, ..entry }
    }

    /// Returns a primary that has written `count` entries with a timeout and metadata.
    fn service_with_entries(
        settings: ServerSettings,
        count: u32,
        metadata: usize,
    ) -> (ServiceState, StreamId, StreamReceiver) {
        let mut state = ServiceState::new(settings, Box::new(MemoryDevice::default()));
        let (stream, _, receiver) = state.open().unwrap();
        let id = Some(Uint128 { high: 0, low: 1 });
        let device_id = state.settings.device_id;
        let hello = MasterArbitrationUpdate { device_id, election_id: id, ..Default::default() };
        state.arbitrate(stream, &hello).unwrap();
        let config = ForwardingPipelineConfig {
            p4info: Some(Program::default().p4info().encode_to_vec()),
            ..Default::default()
        };
        let commit = Action::VerifyAndCommit.into();
        state.pipeline.set(&mut *state.device, commit, Some(config)).unwrap();
        let update = |number| {
            let entry = TableEntry { metadata: vec![7; metadata], ..entry(number) };
            crate::client::update(Type::Insert, entry)
        };
        let updates = (0..count).map(update).collect();
        let request = WriteRequest { updates, ..WriteRequest::default() };
        let (store, device) = (&mut state.pipeline.store, &mut *state.device);
        let results = write(store, device, request, Duration::ZERO).unwrap();
        assert!(results.iter().all(Result::is_ok));
        (state, stream, receiver)
    }

    /// Lets the time pass until a second.
    fn tick(state: &mut ServiceState, second: u64) {
        let now = Duration::from_secs(second);
        state.tick(ClockReading { steady: now, day: now });
    }

    /// Returns the next idle notification; skips other messages.
    async fn notice(receiver: &mut StreamReceiver) -> Option<IdleTimeoutNotification> {
        while let Some(Ok(message)) = receiver.next().await {
            if let Some(Update::IdleTimeoutNotification(notice)) = message.update {
                return Some(notice);
            }
        }
        None
    }

    #[tokio::test]
    async fn a_notification_is_limited_and_continued() {
        let (mut state, _, mut receiver) =
            service_with_entries(ServerSettings::default(), 1500, 1024);
        let mut sent = 0;
        while sent < 1500 {
            tick(&mut state, 5);
            let notice = notice(&mut receiver).await.unwrap();
            assert!(notice.encoded_len() <= PART_BYTES_MAX + 64, "{}", notice.encoded_len());
            sent += notice.table_entry.len();
        }
        assert_eq!(sent, 1500);
    }

    #[tokio::test]
    async fn a_dropped_notification_is_sent_later() {
        let settings = ServerSettings { stream_bytes_max: 4096, ..ServerSettings::default() };
        let (mut state, stream, mut receiver) = service_with_entries(settings, 1, 0);
        let packet = |bytes| PacketIn { payload: vec![0; bytes], metadata: Vec::new() };
        // The packets fill the rest of the queue.
        (0..400).for_each(|_| state.send(stream, Update::Packet(packet(8))));
        tick(&mut state, 5);
        for _ in 0..100 {
            receiver.next().await.unwrap().unwrap();
        }
        tick(&mut state, 5);
        assert_eq!(notice(&mut receiver).await.unwrap().table_entry.len(), 1);
        // The entry is not reported again before its next timeout.
        tick(&mut state, 5);
        state.close(stream);
        assert_eq!(notice(&mut receiver).await, None);
    }

    #[tokio::test]
    async fn a_slow_controller_gets_one_notification() {
        let (mut state, stream, mut receiver) =
            service_with_entries(ServerSettings::default(), 3000, 0);
        for second in 1..1000 {
            tick(&mut state, second);
        }
        state.close(stream);
        let first = notice(&mut receiver).await.unwrap();
        assert_eq!(first.table_entry.len(), 1024);
        assert!(first.table_entry.iter().all(|entry| entry.action.is_none()));
        assert_eq!(notice(&mut receiver).await, None);
    }
}
