//! An OpenFlow 1.3 controller that accepts a switch, changes rules and waits for barrier replies.
//!
//! The controller is minimal, with one thread and one connection, so that the switch dominates the
//! measurement. The changes and the barrier request after the changes leave in one write.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

use shunt_flow::text::NoPortNames;
use shunt_ofproto::{
    framing::Framer,
    message::{Hello, Message, Xid},
    wire::v13,
};
use shunt_pipeline::{FlowMod, FlowModCommand, text::parse_rule};

/// Listening address, in the syntax of the switches' settings.
pub const CONTROLLER: &str = "tcp:127.0.0.1:6653";
/// Listening address, in the syntax of sockets.
const ADDRESS: &str = "127.0.0.1:6653";

/// Maximum time for a switch to connect; switches retry after at most 8 seconds.
const CONNECT: Duration = Duration::from_secs(30);
/// Maximum time until a barrier reply.
const ANSWER: Duration = Duration::from_secs(120);

/// A connection with a switch.
#[derive(Debug)]
pub struct Controller {
    stream: TcpStream,
    framer: Framer,
    xid: u32,
}

/// The time of a change, and the time of the barrier reply.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// Time just before the change was written.
    pub sent: Instant,
    /// Time just after the barrier reply was read.
    pub replied: Instant,
}

impl Changed {
    /// Returns the time from the change to the barrier reply.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.replied - self.sent
    }
}

impl Controller {
    /// Waits for a switch to connect.
    ///
    /// # Panics
    ///
    /// If no switch connects.
    #[must_use]
    pub fn accept() -> Self {
        let listener = TcpListener::bind(ADDRESS).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.unwrap_or_else(|error| panic!("{ADDRESS}: {error}"));
        let start = Instant::now();
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    assert!(start.elapsed() < CONNECT, "no switch connected to {ADDRESS}: {error}");
                    sleep(Duration::from_millis(10));
                }
            }
        };
        let ready = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        ready.unwrap_or_else(|error| panic!("{ADDRESS}: {error}"));
        let mut controller = Self { stream, framer: Framer::default(), xid: 1 };
        controller
            .write(&encode_frame(Xid::NONE, &Message::Hello(Hello { version: 4, bitmap: None })));
        controller.change(&[]);
        controller
    }

    /// Sends changes and a barrier request in one write, and waits for the reply.
    ///
    /// # Panics
    ///
    /// If the switch refuses a change, or does not reply.
    pub fn change(&mut self, changes: &[FlowMod]) -> Changed {
        self.xid += 1;
        let xid = Xid::new(self.xid);
        let messages = changes.iter().map(|change| Message::FlowMod(change.clone()));
        let messages = messages.chain([Message::BarrierRequest]);
        let bytes: Vec<u8> = messages.flat_map(|message| encode_frame(xid, &message)).collect();
        let sent = Instant::now();
        self.write(&bytes);
        loop {
            let Some((of, message)) = self.next(ANSWER) else {
                panic!("no barrier reply within {ANSWER:?}");
            };
            match message {
                Message::BarrierReply if of == xid => {
                    return Changed { sent, replied: Instant::now() };
                }
                Message::Error(error) => panic!("the switch refused a change: {error:?}"),
                _ => {}
            }
        }
    }

    /// Waits for `time`. Answers only the echo requests of the switch.
    pub fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.next(left).is_none() {
                return;
            }
        }
    }

    /// Returns the next message other than connection upkeep; `None` after the timeout.
    fn next(&mut self, timeout: Duration) -> Option<(Xid, Message)> {
        let end = Instant::now() + timeout;
        let mut bytes = [0; 4096];
        loop {
            let framed = self.framer.next_frame();
            let framed = framed.unwrap_or_else(|reason| panic!("the switch: {reason:?}"));
            if let Some(frame) = framed {
                // An undecodable message cannot be the awaited reply.
                match v13::decode(&frame) {
                    Ok((xid, Message::EchoRequest(payload))) => {
                        self.write(&encode_frame(xid, &Message::EchoReply(payload)));
                    }
                    Ok(other) => return Some(other),
                    Err(_) => {}
                }
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let _ = self.stream.set_read_timeout(Some(left));
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("the switch closed the connection"),
                Ok(count) => self.framer.push(&bytes[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return None,
                    ErrorKind::Interrupted => {}
                    _ => panic!("the switch: {error}"),
                },
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|error| panic!("the switch: {error}"));
    }
}

fn encode_frame(xid: Xid, message: &Message) -> Vec<u8> {
    v13::encode(xid, message).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a flow-mod from a rule in the syntax of `ovs-ofctl`.
///
/// # Panics
///
/// If the rule is invalid.
#[must_use]
pub fn flow_mod(command: FlowModCommand, rule: &str) -> FlowMod {
    parse_rule(command, rule, &NoPortNames).unwrap_or_else(|error| panic!("{rule}: {error}"))
}
