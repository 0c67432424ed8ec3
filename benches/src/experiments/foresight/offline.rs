//! Predictors without a switch: the share of new flows that they name in time, and the bound.
//!
//! A model of one packet thread passes the first packet of each flow to the predictors. The model
//! makes an entry for each forecast while no packet waits, in the time of [`TRANSLATION`]. Each flow
//! needs a separate entry, as with rules that hash all headers. No clock is read, so every run gives
//! the same counts.
//!
//! The bound counts flows that can be named at all. A flow can be named if both of its ends occurred
//! in earlier flows: an address with its port. A random port of 16 bits that no earlier packet had
//! cannot be named. A source port that a client counts up can be named too. The bound ignores the
//! forecasts that would be wrong, so no predictor reaches more.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use shunt_flow::{FlowKey, PortNo, testing::UdpFlow};
use shunt_foresight::{
    FlowEvent, Forecast, ForecastRefusal, ForecastSource, Foresight, GovernorConfig, GovernorState,
    NewFlow, OutcomeCounts, Periodic, Predictor, Reply, SuccessorTable,
};

use super::{
    coflows::{COFLOWINESS, DISTRIBUTIONS},
    run_time::traces,
    traffic::{Coflows, Plan, PlannedFlow, call_graph, random},
};
use crate::experiment::{Better, Row, Run};

/// Time in which a packet thread makes the entry of a flow.
const TRANSLATION: Duration = Duration::from_micros(3);

/// Time after which an entry without a hit expires.
const IDLE: Duration = Duration::from_secs(5);

/// Interval at which the governors receive the outcomes.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum number of waiting forecasts.
const WAITING_MAX: usize = 256;
/// Maximum number of forecasts that are made at once.
const FORECASTS_AT_ONCE: usize = 32;

/// Number of services or flows that a predictor remembers, as in the switch.
const REMEMBERED_MAX: usize = 4096;

/// Largest number that a client adds to its source port.
const STEP_MAX: u16 = 16;

const GAIN: &str = "share of the gain of perfect forecasts that the predictor reaches";
const BOUND: &str = "share of that gain that can be named at all";
const HITS: &str = "new flows that hit a forecast";
const PRECISION: &str = "forecasts that were hit, of those settled";
const ENTRIES_CREATED: &str = "entries made for forecasts";
const PAUSED: &str = "time at which all predictors were paused";

/// The predictors of a run.
const CHOICES: [(&str, &[ForecastSource]); 3] = [
    ("reply", &[ForecastSource::Reply]),
    ("successor", &[ForecastSource::Successor]),
    ("all", &[ForecastSource::Reply, ForecastSource::Successor, ForecastSource::Periodic]),
];

/// The first packets of all flows of a workload, in order of time.
struct FirstPackets {
    title: String,
    flows: Vec<FirstPacket>,
    /// Number of flows that perfect forecasts save from a miss.
    perfect: usize,
}

/// The first packet of a flow.
struct FirstPacket {
    time: Duration,
    /// The headers by which the flow has an entry of its own.
    id: UdpFlow,
    /// The port by which the packet leaves.
    egress: u32,
}

/// A packet thread with predictors.
struct ModelThread {
    foresight: Foresight,
    entries: BTreeMap<UdpFlow, SpeculativeEntry>,
    /// The entries by the time at which they expire.
    expiries: BTreeSet<(Duration, UdpFlow)>,
    seen: BTreeSet<UdpFlow>,
    waiting: VecDeque<Forecast>,
    /// The time at which the thread has finished its work.
    free: Duration,
    next_report: Duration,
    counts: BTreeMap<ForecastSource, OutcomeCounts>,
    paused: Option<Duration>,
}

/// An entry of a forecast without a hit.
struct SpeculativeEntry {
    source: ForecastSource,
    installed: Duration,
    expires: Duration,
}

/// Runs all predictors on all workloads.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let workloads = workloads(run);
    run.begin(workloads.len() * CHOICES.len());
    let mut rows = Vec::new();
    for workload in &workloads {
        rows.push(Row {
            ours: share(bound(&workload.flows), workload.perfect).into(),
            better: Better::Neither,
            ..Row::new(workload.title.clone(), BOUND, "%")
        });
        for (name, sources) in CHOICES {
            let title = format!("{}, {name}", workload.title);
            let thread = run.step(&title, |_| measure(&workload.flows, sources));
            rows.extend(rows_of(&title, workload, &thread));
        }
    }
    // The main metric first.
    rows.sort_by_key(|row| row.metric != GAIN);
    rows
}

