//! A connection with both of its ends in one thread, without sockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use shunt_pipeline::Time;

use super::MemoryHost;
use crate::{
    Host,
    connection::{
        Connection, ConnectionConfig, ConnectionKind, ConnectionStep, ControllerEvent,
        RoleRegistry, Wait,
    },
    framing::Framer,
    message::{Hello, Message, Xid},
    wire::Codec,
};

/// A test client, a connection, and the bridge of that connection.
///
/// Time does not advance except in [`Self::advance_time`].
pub struct ConnectionHarness {
    /// The bridge of the tested connection.
    pub host: Arc<MemoryHost>,
    /// The connection under test.
    pub connection: Connection,
    /// The codec of the client; its settings must follow the requests of the client.
    pub codec: Codec,
    clock: Arc<AtomicU64>,
    roles: Arc<RoleRegistry>,
    received: Framer,
    last_xid: u32,
}

impl ConnectionHarness {
    /// Creates a connection before the exchange of hellos.
    #[must_use]
    pub fn before_hello(kind: ConnectionKind) -> Self {
        Self::with_config(ConnectionConfig::new("test", kind))
    }

    /// Creates a connection with `config`, before the exchange of hellos.
    #[must_use]
    pub fn with_config(config: ConnectionConfig) -> Self {
        let clock = Arc::new(AtomicU64::new(0));
        let hands = Arc::clone(&clock);
        let now = move || Time::from_nanoseconds(hands.load(Ordering::Relaxed));
        let roles = Arc::<RoleRegistry>::default();
        let config = ConnectionConfig { bridge: "br0".to_owned(), ..config };
        Self {
            connection: Connection::new(config, Arc::clone(&roles), now()),
            codec: Codec::NEWEST,
            host: Arc::new(MemoryHost::new(now)),
            clock,
            roles,
            received: Framer::default(),
            last_xid: 0,
        }
    }

    /// Creates a connection after the exchange of hellos.
    #[must_use]
    pub fn open(kind: ConnectionKind) -> Self {
        let mut harness = Self::before_hello(kind);
        harness.send_hello();
        harness
    }

    /// Creates a connection to a client of one version, after the hellos.
    #[must_use]
    pub fn open_with(kind: ConnectionKind, codec: Codec) -> Self {
        let mut harness = Self { codec, ..Self::before_hello(kind) };
        harness.send_hello();
        harness
    }

    /// Creates another connection to the same bridge, after the exchange of hellos.
    #[must_use]
    pub fn another(&self, kind: ConnectionKind) -> Self {
        self.another_with(kind, Codec::NEWEST)
    }

    /// Creates another connection to the same bridge, for a client of one version.
    #[must_use]
    pub fn another_with(&self, kind: ConnectionKind, codec: Codec) -> Self {
        let config = ConnectionConfig::new("another", kind);
        let mut harness = Self {
            connection: Connection::new(config, Arc::clone(&self.roles), self.host.now()),
            codec,
            host: Arc::clone(&self.host),
            clock: Arc::clone(&self.clock),
            roles: Arc::clone(&self.roles),
            received: Framer::default(),
            last_xid: 0,
        };
        harness.send_hello();
        harness
    }

    /// Sends a hello and reads the hello of the switch.
    pub fn send_hello(&mut self) {
        let version = self.codec.version();
        self.send(&Message::Hello(Hello { version, bitmap: Some(1 << version) }));
        self.replies();
    }

    /// Sends a message with a new transaction id.
    ///
    /// # Panics
    ///
    /// If the message is too long.
    #[expect(clippy::expect_used, reason = "tests send messages that fit")]
    pub fn send(&mut self, message: &Message) -> Xid {
        self.last_xid += 1;
        let xid = Xid::new(self.last_xid);
        self.send_bytes(&self.codec.encode(xid, message).expect("the message fits"));
        xid
    }

    /// Sends raw bytes to the connection.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.connection.receive(bytes, self.host.now());
    }

    /// Runs the connection until it is idle or must wait.
    pub fn run(&mut self) -> ConnectionStep {
        loop {
            let now = self.host.now();
            let step = self.connection.process(&*self.host, now);
            let is_ready = match step {
                ConnectionStep::Busy => continue,
                ConnectionStep::Wait(Wait::Adopted(version)) => self.host.has_adopted(version),
                ConnectionStep::Wait(Wait::Counts) => true,
                ConnectionStep::Idle | ConnectionStep::Full | ConnectionStep::Closed(_) => {
                    return step;
                }
            };
            if !is_ready {
                return step;
            }
            self.connection.resume(&*self.host, now);
        }
    }

    /// Runs the connection and returns all messages that it sent.
    ///
    /// # Panics
    ///
    /// If the switch sends an invalid message.
    #[expect(clippy::expect_used, reason = "the switch sends valid messages")]
    pub fn replies(&mut self) -> Vec<(Xid, Message)> {
        let frames = self.reply_frames();
        frames.iter().map(|frame| self.codec.decode(frame).expect("a message")).collect()
    }

    /// Runs the connection and returns the frames of all messages that it sent.
    ///
    /// # Panics
    ///
    /// If the switch sends an invalid message.
    #[expect(clippy::expect_used, reason = "the switch sends valid messages")]
    pub fn reply_frames(&mut self) -> Vec<Bytes> {
        let mut frames = Vec::new();
        loop {
            let step = self.run();
            let mut took = false;
            while let Some(bytes) = self.connection.poll_output() {
                let bytes = bytes.to_vec();
                self.received.push(&bytes);
                self.connection.consume(bytes.len(), self.host.now());
                took = true;
            }
            while let Some(frame) = self.received.next_frame().expect("framed") {
                frames.push(frame);
            }
            if !took || step != ConnectionStep::Full {
                return frames;
            }
        }
    }

    /// Sends a message and returns all messages that the switch then sends.
    pub fn request(&mut self, message: &Message) -> Vec<Message> {
        self.send(message);
        self.replies().into_iter().map(|(_, message)| message).collect()
    }

    /// Passes the events of the bridge to the connection.
    pub fn deliver_events(&mut self) {
        for event in self.host.take_events() {
            self.notify(&event);
        }
    }

    /// Passes an event to the connection.
    pub fn notify(&mut self, event: &ControllerEvent) {
        self.connection.notify(event, self.host.now());
    }

    /// Passes a reliable event to the connection; returns whether it was accepted.
    pub fn notify_reliable(&mut self, event: &ControllerEvent) -> bool {
        self.connection.notify_reliable(event, self.host.now())
    }

    /// Advances the clock and runs expired timers.
    pub fn advance_time(&mut self, time: Duration) {
        let now = self.host.now().after(time);
        self.clock.store(now.nanoseconds(), Ordering::Relaxed);
        self.connection.tick(now);
    }
}
