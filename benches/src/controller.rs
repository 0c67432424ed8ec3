//! A controller of OpenFlow 1.3 that a switch connects to: it changes rules, and waits for barriers.
//!
//! It is as small as it can be, one thread and one connection, so that what is measured is the
//! switch: changes and the barrier request behind them leave in one write.

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

/// Where it waits for switches, in the words of their settings.
pub const CONTROLLER: &str = "tcp:127.0.0.1:6653";
const ADDRESS: &str = "127.0.0.1:6653";

/// How long a switch may take to connect: both try again after 8 seconds at most.
const CONNECT: Duration = Duration::from_secs(30);
/// How long a barrier may take.
const ANSWER: Duration = Duration::from_secs(120);

/// A connection with a switch.
#[derive(Debug)]
pub struct Controller {
    stream: TcpStream,
    framer: Framer,
    xid: u32,
}

/// When a change was sent, and when it was answered.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// Just before it was written.
    pub sent: Instant,
    /// Just after the barrier reply was read.
    pub acked: Instant,
}

impl Changed {
    /// From the one to the other.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.acked - self.sent
    }
}

impl Controller {
    /// Waits for a switch to connect.
    ///
    /// # Panics
    ///
    /// When none does.
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
                    assert!(start.elapsed() < CONNECT, "no switch connects to {ADDRESS}: {error}");
                    sleep(Duration::from_millis(10));
                }
            }
        };
        let ready = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        ready.unwrap_or_else(|error| panic!("{ADDRESS}: {error}"));
        let mut controller = Self { stream, framer: Framer::default(), xid: 1 };
        controller.write(&encoded(Xid::NONE, &Message::Hello(Hello { version: 4, bitmap: None })));
        controller.change(&[]);
        controller
    }

    /// Sends changes and a barrier request in one write, and waits for the reply.
    ///
    /// # Panics
    ///
    /// When the switch refuses, or does not answer.
    pub fn change(&mut self, changes: &[FlowMod]) -> Changed {
        self.xid += 1;
        let xid = Xid::new(self.xid);
        let messages = changes.iter().map(|change| Message::FlowMod(change.clone()));
        let messages = messages.chain([Message::BarrierRequest]);
        let bytes: Vec<u8> = messages.flat_map(|message| encoded(xid, &message)).collect();
        let sent = Instant::now();
        self.write(&bytes);
        loop {
            let Some((of, message)) = self.next(ANSWER) else {
                panic!("no barrier reply in {ANSWER:?}");
            };
            match message {
                Message::BarrierReply if of == xid => {
                    return Changed { sent, acked: Instant::now() };
                }
                Message::Error(error) => panic!("the switch refuses: {error:?}"),
                _ => {}
            }
        }
    }

    /// Does nothing for a time but to answer the switch that asks whether it is there.
    pub fn rest(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.next(left).is_none() {
                return;
            }
        }
    }

    /// The next message that is none for the connection itself; `None` if none comes in time.
    fn next(&mut self, stall_budget: Duration) -> Option<(Xid, Message)> {
        let end = Instant::now() + stall_budget;
        let mut bytes = [0; 4096];
        loop {
            let framed = self.framer.next_frame();
            let framed = framed.unwrap_or_else(|reason| panic!("the switch: {reason:?}"));
            if let Some(frame) = framed {
                // What this project cannot read is nothing that was asked for.
                match v13::decode(&frame) {
                    Ok((xid, Message::EchoRequest(payload))) => {
                        self.write(&encoded(xid, &Message::EchoReply(payload)));
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

fn encoded(xid: Xid, message: &Message) -> Vec<u8> {
    v13::encode(xid, message).unwrap_or_else(|error| panic!("{error}"))
}

/// A change of rules, as `ovs-ofctl` spells it.
///
/// # Panics
///
/// When it makes no sense.
#[must_use]
pub fn flow_mod(command: FlowModCommand, rule: &str) -> FlowMod {
    parse_rule(command, rule, &NoPortNames).unwrap_or_else(|error| panic!("{rule}: {error}"))
}
