//! A switch between virtual devices, and a generator that times each packet through the switch.
//!
//! A packet contains the flow and the sending time, so the receiver knows the latency. Hosts reply
//! when a request has arrived, independent of a timetable, so a reply is never earlier than the
//! request.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fmt::Write as _,
    fs,
    path::Path,
    thread::{sleep, yield_now},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::traffic::{Plan, PlannedFlow, PlannedPacket, RequestAnswer, reversed};
use crate::{
    cpu::Account,
    experiment::quantile,
    experiments::{cables::Cables, forwarding::FORWARDING_CPU},
    switch::{Contender, PortSpec, Setup, Switch},
    wire::{Frame, WireReceiver, WireSender},
};

/// Offset of the flow number in a frame: the first bytes of the payload.
const FLOW_AT: usize = 42;

/// Offset of the sending time in nanoseconds.
const TIME_AT: usize = 46;

/// Bit in the flow number that marks a reply.
const REPLY: u32 = 1 << 31;

/// Maximum number of packets in one burst.
const BURST: usize = 32;

/// Maximum number of packets taken from a device in a row.
const TAKEN: usize = 64;

/// Time to wait for the last packets.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// Time within which the switch creates all entries of a preload.
const PRELOAD_TIME: Duration = Duration::from_secs(60);

/// A switch with one device for each port.
pub(super) struct WiredSwitch {
    switch: Box<dyn Switch>,
    senders: Vec<WireSender>,
    receivers: Vec<WireReceiver>,
    // Deleted after the switch has ended.
    _cables: Cables,
}

/// The measured values of one plan.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Microseconds of the first packet of each flow.
    first: Vec<f64>,
    /// Microseconds of the first packet of each base flow, which are also in `first`.
    first_of_base: Vec<f64>,
    /// Microseconds of all packets, in sum.
    total_us: f64,
    packets: u64,
    sent: u64,
    /// Nanoseconds from the start of the plan to the last arrival.
    last_ns: u64,
    /// Nanoseconds that all threads of the switch ran.
    run_ns: f64,
    /// The forecasts of the run; null for a switch without forecasts.
    pub(super) forecasts: Value,
    /// The forecasts of the warm-up before the run; null without a warm-up.
    pub(super) warm_up: Value,
}

impl Measured {
    /// Returns the mean latency of first packets, in microseconds.
    pub(super) fn first_mean(&self) -> f64 {
        self.first.iter().sum::<f64>() / self.first.len().max(1) as f64
    }

    /// Returns the mean latency of the first packets of base flows, in microseconds.
    pub(super) fn base_mean(&self) -> f64 {
        self.first_of_base.iter().sum::<f64>() / self.first_of_base.len().max(1) as f64
    }

    /// Returns the mean latency of the first packets of associated flows.
    ///
    /// The unit is microseconds.
    pub(super) fn associated_mean(&self) -> f64 {
        let sum = self.first.iter().sum::<f64>() - self.first_of_base.iter().sum::<f64>();
        sum / self.first.len().saturating_sub(self.first_of_base.len()).max(1) as f64
    }

    /// Returns the median latency of first packets, in microseconds.
    pub(super) fn first_median(&self) -> f64 {
        quantile(&self.first, 50).unwrap_or_default()
    }

    /// Returns the mean latency of all packets in microseconds.
    pub(super) fn mean(&self) -> f64 {
        self.total_us / self.packets.max(1) as f64
    }

    /// Returns the CPU time of the switch per packet in nanoseconds.
    pub(super) fn cpu(&self) -> f64 {
        self.run_ns / self.packets.max(1) as f64
    }

    /// Returns the packets that arrived per second.
    pub(super) fn throughput(&self) -> f64 {
        1e9 * self.packets as f64 / self.last_ns.max(1) as f64
    }

    /// Returns the time that packet threads spend on predictors and their forecasts.
    ///
    /// The unit is nanoseconds for each new flow.
    pub(super) fn spent(&self) -> f64 {
        let sources = self.forecasts["sources"].as_array().into_iter().flatten();
        let us: f64 = sources.filter_map(|own| own["spent_us"].as_f64()).sum();
        let predictors = self.forecasts["predictors_us"].as_f64().unwrap_or_default();
        1e3 * (predictors + us) / self.first.len().max(1) as f64
    }

    /// Returns the share of packets that did not arrive.
    pub(super) fn lost(&self) -> f64 {
        1.0 - self.packets as f64 / self.sent.max(1) as f64
    }

