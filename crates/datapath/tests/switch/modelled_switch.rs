//! Random operations on a switch, compared with the models of the oracle for all its versions.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use rtrb::{Consumer, RingBuffer};
use shunt_datapath::{
    Command, DropReason, LearnSeq, LearnedChange, Repair, ThreadConfig,
    cache::{CacheConfig, ExactConfig, Training, Wildcard},
    capture::{CapturePoint, CaptureTap, Captured},
    command::Tuning,
    forecast::{ForecastConfig, ForecastSender},
    thread::QueueSizes,
};
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, SparseKey, SparseMask, extract::VlanLimit};
use shunt_foresight::{Confidence, Forecast, ForecastSource, Foresight, GovernorConfig, Reply};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, DatapathPort, Delta, Learning, MacObservation, OwnerId,
    PortKind, Rule, RuleFilter, RuleId, Time, Version,
    testing::{
        CheckedPipeline, NetworkModel, PacketEffects, Refreshed,
        generate::{self, BRIDGES, Op},
    },
};

use crate::{
    frames::{frame_of, key_of, length, normalize, number_of, with_hidden},
    harness::{ENGINES, Engine, STOPPING_EARLY, Switch},
    packet_copies::{PacketCopies, assert_same},
    results::Results,
    worst_case::WorstCase,
};

/// Maximum number of packets that a thread drops in an iteration.
/// Resubmits make hundreds of copies of one packet.
const DROPS_PER_ITERATION: usize = 1 << 17;

/// Repair settings: whether stale entries are re-translated.
const REPAIRS: &[Repair] = &[Repair::Off, Repair::On, Repair::On, Repair::Rate(2000)];

/// Trainings of learned indexes.
///
/// A training ends at once, some iterations later or never, or the trainer is lost.
const TRAININGS: &[Training] = &[
    Training::Inline,
    Training::Inline,
    Training::Delayed { polls: 1 },
    Training::Delayed { polls: 5 },
    Training::Delayed { polls: u32::MAX },
    Training::Lost,
];

/// The strategies that draw the random caches of a switch.
#[derive(Clone, Copy)]
pub(crate) struct CacheDraws {
    /// The cache at the start.
    pub(crate) first: fn(&mut TestRunner) -> Wildcard,
    /// The cache that replaces it while packets flow.
    pub(crate) replacement: fn(&mut TestRunner) -> Wildcard,
}

/// A switch, and the models of the oracle for all its versions.
pub(crate) struct ModelledSwitch {
    pub(crate) switch: Switch,
    config: ThreadConfig,
    caches: CacheDraws,
    checked: CheckedPipeline,
    pub(crate) results: Results,
    /// Published changes that the coordinator has not received.
    /// Each change has the learn requests that it acknowledges.
    pending: VecDeque<(Change, Vec<(OwnerId, LearnSeq)>)>,
    /// The learn request that the next packet of a receive queue must have.
    /// The keys are thread, bridge and port.
    required: BTreeMap<(usize, u64, u32), RequiredLearning>,
    /// The captures of packets that each thread drops.
    dropped: Vec<Consumer<Captured>>,
    /// The packets in transit, by number.
    flying: BTreeMap<u32, PacketInFlight>,
    pub(crate) last: u32,
    ports: Vec<u32>,
    /// All rules of all versions in the pipeline; `expected` has those of the oracle.
    rules: BTreeMap<RuleId, Arc<Rule>>,
    expected: BTreeMap<RuleId, Arc<Rule>>,
    /// By the oracle: time at which each learned MAC address was last seen at its port.
    seen: BTreeMap<u64, Time>,
    pub(crate) refreshes: usize,
    /// True while the test knows which rules each packet visited.
    pub(crate) is_counted: bool,
    /// The senders of forecasts, by thread.
    pub(crate) forecasts: Vec<ForecastSender>,
    /// Number of times that a thread slept.
    pub(crate) slept: usize,
}

