//! Everything that requests share, under one lock.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::task::AbortHandle;
use tonic::Code;

use super::{
    arbiter::{Advice, Arbiter, ElectionId, StreamId, election_message},
    device::{Device, Now},
    part::PART_BYTES_MAX,
    pipeline::Pipeline,
    queue::{Queue, Queued, queue},
};
use crate::{
    error::RequestError,
    wire::{
        google::rpc,
        p4::v1::{
            IdleTimeoutNotification, MasterArbitrationUpdate, PacketIn, Role,
            stream_message_response::Update,
        },
    },
};

/// How a server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of the device.
    pub device_id: u64,
    /// Most connections at a time; one more is closed at once.
    pub connections_max: usize,
    /// Most controllers at a time.
    pub streams_max: usize,
    /// Messages that wait for a controller that does not read; more are dropped.
    pub stream_queue: usize,
    /// Bytes of such messages.
    pub stream_bytes_max: usize,
    /// Time that a controller has to say who it is.
    pub arbitration_timeout: Duration,
    /// Most bytes of a request.
    pub request_bytes_max: usize,
    /// Time that the device takes for each update, before a write is answered.
    pub update_latency: Duration,
}

impl Default for Settings {
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

/// Everything that requests share.
pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) device: Box<dyn Device>,
    pub(super) arbiter: Arbiter,
    pub(super) pipeline: Pipeline,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: u64,
}

/// A controller's stream.
struct Stream {
    queue: Queue,
    /// It has said who it is.
    has_begun: bool,
    /// The task that serves it.
    task: Option<AbortHandle>,
}

impl State {
    pub(super) fn new(settings: Settings, device: Box<dyn Device>) -> Self {
        Self {
            settings,
            device,
            arbiter: Arbiter::default(),
            pipeline: Pipeline::default(),
            streams: BTreeMap::new(),
            next_stream: 0,
        }
    }

    pub(super) const fn check_device(&self, id: u64) -> Result<(), RequestError> {
        if id == self.settings.device_id { Ok(()) } else { Err(RequestError::NoDevice(id)) }
    }

    /// That a request is for this device and from the primary of its role.
    pub(super) fn check_writer(
        &self,
        device: u64,
        role: &str,
        election: Option<ElectionId>,
    ) -> Result<(), RequestError> {
        self.check_device(device)?;
        let is_primary = self.arbiter.is_primary(role, election);
        if is_primary { Ok(()) } else { Err(RequestError::NotPrimary) }
    }

    /// A controller that has not said yet who it is; if there are as many as there may be, one of that
    /// kind goes.
    pub(super) fn open(&mut self) -> Result<(StreamId, Queue, Queued), RequestError> {
        let silent = self.streams.iter().find(|(_, stream)| !stream.has_begun);
        if self.streams.len() >= self.settings.streams_max
            && let Some(silent) = silent.map(|(id, _)| *id)
        {
            self.end(silent);
        }
        if self.streams.len() >= self.settings.streams_max {
            return Err(RequestError::TooManyStreams(self.streams.len()));
        }
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        let (queue, queued) = queue(self.settings.stream_queue, self.settings.stream_bytes_max);
        let stream = Stream { queue: queue.clone(), has_begun: false, task: None };
        self.streams.insert(id, stream);
        Ok((id, queue, queued))
    }

