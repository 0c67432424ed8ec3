//! Everything that requests share, under one lock.

use std::{collections::BTreeMap, time::Duration};

use tokio::{sync::mpsc, task::AbortHandle};
use tonic::{Code, Status};

use super::{
    arbiter::{Advice, Arbiter, ElectionId, StreamId, election_message},
    device::Device,
    pipeline::Pipeline,
};
use crate::{
    error::RequestError,
    wire::{
        google::rpc,
        p4::v1::{
            IdleTimeoutNotification, MasterArbitrationUpdate, PacketIn, Role,
            StreamMessageResponse, stream_message_response::Update,
        },
    },
};

/// How a server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of the device.
    pub device_id: u64,
    /// Most controllers at a time.
    pub streams_max: usize,
    /// Messages that wait for a controller that does not read; more are dropped.
    pub stream_queue: usize,
    /// Most bytes of a request.
    pub request_bytes_max: usize,
    /// Time that the device takes for each update, before a write is answered.
    pub update_latency: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device_id: 1,
            streams_max: 16,
            stream_queue: 4096,
            request_bytes_max: 64 << 20,
            update_latency: Duration::ZERO,
        }
    }
}

/// What goes to a controller: a message, or why its stream ends.
pub(super) type Outgoing = Result<StreamMessageResponse, Status>;

/// Everything that requests share.
pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) device: Box<dyn Device>,
    pub(super) arbiter: Arbiter,
    pub(super) pipeline: Pipeline,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: u64,
    /// Messages that were not taken in time.
    dropped: u64,
}

/// A controller's stream.
struct Stream {
    sender: mpsc::Sender<Outgoing>,
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
            dropped: 0,
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

    pub(super) fn open(
        &mut self,
        sender: mpsc::Sender<Outgoing>,
    ) -> Result<StreamId, RequestError> {
        if self.streams.len() >= self.settings.streams_max {
            return Err(RequestError::TooManyStreams(self.streams.len()));
        }
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(stream, Stream { sender, task: None });
        Ok(stream)
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
        for id in streams {
            let stream = self.streams.remove(&id);
            if let Some(task) = stream.and_then(|stream| stream.task) {
                task.abort();
            }
            self.close(id);
        }
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
            return Err(RequestError::Unserved("configuration of roles"));
        }
        let id = super::arbiter::election_id(message.election_id);
        let advice = self.arbiter.arbitrate(stream, role, id)?;
        self.tell_all(advice);
        Ok(())
    }

    fn tell_all(&mut self, advice: Vec<Advice>) {
        for advice in advice {
            let message = self.arbitration(&advice);
            self.tell(advice.stream, Update::Arbitration(message));
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

    /// Sends a message to a controller, unless too many wait for it.
    pub(super) fn tell(&mut self, stream: StreamId, update: Update) {
        let Some(stream) = self.streams.get(&stream) else { return };
        if stream.sender.try_send(Ok(StreamMessageResponse { update: Some(update) })).is_err() {
            self.dropped += 1;
        }
    }

    pub(super) fn packet_in(&mut self, packet: &PacketIn) {
        let primaries: Vec<StreamId> = self.arbiter.primaries().collect();
        for stream in primaries {
            self.tell(stream, Update::Packet(packet.clone()));
        }
    }

    pub(super) fn tick(&mut self, now: Duration) {
        let idle = self.pipeline.store.idle(&mut *self.device, now);
        if idle.is_empty() {
            return;
        }
        let primaries: Vec<StreamId> = self.arbiter.primaries().collect();
        let timestamp = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        for stream in primaries {
            // A notice of many entries would be more than clients take by default.
            for entries in idle.chunks(NOTICE_ENTRIES_MAX) {
                let notice = IdleTimeoutNotification { table_entry: entries.to_vec(), timestamp };
                self.tell(stream, Update::IdleTimeoutNotification(notice));
            }
        }
    }
}

/// Entries of one notice.
const NOTICE_ENTRIES_MAX: usize = 1024;
