//! The state machine of a connection: phases, request order, timers.

use std::sync::Arc;

use bytes::Bytes;
use shunt_pipeline::{Time, Version};

use super::{
    ConnectionConfig, ConnectionId, ControllerEvent, PacketInCounts, RoleRegistry, WarningKind,
    assembly::Assemblies,
    bundles::Bundles,
    event::Subscription,
    flow_monitors::FlowMonitors,
    hello::{self, VersionNegotiation},
    output::Output,
    probe::{Probe, ProbeAction},
    role::RequestedRole,
    statistics::FlowReply,
};
use crate::{
    Host, MonitorQueue,
    error::{CloseReason, ErrorCode, RequestRefusal},
    framing::Framer,
    message::{ErrorMessage, Message, MultipartRequest, RoleName, Xid},
    wire::{Codec, header::Header},
};

/// One connection of a controller or a management client.
#[derive(Debug)]
pub struct Connection {
    pub(super) id: ConnectionId,
    pub(super) config: ConnectionConfig,
    /// The roles of all connections of the bridge.
    pub(super) roles: Arc<RoleRegistry>,
    /// The role that the peer requested last.
    pub(super) requested_role: RequestedRole,
    /// The events that the peer receives.
    pub(super) subscription: Subscription,
    /// The open bundles of the connection.
    pub(super) bundles: Bundles,
    /// The multipart requests of which parts are missing.
    pub(super) assemblies: Assemblies,
    /// The flow monitors of the connection.
    pub(super) monitors: FlowMonitors,
    /// The messages to the peer.
    pub(super) output: Output,
    /// The newest version that this connection created.
    pub(super) changed: Option<Version>,
    /// True if the peer has sent a message after its hello.
    has_requested: bool,
    /// True if packets were sent since the last barrier.
    pub(super) packets_sent: bool,
    /// The request that waits, and the condition it waits for.
    pub(super) waiting: Option<(Wait, WaitingRequest)>,
    /// The flow statistics reply that is being written.
    pub(super) flows: Option<FlowReply>,
    /// The codec of the negotiated version; the newest codec before negotiation.
    pub(super) codec: Codec,
    /// The phase, from the hello to the close.
    phase: Phase,
    /// Splits the received bytes into messages.
    framer: Framer,
    /// The idle time, after which an echo request is sent.
    probe: Probe,
}

/// The phase of a connection, from the hello to the close.
#[derive(Debug)]
enum Phase {
    /// The peer has not sent its hello.
    Hello { since: Time },
    /// The switch and its peer have agreed on a version.
    Open,
    /// The connection reads no more bytes, but still sends queued bytes.
    Closed(CloseReason),
}

/// The next action of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionStep {
    /// All received requests are handled.
    Idle,
    /// Requests are handled again after the peer has read some of the output.
    Full,
    /// Flow monitors have more work, and other tasks must run before it.
    ///
    /// The caller then calls [`Connection::process`] again.
    Busy,
    /// A request waits: call [`Connection::resume`] when the condition holds.
    Wait(Wait),
    /// The connection ends when its queued output is sent.
    Closed(CloseReason),
}

/// A condition for which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// All threads must adopt the version ([`Host::adopted`]).
    Adopted(Version),
    /// All threads must report their counters ([`Host::pull_counts`]).
    Counts,
}

/// A request that gets its reply when the switch has the result.
#[derive(Debug)]
pub(super) enum WaitingRequest {
    Barrier(Xid),
    Statistics(Xid, MultipartRequest),
}

/// The state of a connection, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// True if both sides have agreed on a version.
    pub is_open: bool,
    /// The role of the peer.
    pub role: RoleName,
    /// True if the peer receives packet-ins, for at least one reason.
    pub wants_packet_ins: bool,
    /// True if the peer receives packets that no rule matches.
    pub wants_misses: bool,
    /// Number of bytes that wait to be sent.
    pub output_waiting: usize,
    /// Packet-ins that were queued and dropped.
    pub packet_ins: PacketInCounts,
}