/// The version that includes a learn request, if already known.
#[derive(Clone, Copy)]
enum RequiredLearning {
    NotYet,
    Since(Version),
}

/// A packet that a thread has received and not forwarded yet.
struct PacketInFlight {
    thread: usize,
    /// The flow key of the packet for the oracle.
    key: FlowKey,
}

/// Draws a random value of a strategy.
pub(crate) fn draw<T: Debug>(runner: &mut TestRunner, strategy: impl Strategy<Value = T>) -> T {
    strategy.new_tree(runner).unwrap().current()
}

impl ModelledSwitch {
    pub(crate) fn new(runner: &mut TestRunner, threads: u16, caches: CacheDraws) -> Self {
        let mut ops = draw(runner, generate::network());
        ops.iter_mut().for_each(normalize);
        let mut checked = CheckedPipeline::new(&ops);
        // Packet threads have the same limit of recirculations.
        checked.model.parsed_max = 256;
        let config = ThreadConfig {
            caches: CacheConfig {
                entries_max: draw(runner, prop::sample::select(vec![8, 4096])),
                exact: ExactConfig { lines: 64, insert_inverse: draw(runner, 0..3_u32) },
                wildcard: (caches.first)(runner),
                training: draw(runner, prop::sample::select(TRAININGS)),
            },
            vlan_limit: VlanLimit::Two,
            seed: 1,
            translations_per_iteration: draw(runner, 1..12_usize),
            waiting_per_port: 1024,
            max_idle: Duration::from_secs(10),
            verify_one_in: draw(runner, 0..4_u32),
            repair: draw(runner, prop::sample::select(REPAIRS)),
            stall_budget: Duration::MAX,
            ..ThreadConfig::default()
        };
        let sizes = QueueSizes { reports: 64, packet_ins: 16_384, ..QueueSizes::default() };
        let pipeline = Arc::clone(&checked.pipeline);
        let engines: Vec<&Engine> = ENGINES.iter().chain(STOPPING_EARLY).collect();
        let engine = *engines[draw(runner, 0..engines.len())];
        let mut modelled = Self {
            switch: Switch::with_pipeline(pipeline, threads, config, sizes, engine),
            config,
            caches,
            results: Results::new(checked.pipeline.version(), checked.model.clone()),
            checked,
            pending: VecDeque::new(),
            required: BTreeMap::new(),
            dropped: Vec::new(),
            flying: BTreeMap::new(),
            last: 0,
            ports: Vec::new(),
            rules: BTreeMap::new(),
            expected: BTreeMap::new(),
            seen: BTreeMap::new(),
            refreshes: 0,
            is_counted: true,
            forecasts: Vec::new(),
            slept: 0,
        };
        let forecasts = ForecastConfig {
            per_iteration: draw(runner, 1..20_usize),
            idle: Duration::from_secs(draw(runner, 1..20_u64)),
            speculative_max: draw(runner, prop::sample::select(vec![2, 1000])),
            ..ForecastConfig::default()
        };
        let predictor = draw(runner, 0..3);
        modelled.forecasts = modelled.switch.attach_predictors(forecasts, || {
            let mut replies = Foresight::new(GovernorConfig::default());
            replies.add(Box::new(Reply::default()));
            match predictor {
                0 => Foresight::new(GovernorConfig::default()),
                1 => replies,
                _ => WorstCase::unlimited(),
            }
        });
        modelled.add_ports();
        for id in BRIDGES {
            let rules = modelled.checked.pipeline.rules(id, &RuleFilter::all());
            modelled.rules.extend(rules.into_iter().map(|rule| (rule.id, rule)));
        }
        modelled.note_expected();
        modelled
    }

    fn add_ports(&mut self) {
        for (bridge, own) in &self.checked.model.bridges {
            for info in &own.ports {
                if let PortKind::Datapath(port) = info.kind {
                    self.switch.add_port(port.number(), *bridge, info.number);
                    self.ports.push(port.number());
                }
            }
        }
        for control in &mut self.switch.controls {
            let (packets, dropped) = RingBuffer::new(DROPS_PER_ITERATION);
            let tap = CaptureTap { id: 1, point: CapturePoint::Drops, packets, lost: 0 };
            control.send(Command::StartCapture(tap)).unwrap();
            self.dropped.push(dropped);
        }
    }