    /// Returns the number of packets that missed the cache.
    pub(super) fn misses(&self) -> f64 {
        self.forecasts["upcalls"].as_f64().unwrap_or_default()
    }
}

impl WiredSwitch {
    /// Starts a switch with devices for `ports` ports and the given rules.
    pub(super) fn new(
        contender: &Contender,
        folder: &Path,
        ports: u32,
        rules: &[String],
        setup: &Setup,
    ) -> Self {
        let cables = Cables::plug("fs", ports);
        let ports_of = cables.near().map(PortSpec::Device).collect();
        let setup = Setup { ports: ports_of, cpu: Some(FORWARDING_CPU), ..setup.clone() };
        let switch = contender.start(folder, &setup);
        let file = switch.folder().join("rules");
        let written = fs::write(&file, rules.join("\n"));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        switch.ofctl(&["--bundle"], "add-flows", &[&file.display().to_string()]);
        let far = || (1..=ports).map(|number| cables.far(number));
        let senders = far().map(|device| WireSender::open(&device)).collect();
        let receivers = far().map(|device| WireReceiver::open(&device)).collect();
        // Background work of a switch after a rule change ends within this time.
        sleep(Duration::from_millis(600));
        Self { switch, senders, receivers, _cables: cables }
    }

    /// Creates entries for flows before their packets.
    ///
    /// Shunt takes the flows as forecasts. Another switch gets one packet of each flow.
    pub(super) fn preload(&self, flows: &[PlannedFlow]) {
        if flows.is_empty() {
            return;
        }
        let Some(control) = self.switch.shuntctl() else {
            self.send(&Plan::warm_up(flows));
            return;
        };
        let mut text = String::new();
        for flow in flows {
            let _ = writeln!(text, "{}", flow.text());
        }
        let file = self.switch.folder().join("preload");
        let written = fs::write(&file, text);
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let done =
            control.ask(&["preload", "br0", &file.display().to_string(), "--seconds", "600"]);
        assert!(done.is_some(), "the switch refuses to preload {} flows", flows.len());
        let start = Instant::now();
        while start.elapsed() < PRELOAD_TIME {
            let forecasts = control.json("forecast");
            let preload = source(&forecasts, "preload");
            let count = |name: &str| preload[name].as_u64().unwrap_or_default();
            if count("received") >= flows.len() as u64
                && count("installed") + count("covered") >= count("received")
            {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("the switch has not made entries: {}", control.json("forecast"));
    }

    /// Sends all packets of a plan, and measures.
    pub(super) fn measure(&self, plan: &Plan) -> Measured {
        let before = self.forecasts();
        let account = Account::open(self.switch.id());
        let mut measured = self.send(plan);
        measured.run_ns = account.spent().run_ns;
        measured.forecasts = difference(&before, &self.forecasts());
        measured
    }

    fn forecasts(&self) -> Value {
        self.switch.shuntctl().map(|control| control.json("forecast")).unwrap_or_default()
    }

    fn send(&self, plan: &Plan) -> Measured {
        let mut generator = Generator {
            wired: self,
            plan,
            start: Instant::now(),
            replies: BinaryHeap::new(),
            has_arrived: vec![[false; 2]; plan.flows.len()],
            measured: Measured::default(),
        };
        generator.run();
        generator.measured
    }
}

/// Returns the counts of one source of forecasts.
pub(super) fn source<'a>(forecasts: &'a Value, name: &str) -> &'a Value {
    let sources = forecasts["sources"].as_array().into_iter().flatten();
    sources.into_iter().find(|own| own["source"] == name).unwrap_or(&Value::Null)
}

/// Subtracts earlier counts from later counts. Other values are the later values.
fn difference(before: &Value, after: &Value) -> Value {
    match (before, after) {
        (Value::Number(before), Value::Number(after)) => match (before.as_u64(), after.as_u64()) {
            (Some(before), Some(after)) => after.saturating_sub(before).into(),
            _ => Value::Number(after.clone()),
        },
        (Value::Object(before), Value::Object(after)) => after
            .iter()
            .map(|(key, value)| {
                (key.clone(), difference(before.get(key).unwrap_or(&Value::Null), value))
            })
            .collect(),
        (Value::Array(before), Value::Array(after)) => {
            let known: BTreeMap<&str, &Value> =
                before.iter().filter_map(|own| Some((own["source"].as_str()?, own))).collect();
            let of = |own: &Value| {
                let name = own["source"].as_str().unwrap_or_default();
                difference(known.get(name).copied().unwrap_or(&Value::Null), own)
            };
            after.iter().map(of).collect()
        }
        _ => after.clone(),
    }
}