impl Connection {
    /// Creates a connection at time `now`, with its hello queued.
    #[must_use]
    pub fn new(config: ConnectionConfig, roles: Arc<RoleRegistry>, now: Time) -> Self {
        let mut connection = Self {
            id: roles.register(),
            roles,
            requested_role: RequestedRole::default(),
            subscription: Subscription::new(config.kind),
            bundles: Bundles::new(Arc::clone(&config.bundle_quota)),
            assemblies: Assemblies::default(),
            monitors: FlowMonitors::new(config.limits.monitored_changes_max),
            output: Output::new(now),
            changed: None,
            has_requested: false,
            packets_sent: false,
            waiting: None,
            flows: None,
            codec: Codec::NEWEST,
            phase: Phase::Hello { since: now },
            framer: Framer::default(),
            probe: Probe::new(config.inactivity_probe, now),
            config,
        };
        let hello = hello::ours(connection.versions());
        connection.reply(Xid::new(1), &Message::Hello(hello), now);
        connection
    }

    /// Returns the versions that the bridge accepts and the switch speaks.
    fn versions(&self) -> u32 {
        self.config.versions & Codec::versions()
    }

    /// Appends received bytes, for [`Self::process`] to handle.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        self.probe.record_activity(now);
        self.framer.push(bytes);
    }

    /// Handles requests until none is left or one has to wait, or other tasks must run.
    pub fn process<H: Host>(&mut self, host: &H, now: Time) -> ConnectionStep {
        self.monitors.renew_checks();
        let step = self.process_all(host, now);
        if step != ConnectionStep::Idle {
            // The connection does not read now, so the peer cannot show that it is alive.
            self.probe.record_activity(now);
        }
        step
    }

    /// Handles the received frames, until the output is full or a reply must wait.
    fn process_all<H: Host>(&mut self, host: &H, now: Time) -> ConnectionStep {
        loop {
            if let Phase::Closed(reason) = &self.phase {
                return ConnectionStep::Closed(reason.clone());
            }
            let is_full = self.output.waiting() > self.config.limits.replies_max;
            if let Some((wait, _)) = self.waiting {
                if !is_full && self.write_flow_update(now) {
                    continue;
                }
                let is_busy = self.monitors.are_checks_spent();
                return if is_busy { ConnectionStep::Busy } else { ConnectionStep::Wait(wait) };
            }
            if is_full {
                return ConnectionStep::Full;
            }
            if self.write_flow_reply(now) || self.write_flow_update(now) {
                continue;
            }
            if self.monitors.are_checks_spent() {
                return ConnectionStep::Busy;
            }
            if self.close_without_hello() {
                continue;
            }
            match self.framer.next_frame() {
                Ok(Some(frame)) => self.handle_frame(&frame, host, now),
                Ok(None) => return ConnectionStep::Idle,
                Err(reason) => self.close(reason),
            }
        }
    }

    /// Finishes the request that waited, after its condition holds.
    pub fn resume<H: Host>(&mut self, host: &H, now: Time) {
        if let Some((_, waiting)) = self.waiting.take() {
            self.finish(waiting, host, now);
        }
    }

    /// Queues an event that must not be lost, if the peer has subscribed to it.
    ///
    /// Returns `false` and queues nothing while too much output waits.
    pub fn notify_reliable(&mut self, event: &ControllerEvent, now: Time) -> bool {
        let has_room = self.output.waiting() < self.config.limits.events_max;
        if has_room {
            self.notify(event, now);
        }
        has_room || !self.wants(event)
    }

    /// Returns whether the peer has subscribed to an event.
    fn wants(&self, event: &ControllerEvent) -> bool {
        matches!(self.phase, Phase::Open) && self.subscription.wants(event, self.role(), self.codec)
    }

    /// Queues an event if the peer has subscribed to it.
    ///
    /// The event is dropped if too much output waits.
    pub fn notify(&mut self, event: &ControllerEvent, now: Time) {
        if !self.wants(event) {
            return;
        }
        let has_room = self.output.waiting() < self.config.limits.events_max;
        if matches!(event, ControllerEvent::PacketIn(..)) {
            let counts = self.output.packet_ins_mut();
            *if has_room { &mut counts.sent } else { &mut counts.dropped_unread } += 1;
        }
        if !has_room {
            self.warn_of_dropped(now);
            return;
        }
        match self.codec.encode(Xid::NONE, &self.subscription.message(event, self.codec)) {
            Ok(message) => self.output.send(message, now),
            Err(error) => {
                self.config.log_unencoded(&error, "an event cannot be encoded, and is not sent");
            }
        }
    }

    /// Records packet-ins that arrived faster than this connection took them.
    pub fn miss_packet_ins(&mut self, count: u64, now: Time) {
        let is_open = matches!(self.phase, Phase::Open);
        if is_open && self.subscription.wants_packet_ins(self.role()) {
            self.output.packet_ins_mut().dropped_missed += count;
            self.warn_of_dropped(now);
        }
    }

    /// Logs that the connection dropped packet-ins.
    fn warn_of_dropped(&self, now: Time) {
        let dropped = self.output.packet_ins().dropped();
        self.warn(WarningKind::PacketInsDropped, now, |peer, suppressed| {
            tracing::warn!(
                dropped,
                suppressed,
                "{peer}: packet-ins are dropped, because the peer reads too slowly"
            );
        });
    }

    /// Returns the queue of the flow monitors; [`Self::process`] writes its changes.
    #[must_use]
    pub fn monitor_queue(&self) -> Option<Arc<MonitorQueue>> {
        self.monitors.queue()
    }

    /// Returns the bytes to send next.
    #[must_use]
    pub fn poll_output(&self) -> Option<&[u8]> {
        self.output.front()
    }

    /// Records that the first `count` bytes of [`Self::poll_output`] were sent.
    pub fn consume(&mut self, count: usize, now: Time) {
        self.output.consume(count, now);
    }

    /// Returns the time at which to call [`Self::tick`].
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

    /// Handles the timers of the connection that have expired.
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
            self.refuse(xid, &ErrorCode::MultipartTimeout.into(), &quote, now);
        }
        let expired = self.bundles.expire(&limits, now);
        if expired > 0 {
            tracing::debug!(peer = self.config.peer, expired, "idle bundles removed");
        }
    }

    /// Returns the state for operators.
    #[must_use]
    pub fn status(&self) -> Status {
        let (is_open, role) = (matches!(self.phase, Phase::Open), self.role());
        Status {
            is_open,
            role,
            wants_packet_ins: is_open && self.subscription.wants_packet_ins(role),
            wants_misses: is_open && self.subscription.wants_misses(role, self.codec),
            output_waiting: self.output.waiting(),
            packet_ins: self.output.packet_ins(),
        }
    }

    /// Returns whether the peer has sent a message after its hello.
    pub(crate) const fn has_requested(&self) -> bool {
        self.has_requested
    }

    /// Returns the role of the peer.
    pub(super) fn role(&self) -> RoleName {
        self.roles.role(self.id, self.requested_role)
    }

    /// Queues a message to the peer.
    pub(super) fn reply(&mut self, xid: Xid, message: &Message, now: Time) {
        match self.codec.encode(xid, message) {
            Ok(message) => self.output.send(message, now),
            Err(error) => {
                self.config.log_unencoded(&error, "a reply cannot be encoded, and is not sent");
            }
        }
    }

    /// Replies to a message with an error.
    pub(super) fn refuse(&mut self, xid: Xid, refusal: &RequestRefusal, frame: &[u8], now: Time) {
        let is_logged = self.warn(WarningKind::Refused, now, |peer, suppressed| {
            let message = self.codec.describe(frame);
            let refusal = self.codec.describe_refusal(refusal);
            tracing::warn!(suppressed, "{peer}: refused {message}: {refusal}");
        });
        if !is_logged {
            // The arguments are only computed if this level is logged.
            tracing::debug!(
                "{}: refused {}: {}",
                self.config.peer,
                self.codec.describe(frame),
                self.codec.describe_refusal(refusal)
            );
        }
        let number = self.codec.error_number(refusal.code());
        self.reply(xid, &Message::Error(ErrorMessage::refuse(number, frame)), now);
    }

    /// Logs a warning about the peer, unless the rate limit of `kind` is reached.
    ///
    /// `log` gets the peer, and the number of warnings that were suppressed before this one, if any.
    /// Returns whether the warning was logged.
    pub(super) fn warn(
        &self,
        kind: WarningKind,
        now: Time,
        log: impl FnOnce(&str, Option<u32>),
    ) -> bool {
        let peer = &self.config.peer;
        self.config.warnings.warn(kind, now, |suppressed| log(peer, suppressed))
    }

    /// Queues the next part of a flow statistics reply; returns false without a reply.
    fn write_flow_reply(&mut self, now: Time) -> bool {
        let Some(flows) = &mut self.flows else { return false };
        match flows.next_message() {
            Ok(Some(message)) => self.output.send(message, now),
            Ok(None) => self.flows = None,
            Err(error) => {
                let loss = "a rule is too long for flow statistics, and is left out";
                self.config.log_unencoded(&error, loss);
            }
        }
        true
    }

    /// Queues the next message of the flow monitors; returns false without one.
    fn write_flow_update(&mut self, now: Time) -> bool {
        let is_read = self.output.waiting() == 0;
        let message = self.monitors.next_message(self.codec, is_read, &self.config);
        let is_written = message.is_some();
        message.into_iter().for_each(|message| self.output.send(message, now));
        is_written
    }

    /// Closes the connection and returns true if its first header is not a hello.
    ///
    /// The connection does not wait for the bytes that the header announces.
    fn close_without_hello(&mut self) -> bool {
        let header = self.framer.next_header().filter(|header| header.kind != Header::HELLO);
        match (&self.phase, header) {
            (Phase::Hello { .. }, Some(Header { kind, .. })) => {
                self.close(CloseReason::NotHello { kind });
                true
            }
            _ => false,
        }
    }

    /// Decodes a frame, and handles the message or reports the error.
    fn handle_frame<H: Host>(&mut self, frame: &Bytes, host: &H, now: Time) {
        let Some(header) = Header::parse(frame) else { return };
        tracing::trace!(peer = self.config.peer, ?header, "received");
        if matches!(self.phase, Phase::Hello { .. }) {
            self.agree(&header, frame, now);
            return;
        }
        self.has_requested = true;
        let result = if header.version == self.codec.version() {
            self.handle(&header, frame, host, now)
        } else {
            self.handle_other_version(&header, frame, now).map_err(RequestRefusal::from)
        };
        match result {
            Ok(()) => self.log_change(frame, host),
            Err(refusal) => self.refuse(header.xid, &refusal, frame, now),
        }
    }

    /// Handles a message with another version than the negotiated one.
    ///
    /// An echo request gets a reply of the same version, and a second hello is refused.
    fn handle_other_version(
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

    /// Handles the first message, a hello, which always decodes.
    fn agree(&mut self, header: &Header, frame: &Bytes, now: Time) {
        let Ok((xid, Message::Hello(hello))) = Codec::NEWEST.decode(frame) else { return };
        match hello::agree(hello, self.versions()) {
            VersionNegotiation::Agreed(codec) => {
                self.codec = codec;
                self.phase = Phase::Open;
                tracing::debug!(peer = self.config.peer, "agreed on OpenFlow {codec}");
            }
            VersionNegotiation::Incompatible { offered, own } => {
                let reason = CloseReason::Version { offered, own };
                let refusal = hello::refusal(header.version, xid, &reason.to_string());
                self.output.send(refusal, now);
                self.close(reason);
            }
        }
    }

    /// Sends an echo request to a silent peer, or closes its connection.
    fn tick_probe(&mut self, now: Time) {
        if self.output.waiting() > 0 {
            // The peer does not read, so it cannot answer: the stall timeout applies.
            self.probe.record_activity(now);
        }
        match self.probe.tick(now) {
            ProbeAction::Wait => {}
            ProbeAction::SendEcho => self.reply(Xid::NONE, &Message::EchoRequest(Vec::new()), now),
            ProbeAction::Disconnect => {
                let seconds = self.config.inactivity_probe.as_secs();
                self.close(CloseReason::Silent { seconds });
            }
        }
    }

    /// Closes the connection, for the first reason that is given.
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
