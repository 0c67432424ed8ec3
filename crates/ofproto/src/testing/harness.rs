//! Both ends of a connection, in one thread and without sockets.

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
    wire::v13,
};

/// A client that says what a test wants, a connection, and the bridge behind it.
///
/// Time stands still but for [`Self::advance_time`].
pub struct ConnectionHarness {
    /// The bridge.
    pub host: Arc<MemoryHost>,
    /// The switch's end.
    pub connection: Connection,
    clock: Arc<AtomicU64>,
    roles: Arc<RoleRegistry>,
    received: Framer,
    last_xid: u32,
}

impl ConnectionHarness {
    /// A connection where nothing has been said.
    #[must_use]
    pub fn before_hello(kind: ConnectionKind) -> Self {
        Self::with_config(ConnectionConfig::new("test", kind))
    }

    /// As [`Self::before_hello`], with settings of one's own.
    #[must_use]
    pub fn with_config(config: ConnectionConfig) -> Self {
        let clock = Arc::new(AtomicU64::new(0));
        let hands = Arc::clone(&clock);
        let now = move || Time::from_nanoseconds(hands.load(Ordering::Relaxed));
        let roles = Arc::<RoleRegistry>::default();
        Self {
            connection: Connection::new(config, Arc::clone(&roles), now()),
            host: Arc::new(MemoryHost::new(now)),
            clock,
            roles,
            received: Framer::default(),
            last_xid: 0,
        }
    }

    /// A connection with its hellos behind it.
    #[must_use]
    pub fn open(kind: ConnectionKind) -> Self {
        let mut harness = Self::before_hello(kind);
        harness.send_hello();
        harness
    }

    /// Another connection to the same bridge, with its hellos behind it.
    #[must_use]
    pub fn another(&self, kind: ConnectionKind) -> Self {
        let config = ConnectionConfig::new("another", kind);
        let mut harness = Self {
            connection: Connection::new(config, Arc::clone(&self.roles), self.host.now()),
            host: Arc::clone(&self.host),
            clock: Arc::clone(&self.clock),
            roles: Arc::clone(&self.roles),
            received: Framer::default(),
            last_xid: 0,
        };
        harness.send_hello();
        harness
    }

    /// Says hello and hears the switch's.
    pub fn send_hello(&mut self) {
        self.send(&Message::Hello(Hello { version: v13::VERSION, bitmap: None }));
        self.replies();
    }

    /// Sends a message under a new transaction id.
    ///
    /// # Panics
    ///
    /// When the message is too long to send.
    #[expect(clippy::expect_used, reason = "tests choose messages that fit")]
    pub fn send(&mut self, message: &Message) -> Xid {
        self.last_xid += 1;
        let xid = Xid::new(self.last_xid);
        self.send_bytes(&v13::encode(xid, message).expect("the message fits"));
        xid
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.connection.receive(bytes, self.host.now());
    }

    /// Lets the switch do what it can, and awaits what the bridge has ready.
    pub fn run(&mut self) -> ConnectionStep {
        loop {
            let now = self.host.now();
            let step = self.connection.process(&*self.host, now);
            let is_ready = match step {
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

    /// Everything that the switch says until it has nothing more to do.
    ///
    /// # Panics
    ///
    /// When the switch sends what is no message.
    #[expect(clippy::expect_used, reason = "the switch speaks its own protocol")]
    pub fn replies(&mut self) -> Vec<(Xid, Message)> {
        let frames = self.reply_frames();
        frames.iter().map(|frame| v13::decode(frame).expect("a message")).collect()
    }

    /// As [`Self::replies`], as bytes.
    ///
    /// # Panics
    ///
    /// When the switch sends what is no message.
    #[expect(clippy::expect_used, reason = "the switch speaks its own protocol")]
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

    /// Sends a message; everything that is said then.
    pub fn request(&mut self, message: &Message) -> Vec<Message> {
        self.send(message);
        self.replies().into_iter().map(|(_, message)| message).collect()
    }

    /// Tells the connection what the bridge has to tell.
    pub fn deliver_events(&mut self) {
        for event in self.host.take_events() {
            self.notify(&event);
        }
    }

    /// Tells the connection of an event.
    pub fn notify(&mut self, event: &ControllerEvent) {
        self.connection.notify(event, self.host.now());
    }

    /// Tells the connection of an event that its peer must not miss; answers whether it is told.
    pub fn notify_reliable(&mut self, event: &ControllerEvent) -> bool {
        self.connection.notify_reliable(event, self.host.now())
    }

    /// Lets time pass, and the connection look at the clock.
    pub fn advance_time(&mut self, time: Duration) {
        let now = self.host.now().after(time);
        self.clock.store(now.nanoseconds(), Ordering::Relaxed);
        self.connection.tick(now);
    }
}