    fn note_expected(&mut self) {
        let rules = self.checked.model.bridges.values().flat_map(|bridge| &bridge.rules);
        self.expected.extend(rules.map(|rule| (rule.id, Arc::clone(rule))));
    }

    /// Changes the tables and the model; the coordinator receives the change later.
    fn change(&mut self, mut op: Op) {
        normalize(&mut op);
        if matches!(op, Op::Reclaim) {
            // `step` reclaims versions, because threads may still translate by versions from the
            // acknowledged one on.
            return;
        }
        if let Some(change) = self.checked.apply(&op) {
            self.note(change, Vec::new());
        }
    }

    /// Publishes a version with the learn requests, like the control plane.
    fn learn(&mut self) -> bool {
        let (learnings, learn_requests) = self.switch.take_learn_requests();
        if learn_requests.is_empty() {
            return false;
        }
        let change = self.checked.learn(&learnings, self.switch.now);
        for learning in &learnings {
            // If the port has left the VLAN, the tables refuse the observation. The address is not
            // refreshed.
            if let Learning::Mac(MacObservation { bridge, vlan, mac, port, .. }) = *learning
                && self.checked.model.mac_port(bridge, vlan, mac) == Some(port)
            {
                see(&mut self.seen, &self.checked.model, (bridge, vlan, mac), self.switch.now);
            }
        }
        for required in self.required.values_mut() {
            if matches!(required, RequiredLearning::NotYet) {
                *required = RequiredLearning::Since(change.version);
            }
        }
        self.note(change, learn_requests);
        true
    }

    fn note(&mut self, change: Change, learn_requests: Vec<(OwnerId, LearnSeq)>) {
        for delta in &change.deltas {
            if let Delta::Rule(delta) = delta {
                self.rules.insert(delta.rule.id, Arc::clone(&delta.rule));
            }
        }
        self.note_expected();
        self.results.models.insert(change.version, self.checked.model.clone());
        self.pending.push_back((change, learn_requests));
    }

    fn send(&mut self, thread: usize, key: &FlowKey) {
        let mut frame = frame_of(key);
        self.last += 1;
        let number = self.last;
        frame.extend(b"#N");
        frame.extend(number.to_be_bytes());
        frame.extend(b"N#");
        frame.resize(length(key), 0);
        let key_for_oracle = with_hidden(key, &frame);
        if self.results.is_costly(&key_for_oracle) {
            return;
        }
        let port = u32::try_from(key.bridge()).unwrap() * 100 + key.in_port().number();
        if self.switch.send(thread, port, &frame) {
            self.flying.insert(number, PacketInFlight { thread, key: key_for_oracle });
        }
    }

    /// Sends a forecast of a packet to a thread.
    ///
    /// The forecast packet has the key `key`, or differs in one field. The port may not exist, and
    /// the forecast may have expired.
    fn send_forecast(&mut self, runner: &mut TestRunner, thread: usize, key: &FlowKey) {
        let mut flow = key_of(&frame_of(key));
        flow.set_bridge(key.bridge());
        flow.set_in_port(key.in_port());
        match draw(runner, 0..6) {
            0 => flow.set_in_port(PortNo::new(draw(runner, 0..8_u32))),
            1 => flow.set_field(FieldId::Ipv4Dst, draw(runner, 0..4_u128)),
            2 => flow.set_field(FieldId::EthSrc, draw(runner, 0..4_u128)),
            _ => {}
        }
        let now = Duration::from_nanos(self.switch.now.nanoseconds());
        self.forecasts[thread].send(Forecast {
            key: SparseKey::from(&flow),
            known: known_bits(runner),
            confidence: Confidence::MAX,
            made: now,
            valid_until: now + Duration::from_secs(draw(runner, 0..20_u64)),
            source: ForecastSource::Oracle,
        });
    }

