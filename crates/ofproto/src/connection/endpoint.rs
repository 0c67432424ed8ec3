//! The connection itself: phases, order, time.

use std::sync::Arc;

use bytes::Bytes;
use shunt_pipeline::{Time, Version};

use super::{
    ConnectionConfig, ConnectionId, Event, RoleBoard,
    assembly::Assemblies,
    bundles::Bundles,
    event::Subscription,
    hello::{self, Agreement},
    output::Output,
    probe::{Probe, Silence},
    role::RequestedRole,
    statistics::FlowReply,
};
use crate::{
    Host,
    error::{CloseReason, ErrorCode},
    framing::Framer,
    message::{ErrorMessage, Message, MultipartRequest, RoleName, Xid},
    wire::{Codec, header::Header},
};

/// One connection of a controller or a management client.
#[derive(Debug)]
pub struct Connection {
    pub(super) id: ConnectionId,
    pub(super) config: ConnectionConfig,
    pub(super) roles: Arc<RoleBoard>,
    pub(super) wish: RequestedRole,
    pub(super) subscription: Subscription,
    pub(super) bundles: Bundles,
    pub(super) assemblies: Assemblies,
    pub(super) output: Output,
    /// The newest version that this connection made.
    pub(super) changed: Option<Version>,
    /// Whether packets were sent that no barrier has waited for yet.
    pub(super) packets_sent: bool,
    /// The request that waits, and for what.
    pub(super) waiting: Option<(Wait, Waiting)>,
    /// The answer that is being written.
    pub(super) flows: Option<FlowReply>,
    /// The version on which both hellos agreed; before that, the newest.
    pub(super) codec: Codec,
    phase: Phase,
    framer: Framer,
    probe: Probe,
}

#[derive(Debug)]
enum Phase {
    /// The peer has not said hello.
    Hello { since: Time },
    /// A version is agreed on.
    Open,
    /// Nothing more is read; what waits to be sent still is.
    Closed(CloseReason),
}

/// What a connection does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has done all that it was asked.
    Idle,
    /// It goes on when the peer has taken some of what waits for it.
    Full,
    /// It goes on with [`Connection::resume`] when this has come about.
    Wait(Wait),
    /// It is over, as soon as what waits to be sent is.
    Closed(CloseReason),
}

/// Something that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// [`Host::adopted`].
    Adopted(Version),
    /// [`Host::pull_counts`].
    Counts,
}

/// A request that waits.
#[derive(Debug)]
pub(super) enum Waiting {
    Barrier(Xid),
    Statistics(Xid, MultipartRequest),
}

/// What an operator may want to know of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether a version is agreed on.
    pub is_open: bool,
    /// What the peer may do.
    pub role: RoleName,
    /// Bytes that wait to be sent.
    pub output_waiting: usize,
    /// Events that were dropped because the peer reads too slowly.
    pub events_dropped: u64,
}

impl Connection {
    /// A connection that begins `now`: its hello waits to be sent.
    #[must_use]
    pub fn new(config: ConnectionConfig, roles: Arc<RoleBoard>, now: Time) -> Self {
        let mut connection = Self {
            id: roles.register(),
            roles,
            wish: RequestedRole::default(),
            subscription: Subscription::new(config.kind),
            bundles: Bundles::new(Arc::clone(&config.bundle_space)),
            assemblies: Assemblies::default(),
            output: Output::new(now),
            changed: None,
            packets_sent: false,
            waiting: None,
            flows: None,
            codec: Codec::NEWEST,
            phase: Phase::Hello { since: now },
            framer: Framer::default(),
            probe: Probe::new(config.inactivity_probe, now),
            config,
        };
        connection.reply(Xid::new(1), &Message::Hello(hello::ours()), now);
        connection
    }