fn workloads(run: &Run) -> Vec<FirstPackets> {
    let scale = if run.is_quick { 10 } else { 1 };
    let mut all = Vec::new();
    for (origin, suffix) in traces() {
        // Without packets after the first one, only the number of flows differs.
        let distribution = &DISTRIBUTIONS[0];
        for share in COFLOWINESS.into_iter().filter(|share| *share > 0) {
            let name = format!("{}{suffix}", distribution.workload(share, scale));
            let coflows = Coflows::new(&name, distribution.gap_ns);
            let perfect = coflows.predicted_flows().len();
            let title = format!("{origin} coflows, {share} % predictable");
            all.push(FirstPackets::of(title, &coflows.plan, perfect));
        }
    }
    let calls = call_graph(8_000 / scale, 400_000);
    let perfect = calls.with_replies().len();
    all.push(FirstPackets::of("service calls".to_owned(), &calls, perfect));
    let random = random(180_000 / scale, 60_000, 13);
    all.push(FirstPackets::of("no structure".to_owned(), &random, random.flows.len()));
    all
}

fn rows_of(title: &str, workload: &FirstPackets, thread: &ModelThread) -> Vec<Row> {
    let mut total = OutcomeCounts::default();
    thread.counts.values().for_each(|own| total.add(own));
    let row = |metric, unit, better, value: f64| Row {
        ours: value.into(),
        better,
        ..Row::new(title.to_owned(), metric, unit)
    };
    let precision = 100.0 * total.precision().unwrap_or_default();
    let mut rows = vec![
        row(GAIN, "%", Better::More, share(count(total.hits), workload.perfect)),
        row(HITS, "flows", Better::More, total.hits as f64),
        row(ENTRIES_CREATED, "entries", Better::Neither, total.installed as f64),
        row(PRECISION, "%", Better::More, precision),
    ];
    if let Some(time) = thread.paused {
        rows.push(row(PAUSED, "s", Better::Neither, time.as_secs_f64()));
    }
    rows
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Passes all flows to a thread with the predictors of `sources`.
fn measure(flows: &[FirstPacket], sources: &[ForecastSource]) -> ModelThread {
    let mut thread = ModelThread::new(sources);
    flows.iter().for_each(|flow| thread.receive(flow));
    // The entries that are left have no hit.
    thread.expire(Duration::MAX);
    thread
}

/// Returns the number of flows that a predictor can name.
fn bound(flows: &[FirstPacket]) -> usize {
    let mut ends: BTreeSet<(u32, u16)> = BTreeSet::new();
    let mut last: BTreeMap<(u32, (u32, u16)), u16> = BTreeMap::new();
    let is_named = |flow: &FirstPacket| {
        let UdpFlow { source, destination, .. } = flow.id;
        let before = last.insert((source.0, destination), source.1);
        let is_counted = before.is_some_and(|before| {
            source.1.checked_sub(before).is_some_and(|step| (1..=STEP_MAX).contains(&step))
        });
        let is_source_known = !ends.insert(source);
        let is_destination_known = !ends.insert(destination);
        is_destination_known && (is_source_known || is_counted)
    };
    flows.iter().map(is_named).filter(|is_named| *is_named).count()
}

impl FirstPackets {
    /// Returns the first packet of each flow of a plan, and of its replies.
    fn of(title: String, plan: &Plan, perfect: usize) -> Self {
        let mut seen = BTreeSet::new();
        let mut flows = Vec::new();
        for packet in &plan.packets {
            let Some(flow) = plan.flows.get(packet.flow as usize) else { continue };
            if !seen.insert(packet.flow) {
                continue;
            }
            let reply = flow.reply();
            flows.push(FirstPacket::of(flow, &reply, packet.time_ns));
            if let Some(answer) = flow.answer {
                flows.push(FirstPacket::of(&reply, flow, packet.time_ns + answer.after_ns));
            }
        }
        flows.sort_by_key(|flow| flow.time);
        Self { title, flows, perfect }
    }
}

impl FirstPacket {
    fn of(flow: &PlannedFlow, reply: &PlannedFlow, time_ns: u64) -> Self {
        let port = |flow: &PlannedFlow| u32::try_from(flow.device + 1).unwrap_or(u32::MAX);
        let [source, destination] = flow.socket_addresses();
        let id = UdpFlow { in_port: port(flow), source, destination };
        Self { time: Duration::from_nanos(time_ns), id, egress: port(reply) }
    }
}

impl ModelThread {
    fn new(sources: &[ForecastSource]) -> Self {
        let mut foresight = Foresight::new(GovernorConfig::default());
        for source in sources {
            let predictor: Box<dyn Predictor> = match source {
                ForecastSource::Successor => Box::new(SuccessorTable::new(REMEMBERED_MAX)),
                ForecastSource::Periodic => Box::new(Periodic::new(REMEMBERED_MAX, 1, IDLE)),
                _ => Box::new(Reply::default()),
            };
            foresight.add(predictor);
        }
        Self {
            foresight,
            entries: BTreeMap::new(),
            expiries: BTreeSet::new(),
            seen: BTreeSet::new(),
            waiting: VecDeque::new(),
            free: Duration::ZERO,
            next_report: Duration::ZERO,
            counts: BTreeMap::new(),
            paused: None,
        }
    }

    /// Handles the first packet of a flow.
    fn receive(&mut self, flow: &FirstPacket) {
        self.work_until(flow.time);
        self.expire(flow.time);
        let forecast = self.hit(&flow.id, flow.time);
        self.seen.insert(flow.id);
        self.free = self.free.max(flow.time);
        if forecast.is_none() {
            self.free += TRANSLATION;
        }
        let key = flow.id.key();
        let mut egress = key.clone();
        egress.set_in_port(PortNo::new(flow.egress));
        let new = NewFlow { key, egress: Some(egress), forecast };
        self.foresight.observe(&FlowEvent::Started(&new), flow.time);
        self.predict(flow.time);
        self.report(flow.time);
    }

    /// Makes entries of forecasts until a packet arrives.
    fn work_until(&mut self, now: Duration) {
        while self.free + TRANSLATION <= now {
            if self.foresight.next_due().is_some_and(|due| due <= self.free) {
                self.predict(self.free);
            }
            let Some(forecast) = self.waiting.pop_front() else { return };
            self.install(&forecast);
        }
    }

    fn predict(&mut self, now: Duration) {
        let mut made = Vec::new();
        self.foresight.forecast(now, FORECASTS_AT_ONCE, &mut made);
        for forecast in made {
            let own = self.counts.entry(forecast.source).or_default();
            own.received += 1;
            if self.waiting.len() >= WAITING_MAX {
                own.refused[ForecastRefusal::QueueFull as usize] += 1;
            } else {
                self.waiting.push_back(forecast);
            }
        }
    }

    fn install(&mut self, forecast: &Forecast) {
        let id = UdpFlow::of(&FlowKey::from(&forecast.key));
        let own = self.counts.entry(forecast.source).or_default();
        if !forecast.is_valid(self.free) {
            own.refused[ForecastRefusal::Expired as usize] += 1;
        } else if self.entries.contains_key(&id) {
            own.covered += 1;
        } else if self.seen.contains(&id) {
            own.late += 1;
        } else if forecast.known.is_some() {
            own.refused[ForecastRefusal::UnknownBits as usize] += 1;
            self.free += TRANSLATION;
        } else {
            own.installed += 1;
            self.free += TRANSLATION;
            let expires = forecast.valid_until.min(self.free + IDLE);
            self.expiries.insert((expires, id));
            let entry = SpeculativeEntry { source: forecast.source, installed: self.free, expires };
            self.entries.insert(id, entry);
        }
    }

    /// Returns the origin of the entry that a new flow hits.
    fn hit(&mut self, id: &UdpFlow, now: Duration) -> Option<ForecastSource> {
        let SpeculativeEntry { source, installed, expires } = self.entries.remove(id)?;
        self.expiries.remove(&(expires, *id));
        let own = self.counts.entry(source).or_default();
        own.hits += 1;
        own.lead += now.saturating_sub(installed);
        Some(source)
    }

    fn expire(&mut self, now: Duration) {
        while let Some((expires, id)) = self.expiries.first().copied()
            && expires < now
        {
            self.expiries.pop_first();
            if let Some(entry) = self.entries.remove(&id) {
                self.counts.entry(entry.source).or_default().wrong += 1;
            }
        }
    }

    fn report(&mut self, now: Duration) {
        if now < self.next_report {
            return;
        }
        self.next_report = now + REPORT_INTERVAL;
        let counts = &self.counts;
        self.foresight.update(now, |source| counts.get(&source).copied().unwrap_or_default());
        let is_paused = |state| matches!(state, GovernorState::Paused { .. });
        if self.paused.is_none() && self.foresight.status().all(|own| is_paused(own.state)) {
            self.paused = Some(now);
        }
    }
}