    /// Runs an iteration of a thread; checks each packet sent, punted or dropped.
    fn run_iteration(&mut self, thread: usize) -> bool {
        let full = |modelled: &Self| {
            let reasons = [DropReason::TxQueueFull, DropReason::UpcallQueueFull];
            reasons.map(|reason| modelled.switch.counters(thread).dropped[reason as usize].get())
        };
        let [tx_full, waiting_full] = full(self);
        let worked = self.switch.run_iteration(thread);
        // Resubmits make dozens of copies of one packet. If a port had no room, copies may be
        // missing, so they are not compared.
        let is_whole = full(self) == [tx_full, waiting_full];
        // A packet without room in the upcall queue visits no rule.
        let is_visited = full(self)[1] == waiting_full;
        self.is_counted &= is_visited;
        let mut ends: BTreeMap<u32, PacketCopies> = BTreeMap::new();
        for port in &self.ports {
            for frame in self.switch.receive(thread, *port) {
                let end = ends.entry(number_of(&frame)).or_default();
                end.sent.entry(DatapathPort::new(*port)).or_default().push(frame);
            }
        }
        while let Some(punted) = self.switch.controls[thread].packet_ins.pop() {
            ends.entry(number_of(&punted.frame)).or_default().punted.push(punted);
        }
        while let Ok(dropped) = self.dropped[thread].pop() {
            ends.entry(number_of(&dropped.frame)).or_default().dropped += 1;
        }
        for (number, ends) in ends {
            let flying = self.flying.remove(&number).expect("a packet ends once");
            assert_eq!(flying.thread, thread);
            if !is_visited {
                continue;
            }
            let version = self.switch.threads[thread].version();
            let effects = self.results.of(version, &flying.key);
            self.credit(&effects, version);
            self.judge_order(&flying, &effects, version);
            if is_whole {
                let context = format!("packet {number} at version {version}: {:?}", flying.key);
                assert_same(&effects, &ends, &context);
            }
        }
        assert_eq!(self.switch.counters(thread).unaccounted(), 0);
        worked
    }

    /// Checks that a packet was forwarded with all earlier learn requests of its queue.
    fn judge_order(&mut self, flying: &PacketInFlight, effects: &PacketEffects, version: Version) {
        let queue = (flying.thread, flying.key.bridge(), flying.key.in_port().number());
        let is_met = match self.required.get(&queue) {
            Some(RequiredLearning::NotYet) => false,
            Some(RequiredLearning::Since(learned)) => *learned <= version,
            None => true,
        };
        assert!(is_met, "a packet overtook an earlier learn request of its queue");
        if !effects.learned.is_empty() {
            self.required.insert(queue, RequiredLearning::NotYet);
        }
    }

    /// Counts a packet for the oracle's rules; refreshes rules and MAC addresses.
    fn credit(&mut self, effects: &PacketEffects, version: Version) {
        for visited in &effects.visited {
            if let Some(rule) = visited.rule {
                self.expected[&rule].stats.credit(1, visited.length as u64, self.switch.now);
            }
        }
        for refreshed in &effects.refreshed {
            match refreshed {
                Refreshed::Rule(rule) => self.expected[rule].timers().refresh(self.switch.now),
                Refreshed::Lowered(rule, idle, hard) => {
                    self.expected[rule].timers().lower(*idle, *hard);
                }
                Refreshed::Mac(bridge, vlan, mac) => {
                    let (model, place) = (&self.results.models[&version], (*bridge, *vlan, *mac));
                    see(&mut self.seen, model, place, self.switch.now);
                    self.refreshes += 1;
                }
            }
        }
    }