    /// Notes the task that serves a stream, unless it has ended.
    pub(super) fn attach(&mut self, id: StreamId, task: AbortHandle) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.task = Some(task);
        }
    }

    /// Ends all streams.
    pub(super) fn close_all(&mut self) {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.end(stream));
    }

    /// Ends a stream that has not ended by itself.
    fn end(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(&id) {
            stream.queue.end(RequestError::Ended.into());
            if let Some(task) = &stream.task {
                task.abort();
            }
        }
        self.close(id);
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
        let advice = self.arbiter.gone(stream);
        self.tell_all(advice);
    }

    pub(super) fn arbitrate(
        &mut self,
        stream: StreamId,
        message: &MasterArbitrationUpdate,
    ) -> Result<(), RequestError> {
        self.check_device(message.device_id)?;
        let role = message.role.as_ref().map_or("", |role| role.name.as_str());
        if message.role.as_ref().is_some_and(|role| role.config.is_some()) {
            return Err(RequestError::RoleConfig);
        }
        let id = super::arbiter::election_id(message.election_id);
        let advice = self.arbiter.arbitrate(stream, role, id)?;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.has_begun = true;
        }
        self.tell_all(advice);
        Ok(())
    }

    /// Tells streams of their role. One that does not read must not believe what it was told before: it
    /// ends, which others may have to be told of in turn.
    fn tell_all(&mut self, advice: Vec<Advice>) {
        let mut left = VecDeque::from(advice);
        while let Some(advice) = left.pop_front() {
            let message = self.arbitration(&advice);
            let Some(stream) = self.streams.get(&advice.stream) else { continue };
            if stream.queue.push(Update::Arbitration(message)).is_err() {
                if let Some(task) = &stream.task {
                    task.abort();
                }
                self.streams.remove(&advice.stream);
                left.extend(self.arbiter.gone(advice.stream));
            }
        }
    }

    fn arbitration(&self, advice: &Advice) -> MasterArbitrationUpdate {
        let (code, message) = match (advice.is_primary, advice.has_primary) {
            (true, _) => (Code::Ok, "you are the primary"),
            (false, true) => (Code::AlreadyExists, "another controller is the primary"),
            (false, false) => (Code::NotFound, "there is no primary"),
        };
        let role = (!advice.role.is_empty())
            .then(|| Role { name: advice.role.clone(), ..Role::default() });
        MasterArbitrationUpdate {
            device_id: self.settings.device_id,
            role,
            election_id: election_message(advice.highest),
            status: Some(rpc::Status {
                code: code.into(),
                message: message.to_owned(),
                details: Vec::new(),
            }),
        }
    }

    /// Sends a message to a controller, unless too much waits for it.
    pub(super) fn tell(&self, stream: StreamId, update: Update) {
        if let Some(stream) = self.streams.get(&stream) {
            // What is told here is told as far as it can be: a controller that does not read loses it.
            let _ = stream.queue.push(update);
        }
    }

    pub(super) fn packet_in(&self, packet: &PacketIn) {
        for stream in self.arbiter.primaries() {
            self.tell(stream, Update::Packet(packet.clone()));
        }
    }

    /// Tells primaries of idle entries, those that have taken the notice before.
    pub(super) fn tick(&mut self, now: Now) {
        let takes =
            |id: &StreamId| self.streams.get(id).is_some_and(|stream| stream.queue.takes_notice());
        let hearers: Vec<StreamId> = self.arbiter.primaries().filter(takes).collect();
        if hearers.is_empty() {
            return;
        }
        // What waits at once is to find room, however little may wait.
        let bytes_max = PART_BYTES_MAX.min(self.settings.stream_bytes_max / 4);
        let due = self.pipeline.store.due(&mut *self.device, now.steady, bytes_max);
        if due.names.is_empty() {
            return;
        }
        let timestamp = i64::try_from(now.day.as_nanos()).unwrap_or(i64::MAX);
        let mut is_told = false;
        for stream in hearers.iter().filter_map(|id| self.streams.get(id)) {
            let notice = IdleTimeoutNotification { table_entry: due.names.clone(), timestamp };
            is_told |= stream.queue.push(Update::IdleTimeoutNotification(notice)).is_ok();
        }
        // What nobody had room for is told at the next tick.
        if is_told {
            self.pipeline.store.put_off(&due, now.steady);
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
        let entry = encode(&Program::default(), &Ports::default(), (stage, &rule)).unwrap();
        TableEntry { idle_timeout_ns: 1, ..entry }
    }

    /// A primary that has written entries with a timeout, so many, with so much metadata.
    fn written(settings: Settings, (count, metadata): (u32, usize)) -> (State, StreamId, Queued) {
        let mut state = State::new(settings, Box::new(MemoryDevice::default()));
        let (stream, _, queued) = state.open().unwrap();
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
        (state, stream, queued)
    }

    fn tick(state: &mut State, second: u64) {
        let now = Duration::from_secs(second);
        state.tick(Now { steady: now, day: now });
    }

    /// The next notice; what else is told is passed over.
    async fn notice(queued: &mut Queued) -> Option<IdleTimeoutNotification> {
        while let Some(Ok(message)) = queued.next().await {
            if let Some(Update::IdleTimeoutNotification(notice)) = message.update {
                return Some(notice);
            }
        }
        None
    }

    #[tokio::test]
    async fn a_notice_has_a_bound_in_bytes_and_what_is_left_comes_next() {
        let (mut state, _, mut queued) = written(Settings::default(), (1500, 1024));
        let mut told = 0;
        while told < 1500 {
            tick(&mut state, 5);
            let notice = notice(&mut queued).await.unwrap();
            assert!(notice.encoded_len() <= PART_BYTES_MAX + 64, "{}", notice.encoded_len());
            told += notice.table_entry.len();
        }
        assert_eq!(told, 1500);
    }

    #[tokio::test]
    async fn a_notice_that_found_no_room_is_told_when_there_is_some() {
        let settings = Settings { stream_bytes_max: 4096, ..Settings::default() };
        let (mut state, stream, mut queued) = written(settings, (1, 0));
        let packet = |bytes| PacketIn { payload: vec![0; bytes], metadata: Vec::new() };
        // All that is left of the queue, to the last bytes.
        (0..400).for_each(|_| state.tell(stream, Update::Packet(packet(8))));
        tick(&mut state, 5);
        for _ in 0..100 {
            queued.next().await.unwrap().unwrap();
        }
        tick(&mut state, 5);
        assert_eq!(notice(&mut queued).await.unwrap().table_entry.len(), 1);
        // It was told, and is not told again before its time.
        tick(&mut state, 5);
        state.close(stream);
        assert_eq!(notice(&mut queued).await, None);
    }

    #[tokio::test]
    async fn a_controller_that_does_not_read_costs_one_notice() {
        let (mut state, stream, mut queued) = written(Settings::default(), (3000, 0));
        for second in 1..1000 {
            tick(&mut state, second);
        }
        state.close(stream);
        let first = notice(&mut queued).await.unwrap();
        assert_eq!(first.table_entry.len(), 1024);
        assert!(first.table_entry.iter().all(|entry| entry.action.is_none()));
        assert_eq!(notice(&mut queued).await, None);
    }
}