    /// Takes bytes of the peer. They are looked at by [`Self::process`].
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        self.probe.heard(now);
        self.framer.push(bytes);
    }

    /// Does what the peer asked, until there is nothing left to do or something to wait for.
    pub fn process<H: Host>(&mut self, host: &H, now: Time) -> Step {
        loop {
            if let Phase::Closed(reason) = &self.phase {
                return Step::Closed(reason.clone());
            }
            if let Some((wait, _)) = &self.waiting {
                return Step::Wait(*wait);
            }
            if self.output.waiting() > self.config.limits.replies_max {
                return Step::Full;
            }
            if self.write_flows(now) {
                continue;
            }
            if self.begins_with_no_hello() {
                continue;
            }
            match self.framer.next_frame() {
                Ok(Some(frame)) => self.take(&frame, host, now),
                Ok(None) => return Step::Idle,
                Err(reason) => self.close(reason),
            }
        }
    }

    /// Finishes the request that waited; what it waited for has come about.
    pub fn resume<H: Host>(&mut self, host: &H, now: Time) {
        if let Some((_, waiting)) = self.waiting.take() {
            self.finish(waiting, host, now);
        }
    }

    /// Tells the peer of an event that it must not miss, if it wants to hear of it. Answers `false`,
    /// and says nothing, while too much waits for it already.
    pub fn tell(&mut self, event: &Event, now: Time) -> bool {
        let has_room = self.output.waiting() < self.config.limits.events_max;
        if has_room {
            self.notify(event, now);
        }
        has_room || !self.wants(event)
    }

    fn wants(&self, event: &Event) -> bool {
        matches!(self.phase, Phase::Open) && self.subscription.wants(event, self.role(), self.codec)
    }

    /// Tells the peer of an event, if it wants to hear of it and reads what it is told.
    pub fn notify(&mut self, event: &Event, now: Time) {
        if !self.wants(event) {
            return;
        }
        match self.codec.encode(Xid::NONE, &self.subscription.message(event)) {
            Ok(message) => {
                self.output.send_event(message, self.config.limits.events_max, now);
            }
            Err(error) => tracing::error!(%error, "an event could not be written"),
        }
    }

    /// The bytes to send next.
    #[must_use]
    pub fn poll_output(&self) -> Option<&[u8]> {
        self.output.front()
    }

    /// Takes note that the first `count` of [`Self::poll_output`] were sent.
    pub fn consume(&mut self, count: usize, now: Time) {
        self.output.consume(count, now);
    }

    /// When to call [`Self::tick`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let limits = &self.config.limits;
        let hello = match self.phase {
            Phase::Hello { since } => Some(since.after(limits.hello_timeout)),
            Phase::Open => self.probe.deadline(),
            Phase::Closed(_) => None,
        };
        let stall = self.output.stalled_since().map(|since| since.after(limits.stall_timeout));
        let halves = [self.bundles.deadline(limits), self.assemblies.deadline(limits)];
        [hello, stall].into_iter().chain(halves).flatten().min()
    }

    /// Looks at the clock.
    pub fn tick(&mut self, now: Time) {
        let limits = self.config.limits;
        let is_stalled = |since: Time| now >= since.after(limits.stall_timeout);
        if self.output.stalled_since().is_some_and(is_stalled) {
            self.close(CloseReason::Stalled { seconds: limits.stall_timeout.as_secs() });
        }
        match self.phase {
            Phase::Hello { since } if now >= since.after(limits.hello_timeout) => {
                self.close(CloseReason::NoHello { seconds: limits.hello_timeout.as_secs() });
            }
            Phase::Open => self.tick_probe(now),
            Phase::Hello { .. } | Phase::Closed(_) => {}
        }
        for (xid, quote) in self.assemblies.expire(&limits, now) {
            self.refuse(xid, ErrorCode::MultipartTimeout, &quote, now);
        }
        let expired = self.bundles.expire(&limits, now);
        if expired > 0 {
            tracing::debug!(peer = self.config.peer, expired, "forgot bundles that lay idle");
        }
    }

    /// What an operator may want to know.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            is_open: matches!(self.phase, Phase::Open),
            role: self.role(),
            output_waiting: self.output.waiting(),
            events_dropped: self.output.events_dropped(),
        }
    }

    /// What the peer may do.
    pub(super) fn role(&self) -> RoleName {
        self.roles.role(self.id, self.wish)
    }

    /// Queues a message.
    pub(super) fn reply(&mut self, xid: Xid, message: &Message, now: Time) {
        match self.codec.encode(xid, message) {
            Ok(message) => self.output.send(message, now),
            Err(error) => tracing::error!(%error, "a reply could not be written"),
        }
    }

    /// Answers a message with an error.
    pub(super) fn refuse(&mut self, xid: Xid, code: ErrorCode, frame: &[u8], now: Time) {
        self.warn(now, |peer, held_back| {
            tracing::warn!(peer, held_back, %code, "refused a message");
        });
        self.reply(xid, &Message::Error(ErrorMessage::refuse(code, frame)), now);
    }

    /// Logs a warning about the peer, unless it had many.
    pub(super) fn warn(&self, now: Time, log: impl FnOnce(&str, u32)) {
        if let Some(held_back) = self.config.warnings.admit(now) {
            log(&self.config.peer, held_back);
        }
    }

    /// Writes some of the rules that the peer asked for; answers whether it did.
    fn write_flows(&mut self, now: Time) -> bool {
        let Some(flows) = &mut self.flows else { return false };
        match flows.next_message() {
            Ok(Some(message)) => self.output.send(message, now),
            Ok(None) => self.flows = None,
            Err(error) => tracing::error!(%error, "a rule is left out of statistics"),
        }
        true
    }

    /// Ends a connection whose first header is that of something else, without waiting for the
    /// bytes that it promises. Answers whether it did.
    fn begins_with_no_hello(&mut self) -> bool {
        let header = self.framer.next_header().filter(|header| header.kind != Header::HELLO);
        match (&self.phase, header) {
            (Phase::Hello { .. }, Some(Header { kind, .. })) => {
                self.close(CloseReason::NotHello { kind });
                true
            }
            _ => false,
        }
    }

    fn take<H: Host>(&mut self, frame: &Bytes, host: &H, now: Time) {
        let Some(header) = Header::parse(frame) else { return };
        tracing::trace!(peer = self.config.peer, ?header, "received");
        if matches!(self.phase, Phase::Hello { .. }) {
            self.agree(&header, frame, now);
            return;
        }
        let result = if header.version == self.codec.version() {
            self.obey(&header, frame, host, now)
        } else {
            self.answer_other_version(&header, frame, now)
        };
        if let Err(code) = result {
            self.refuse(header.xid, code, frame, now);
        }
    }

    /// Whatever the version, an echo is answered in kind and a second hello is a bad request.
    fn answer_other_version(
        &mut self,
        header: &Header,
        frame: &Bytes,
        now: Time,
    ) -> Result<(), ErrorCode> {
        match header.kind {
            Header::HELLO => Err(ErrorCode::BadType),
            Header::ECHO_REQUEST => {
                let reply = Header { kind: Header::ECHO_REPLY, ..*header };
                let payload = frame.get(Header::LEN..).unwrap_or_default();
                self.output.send([&reply.emit(), payload].concat(), now);
                Ok(())
            }
            _ => Err(ErrorCode::BadVersion),
        }
    }

    /// Reads the first message, which is a hello: nothing of it fails to be read.
    fn agree(&mut self, header: &Header, frame: &Bytes, now: Time) {
        let Ok((xid, Message::Hello(hello))) = Codec::NEWEST.decode(frame) else { return };
        match hello::agree(hello) {
            Agreement::Agreed(codec) => {
                self.codec = codec;
                self.phase = Phase::Open;
                tracing::debug!(peer = self.config.peer, "agreed on OpenFlow {codec}");
            }
            Agreement::Incompatible { offered } => {
                let reason = CloseReason::Version { offered };
                let refusal = hello::refusal(header.version, xid, &reason.to_string());
                self.output.send(refusal, now);
                self.close(reason);
            }
        }
    }

    fn tick_probe(&mut self, now: Time) {
        match self.probe.tick(now) {
            Silence::Bearable => {}
            Silence::Ask => self.reply(Xid::NONE, &Message::EchoRequest(Vec::new()), now),
            Silence::GiveUp => {
                let seconds = self.config.inactivity_probe.as_secs();
                self.close(CloseReason::Silent { seconds });
            }
        }
    }

    fn close(&mut self, reason: CloseReason) {
        if !matches!(self.phase, Phase::Closed(_)) {
            self.phase = Phase::Closed(reason);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.roles.release(self.id);
    }
}