    /// Compares the times at which MAC addresses were last seen.
    ///
    /// The function also compares the addresses that are left after others have expired. Static
    /// addresses never expire, and have no such time here.
    fn judge_ageing(&self) {
        let ageing = BridgeSettings::default().mac_ageing;
        let macs = |id: BridgeId| {
            let own = &self.checked.model.bridges[&id].macs;
            let seen = |number| self.seen.get(number).copied().unwrap_or(Time::ZERO);
            own.iter().map(move |(place, (_, number))| (*place, seen(number)))
        };
        let mut ends: Vec<_> = BRIDGES.iter().flat_map(|id| macs(*id)).collect();
        ends.sort_unstable_by_key(|(_, seen)| *seen);
        let Some((_, seen)) = ends.get(ends.len() / 2) else { return };
        let moments = [Time::ZERO, seen.after(ageing)];
        for now in moments {
            self.checked.pipeline.expire(now);
            for id in BRIDGES {
                let statics = &self.checked.model.bridges[&id].statics;
                let left: BTreeMap<_, _> = macs(id)
                    .map(|(place, seen)| (place, (!statics.contains(&place)).then_some(seen)))
                    .filter(|(_, seen)| seen.is_none_or(|seen| seen.after(ageing) > now))
                    .collect();
                let known = self.checked.pipeline.macs(id);
                let known = known.iter().map(|entry| {
                    ((entry.vlan, entry.mac), (!entry.is_static).then(|| entry.seen()))
                });
                assert_eq!(known.collect::<BTreeMap<_, _>>(), left, "at {now:?}");
            }
        }
    }

    /// Sends the next version to the coordinator.
    fn coordinator_applies(&mut self) -> bool {
        let Some((change, learn_requests)) = self.pending.pop_front() else { return false };
        self.switch.send_change(&change, &learn_requests);
        true
    }

    /// Sends `count` versions at once to the coordinator, after all earlier reports.
    fn coordinator_iterations(&mut self, count: usize) {
        let count = count.min(self.pending.len());
        let all = self.pending.drain(..count);
        let all: Vec<_> =
            all.map(|(change, learn_requests)| LearnedChange { change, learn_requests }).collect();
        self.switch.send_changes(all);
    }

    /// Replaces the cache of a thread from its next iteration on.
    /// The old entries still exist after the replacement.
    fn replace_cache(&mut self, thread: usize, wildcard: Wildcard) {
        let ThreadConfig { max_idle, translations_per_iteration, verify_one_in, repair, .. } =
            self.config;
        let vlan_limit = self.config.vlan_limit;
        let tuning = Tuning {
            max_idle,
            translations_per_iteration,
            verify_one_in,
            repair,
            wildcard,
            // A small limit expires entries, and refuses others.
            entries_max: [5, 40, 262_144][self.pending.len() % 3],
            sleep_max: ThreadConfig::default().sleep_max,
            vlan_limit,
        };
        self.switch.controls[thread].send(Command::Tune(tuning)).unwrap();
    }

    /// Runs until no work is left, and compares counters and timers with the oracle.
    pub(crate) fn finish(&mut self) {
        let mut worked = true;
        while worked {
            self.switch.coordinator.take_reports();
            worked = self.learn() | self.coordinator_applies();
            for thread in 0..self.switch.threads.len() {
                worked |= self.run_iteration(thread);
            }
        }
        assert!(self.flying.is_empty(), "nothing is lost");
        assert_eq!(self.switch.coordinator.acked_version(), self.checked.pipeline.version());
        let entries = |thread| self.switch.counters(thread).entries.get();
        let entries: u64 = (0..self.switch.threads.len()).map(entries).sum();
        assert_eq!(
            self.switch.coordinator.watched() as u64,
            entries,
            "the engine knows what there is"
        );
        let differences = |thread| self.switch.counters(thread).differences.get();
        let count = (0..self.switch.threads.len()).map(differences).sum::<u64>();
        let difference = self.switch.controls.iter_mut().find_map(|own| own.differences.pop().ok());
        assert_eq!(count, 0, "{difference:#?}");
        // Without known visits, the refreshes of addresses and rules are unknown too.
        if !self.is_counted {
            return;
        }
        for (id, expected) in &self.expected {
            let rule = &self.rules[id];
            assert_eq!(rule.stats.totals(), expected.stats.totals(), "rule {id}");
            let refreshed = |rule: &Rule| rule.timers().refreshed();
            assert_eq!(refreshed(rule), refreshed(expected), "rule {id}");
            let timeouts = |rule: &Rule| (rule.idle_timeout_now(), rule.hard_timeout_now());
            assert_eq!(timeouts(rule), timeouts(expected), "rule {id}");
        }
        self.judge_ageing();
    }