/// The sender and receiver of one plan.
struct Generator<'a> {
    wired: &'a WiredSwitch,
    plan: &'a Plan,
    start: Instant,
    /// Replies by the time at which each reply is due.
    replies: BinaryHeap<Reverse<(u64, usize, Frame)>>,
    /// For each flow: whether a request, and whether a reply, has arrived.
    has_arrived: Vec<[bool; 2]>,
    measured: Measured,
}

impl Generator<'_> {
    fn run(&mut self) {
        let mut packets = self.plan.packets.iter().peekable();
        let mut burst: Vec<Frame> = Vec::with_capacity(BURST);
        let mut idle_since = None;
        loop {
            let now = self.now();
            burst.clear();
            let mut device = 0;
            while burst.len() < BURST
                && let Some(PlannedPacket { time_ns, flow }) = packets.peek().copied()
                && *time_ns <= now
            {
                let planned = &self.plan.flows[*flow as usize];
                if burst.is_empty() {
                    device = planned.device;
                } else if planned.device != device {
                    break;
                }
                burst.push(with_stamp(planned.frame, *flow, now));
                packets.next();
            }
            if burst.is_empty()
                && let Some(Reverse((due, _, _))) = self.replies.peek()
                && *due <= now
                && let Some(Reverse((_, from, frame))) = self.replies.pop()
            {
                device = from;
                burst.push(with_time(frame, now));
            }
            if !burst.is_empty() {
                self.measured.sent += burst.len() as u64;
                self.wired.senders[device].send(&burst);
            }
            let has_received = self.receive();
            if burst.is_empty() && !has_received {
                // Other threads of the switch may share this CPU.
                yield_now();
            }
            if packets.peek().is_some() || !self.replies.is_empty() || has_received {
                idle_since = None;
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() > LAST_WAIT {
                break;
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn receive(&mut self) -> bool {
        let mut has_received = false;
        for (device, receiver) in self.wired.receivers.iter().enumerate() {
            for _ in 0..TAKEN {
                let Some(frame) = receiver.receive() else { break };
                let now = self.now();
                has_received |= self.arrive(device, frame, now);
            }
        }
        has_received
    }

    /// Counts a packet that arrived. Returns whether the packet is one of the plan.
    fn arrive(&mut self, device: usize, frame: Frame, now: u64) -> bool {
        let (number, sent) = read_stamps(&frame);
        let (flow, is_reply) = (number & !REPLY, number & REPLY != 0);
        let Some(planned) = self.plan.flows.get(flow as usize) else { return false };
        // The receiver also gets the packets that the receiver's device sends.
        if (device == planned.device) != is_reply {
            return false;
        }
        let Some(arrived) = self.has_arrived.get_mut(flow as usize) else { return false };
        let us = now.saturating_sub(sent) as f64 / 1e3;
        let is_first = !std::mem::replace(&mut arrived[usize::from(is_reply)], true);
        self.measured.packets += 1;
        self.measured.last_ns = now;
        self.measured.total_us += us;
        if is_first {
            self.measured.first.push(us);
        }
        if is_first && planned.is_base {
            self.measured.first_of_base.push(us);
        }
        if let (Some(RequestAnswer { after_ns }), false) = (planned.answer, is_reply) {
            let reply = with_stamp(reversed(frame), number | REPLY, now);
            self.replies.push(Reverse((now + after_ns, device, reply)));
        }
        true
    }
}

fn with_stamp(mut frame: Frame, flow: u32, time: u64) -> Frame {
    frame[FLOW_AT..TIME_AT].copy_from_slice(&flow.to_be_bytes());
    with_time(frame, time)
}

fn with_time(mut frame: Frame, time: u64) -> Frame {
    frame[TIME_AT..TIME_AT + 8].copy_from_slice(&time.to_be_bytes());
    frame
}

fn read_stamps(frame: &Frame) -> (u32, u64) {
    let mut flow = [0; 4];
    let mut time = [0; 8];
    flow.copy_from_slice(&frame[FLOW_AT..TIME_AT]);
    time.copy_from_slice(&frame[TIME_AT..TIME_AT + 8]);
    (u32::from_be_bytes(flow), u64::from_be_bytes(time))
}