    /// Returns the number of packets that the mirrors of the last version have copied.
    pub(crate) fn mirrored(&self) -> u64 {
        let counters = BRIDGES.iter().flat_map(|id| self.checked.pipeline.mirror_counters(*id));
        counters.map(|counter| counter.totals().packets).sum()
    }

    pub(crate) fn step(&mut self, runner: &mut TestRunner, keys: &[FlowKey]) {
        let thread = draw(runner, 0..self.switch.threads.len());
        match draw(runner, 0..112) {
            0..40 => {
                for _ in 0..draw(runner, 1..30) {
                    let key = &keys[draw(runner, 0..keys.len())];
                    self.send(thread, key);
                }
            }
            40..80 => {
                self.run_iteration(thread);
                if draw(runner, 0..4) == 0 {
                    self.slept += usize::from(self.switch.sleep(thread));
                }
            }
            80..86 => self.change(draw(runner, generate::op())),
            86..91 => {
                self.switch.coordinator.take_report(thread);
            }
            91..93 => {
                self.switch.coordinator.take_reports();
            }
            93..95 => {
                self.learn();
            }
            95..97 => {
                self.coordinator_applies();
            }
            97 => self.coordinator_iterations(draw(runner, 1..5_usize)),
            98 => {
                self.checked.pipeline.reclaim(self.switch.coordinator.acked_version());
                let oldest = self.switch.coordinator.acked_version();
                self.results.reclaim(oldest);
            }
            101..112 => {
                for _ in 0..draw(runner, 1..10) {
                    let key = &keys[draw(runner, 0..keys.len())];
                    self.send_forecast(runner, thread, key);
                }
                // Many packets of a network are alike, so most of these forecasts are for flows
                // with entries.
                let fresh = draw(runner, generate::packet());
                self.send_forecast(runner, thread, &fresh);
                if draw(runner, 0..2) == 0 {
                    // Forecasts wait while packets wait, so one iteration rarely takes all
                    // forecasts.
                    for _ in 0..4 {
                        self.run_iteration(thread);
                    }
                    self.send(thread, &fresh);
                }
            }
            99 => self.replace_cache(thread, (self.caches.replacement)(runner)),
            _ => self.switch.wait(Duration::from_secs(draw(runner, 0..12_u64))),
        }
        self.switch.wait(Duration::from_micros(10));
    }
}

/// Returns the bits that a forecast knows: all (`None`), or all but one field.
fn known_bits(runner: &mut TestRunner) -> Option<SparseMask> {
    /// Fields that a forecast may lack.
    const UNKNOWN: [FieldId; 3] = [FieldId::Ipv4Src, FieldId::UdpSrc, FieldId::EthSrc];
    let field = UNKNOWN.get(draw(runner, 0..9_usize))?;
    let mut known = FlowMask::EMPTY;
    known.words_mut().fill(u64::MAX);
    known.remove_bits(*field, u128::MAX);
    Some(SparseMask::from(&known))
}

/// Records that a MAC address was seen now, at its port in a version of the model.
fn see(
    seen: &mut BTreeMap<u64, Time>,
    model: &NetworkModel,
    (bridge, vlan, mac): (BridgeId, u16, [u8; 6]),
    now: Time,
) {
    let found = model.bridges.get(&bridge).and_then(|own| own.macs.get(&(vlan, mac)));
    if let Some((_, number)) = found {
        let last = seen.entry(*number).or_insert(now);
        *last = now.max(*last);
    }
}
