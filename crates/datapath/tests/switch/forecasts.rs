//! Tests forecasts, which are entries for flows about to arrive, with each cache.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_datapath::{
    Command, ThreadConfig,
    command::DumpedEntry,
    forecast::{ForecastConfig, ForecastRoutes, ForecastSender, Stopwatch, forecast_endpoint},
};
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo, SparseKey, SparseMask,
    testing::packet::PacketBuilder,
};
use shunt_foresight::{
    Confidence, FlowEvent, Forecast, ForecastRefusal, ForecastSource, Foresight, GovernorConfig,
    GovernorState, NewFlow, Oracle, OutcomeCounts, Predictor, Reply, SiblingSet, SiblingSets,
    Siblings,
};
use shunt_pipeline::{
    Action, FlowModCommand, MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterId, MeterMod,
    MeterUnit, Modification, Time,
};

use super::{caches, counts::controller, thread_config, tiny};
use crate::{
    frames::key_of,
    harness::{BRIDGE, Switch, added, output, request, rule},
};

/// Idle timeout of the entries of forecasts.
pub(super) const IDLE: Duration = Duration::from_secs(3);

/// Returns a switch with three ports, and a rule for each of several destinations.
pub(super) fn switch(config: ThreadConfig) -> (Switch, ForecastSender) {
    switch_with(config, || Foresight::new(GovernorConfig::default()))
}

fn switch_with(
    config: ThreadConfig,
    predictors: impl Fn() -> Foresight,
) -> (Switch, ForecastSender) {
    let mut switch = Switch::new(1, 3, config);
    let forecasts = ForecastConfig { idle: IDLE, ..ForecastConfig::default() };
    let sender = switch.attach_predictors(forecasts, predictors).remove(0);
    switch.apply(&added(&[
        "priority=9,udp,nw_dst=10.1.0.0/16,actions=output:2",
        "priority=8,udp,nw_dst=10.2.0.0/16,tp_src=7,actions=output:3",
        "priority=7,udp,nw_dst=10.3.0.0/16,actions=normal",
        "priority=1,actions=drop",
    ]));
    (switch, sender)
}

pub(super) fn frame(target: [u8; 4], source_port: u16) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], target).udp(source_port, 2).build()
}

/// Returns a forecast of the frame from port 1 to `target`.
pub(super) fn forecast(switch: &Switch, target: [u8; 4]) -> Forecast {
    let mut key = key_of(&frame(target, 7));
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(1));
    let now = Duration::from_nanos(switch.now.nanoseconds());
    Forecast {
        key: SparseKey::from(&key),
        known: None,
        confidence: Confidence::MAX,
        made: now,
        valid_until: now + Duration::from_secs(60),
        source: ForecastSource::Successor,
    }
}

fn with_key(forecast: Forecast, change: impl FnOnce(&mut FlowKey)) -> Forecast {
    let mut key = FlowKey::from(&forecast.key);
    change(&mut key);
    Forecast { key: SparseKey::from(&key), ..forecast }
}

pub(super) fn counts(sender: &ForecastSender) -> OutcomeCounts {
    sender.counters().of(ForecastSource::Successor).counts()
}

fn count_refused(sender: &ForecastSender, reason: ForecastRefusal) -> u64 {
    counts(sender).refused[reason as usize]
}

pub(super) fn dump(switch: &mut Switch) -> Vec<DumpedEntry> {
    let (send, receive) = std::sync::mpsc::channel();
    let reply = Box::new(move |all| send.send(all).unwrap());
    switch.controls[0].send(Command::Dump(reply)).unwrap();
    switch.settle();
    receive.recv().unwrap()
}

#[test]
fn a_forecast_flow_hits_with_its_first_packet() {
    let (mut switch, mut sender) = switch(thread_config());
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    assert_eq!((counts(&sender).installed, counts(&sender).translations), (1, 1));
    let before = dump(&mut switch);
    assert!(before.iter().all(|own| own.packets == 0 && own.used == switch.now));
    assert!(before.iter().all(|own| own.forecast == Some(ForecastSource::Successor)));
    switch.wait(Duration::from_secs(1));
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    assert_eq!(switch.receive(0, 2).len(), 1);
    assert_eq!(switch.counters(0).upcalls.get(), 0);
    switch.settle();
    let counts = counts(&sender);
    assert_eq!((counts.hits, counts.lead), (1, Duration::from_secs(1)));
    // From now on the entry counts as an entry with traffic, and keeps its origin.
    switch.wait(IDLE * 2);
    switch.settle();
    let after = dump(&mut switch);
    assert_eq!(after.len(), before.len());
    assert!(after.iter().all(|own| own.forecast == Some(ForecastSource::Successor)));
}

/// A predictor that records all new flows.
#[derive(Debug)]
struct Recorder(Arc<Mutex<Vec<NewFlow>>>);

impl Predictor for Recorder {
    fn source(&self) -> ForecastSource {
        ForecastSource::Periodic
    }

    fn observe(&mut self, event: &FlowEvent<'_>, _now: Duration) {
        if let FlowEvent::Started(flow) = event {
            self.0.lock().unwrap().push((*flow).clone());
        }
    }

    fn forecast(&mut self, _now: Duration, _budget: usize, _forecasts: &mut Vec<Forecast>) {}

    fn next_due(&self) -> Option<Duration> {
        None
    }

    fn len(&self) -> usize {
        0
    }

    fn capacity(&self) -> usize {
        0
    }
}

#[test]
fn predictors_see_new_flows() {
    let flows = Arc::new(Mutex::new(Vec::new()));
    let (mut switch, mut sender) = switch_with(thread_config(), || {
        let mut predictors = Foresight::new(GovernorConfig::default());
        predictors.add(Box::new(Recorder(Arc::clone(&flows))));
        predictors
    });
    for _ in 0..3 {
        assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
        switch.settle();
    }
    // A packet that hits is no new flow.
    let [missed] = std::mem::take(&mut *flows.lock().unwrap()).try_into().unwrap();
    assert_eq!(missed.key.field(FieldId::Ipv4Dst), 0x0a01_0001);
    assert_eq!(missed.forecast, None);
    assert_eq!(missed.egress.unwrap().in_port(), PortNo::new(2));
    // The first hit of a forecast flow is a new flow.
    assert!(sender.send(forecast(&switch, [10, 2, 0, 1])));
    switch.settle();
    assert!(flows.lock().unwrap().is_empty());
    assert!(switch.send(0, 1, &frame([10, 2, 0, 1], 7)));
    switch.settle();
    switch.settle();
    let [hit] = std::mem::take(&mut *flows.lock().unwrap()).try_into().unwrap();
    assert_eq!(hit.forecast, Some(ForecastSource::Successor));
    assert_eq!(hit.egress.unwrap().in_port(), PortNo::new(3));
    assert_eq!(sender.counters().observed.get(), 2);
}

#[test]
fn wrong_forecast_expires_after_own_idle_time() {
    let (mut switch, mut sender) = switch(thread_config());
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    switch.wait(IDLE);
    switch.settle();
    assert!(!dump(&mut switch).is_empty());
    switch.wait(Duration::from_millis(1));
    switch.settle();
    assert!(dump(&mut switch).is_empty());
    assert_eq!(counts(&sender).wrong, 1);
    assert_eq!(switch.coordinator.watched(), 0);
}

#[test]
fn a_forecast_after_its_flow_is_late() {
    let (mut switch, mut sender) = switch(thread_config());
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    let counts = counts(&sender);
    assert_eq!((counts.late, counts.covered, counts.installed), (1, 1, 0));
    // Lookups for forecasts do not count as lookups of packets.
    let counters = switch.counters(0);
    assert_eq!(counters.megaflow.hits.get() + counters.chain.hits.get(), 0);
}

#[test]
fn bad_forecasts_are_refused_with_a_reason() {
    let (mut switch, mut sender) = switch(thread_config());
    let good = forecast(&switch, [10, 1, 0, 1]);
    let known = {
        let mut mask = FlowMask::EMPTY;
        mask.words_mut().fill(u64::MAX);
        mask.remove_bits(FieldId::UdpSrc, 0xffff);
        Some(SparseMask::from(&mask))
    };
    let bad = [
        (ForecastRefusal::Expired, Forecast { valid_until: Duration::ZERO, ..good.clone() }),
        (
            ForecastRefusal::HiddenState,
            with_key(good.clone(), |key| key.set_field(FieldId::Reg0, 1)),
        ),
        (
            ForecastRefusal::NoSuchPort,
            with_key(good.clone(), |key| key.set_in_port(PortNo::new(77))),
        ),
        (ForecastRefusal::NoSuchPort, with_key(good, |key| key.set_bridge(99))),
        (ForecastRefusal::Learns, forecast(&switch, [10, 3, 0, 1])),
        (ForecastRefusal::UnknownBits, Forecast { known, ..forecast(&switch, [10, 2, 0, 1]) }),
    ];
    for (reason, forecast) in bad {
        let before = count_refused(&sender, reason);
        assert!(sender.send(forecast));
        switch.settle();
        assert_eq!(count_refused(&sender, reason), before + 1, "{reason:?}");
    }
    assert_eq!((counts(&sender).installed, dump(&mut switch).len()), (0, 0));
    assert_eq!(switch.counters(0).learn_requests.get(), 0);
    assert!(switch.pipeline.macs(BRIDGE).is_empty());
}

#[test]
fn too_many_forecasts_are_refused_and_counted() {
    let (mut switch, mut sender) = switch(thread_config());
    let all = 5000;
    for at in 0..all {
        let [.., high, low] = u32::to_be_bytes(at);
        sender.send(forecast(&switch, [10, 2, high, low]));
    }
    switch.settle();
    let counts = counts(&sender);
    assert_eq!(counts.received, u64::from(all));
    let settled = counts.installed + counts.covered + counts.late;
    assert_eq!(counts.received, settled + counts.refused_total());
    // Another forecast covers the flow, and no packet arrived.
    assert!(counts.late == 0 && counts.covered > 0);
    assert!(count_refused(&sender, ForecastRefusal::QueueFull) > 3000);
}

/// Predicted flows give their slots to newer flows; announced flows do not.
#[test]
fn announced_flows_beyond_the_limit_are_refused() {
    let mut switch = Switch::new(1, 3, thread_config());
    let limits = ForecastConfig { speculative_max: 4, ..ForecastConfig::default() };
    let mut sender = switch.attach_forecasts(limits).remove(0);
    let rules: Vec<_> =
        (0..9).map(|at| format!("priority=30,udp,nw_dst=10.4.0.{at},actions=output:2")).collect();
    switch.apply(&added(&rules.iter().map(String::as_str).collect::<Vec<_>>()));
    for at in 0..6 {
        let source = ForecastSource::Announced;
        sender.send(Forecast { source, ..forecast(&switch, [10, 4, 0, at]) });
    }
    switch.settle();
    let announced = || sender.counters().of(ForecastSource::Announced).counts();
    let full = ForecastRefusal::ForecastsFull as usize;
    assert_eq!((announced().installed, announced().refused[full]), (4, 2));
    assert_eq!(announced().evicted, 0);
    sender.send(forecast(&switch, [10, 4, 0, 7]));
    switch.settle();
    assert_eq!(counts(&sender).installed, 1);
    let announced = sender.counters().of(ForecastSource::Announced).counts();
    assert_eq!((announced.evicted, announced.unused_entries > 0), (1, true));
}

#[test]
fn predictors_take_turns_with_announced_flows() {
    let (mut switch, mut sender) = replying(&[
        "udp,nw_dst=10.1.0.1,tp_dst=2,actions=output:2",
        "udp,nw_src=10.1.0.1,tp_src=2,actions=output:1",
    ]);
    for at in 0..1000_u32 {
        let [.., high, low] = at.to_be_bytes();
        let source = ForecastSource::Announced;
        sender.send(Forecast { source, ..forecast(&switch, [10, 9, high, low]) });
    }
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    for _ in 0..3 {
        switch.run_iteration(0);
    }
    assert_eq!(replies(&sender).installed, 1);
    let announced = sender.counters().of(ForecastSource::Announced).counts();
    assert!(announced.received < 1000, "many still wait: {announced:?}");
}

/// Returns a switch with a clock that advances by a microsecond at each call.
fn switch_with_clock(predictors: Foresight) -> (Switch, ForecastSender) {
    let mut switch = Switch::new(1, 3, thread_config());
    let config = ForecastConfig::default();
    let control = &mut switch.controls[0];
    let routes = ForecastRoutes::default();
    let (thread, sender) = forecast_endpoint(config, predictors, &routes, control);
    let calls = AtomicU64::new(0);
    let clock =
        move || Time::ZERO.after(Duration::from_micros(calls.fetch_add(1, Ordering::Relaxed)));
    let thread = thread.with_stopwatch(Stopwatch::new(clock));
    control.send(Command::Forecasts(Some(Box::new(thread)))).unwrap();
    switch.apply(&added(&["udp,nw_dst=10.1.0.1,actions=output:2"]));
    (switch, sender)
}

/// Predictors take no time before the first new flow, and then none until the next
/// one.
#[test]
fn the_time_of_predictors_is_counted() {
    let mut predictors = Foresight::new(GovernorConfig::default());
    predictors.add(Box::new(Reply::default()));
    let (mut switch, sender) = switch_with_clock(predictors);
    let taken = || sender.counters().predictor_ns.get();
    switch.settle();
    assert_eq!(taken(), 0);
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    switch.wait(Duration::from_secs(1));
    switch.settle();
    // The clock is read once at the start, twice for new flows, twice for forecasts, and at the end.
    assert_eq!(taken(), 5000);
    let own = sender.counters().predictors.lock()[0].spent;
    assert_eq!(own, Duration::from_micros(2), "learning and forecasts of the predictor alone");
    // The translation of the forecast is counted by origin.
    assert_eq!(replies(&sender).spent, Duration::from_micros(1));
}

#[test]
fn the_time_of_translations_is_counted() {
    let (mut switch, mut sender) = switch_with_clock(Foresight::new(GovernorConfig::default()));
    sender.send(forecast(&switch, [10, 1, 0, 1]));
    switch.settle();
    assert_eq!(counts(&sender).spent, Duration::from_micros(1));
    assert_eq!(counts(&sender).saved(None), Some(Duration::ZERO));
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    switch.settle();
    // One hit of a forecast flow saves the mean time of a translation.
    assert_eq!(counts(&sender).saved(None), Some(Duration::from_micros(1)));
}

/// Learning and refreshes take effect when a packet hits the entry.
#[test]
fn a_forecast_uses_no_meter_or_packet_in() {
    let (mut switch, mut sender) = switch(thread_config());
    let bands = [MeterBand { kind: MeterBandKind::Drop, rate: 1, burst_size: 0 }].into();
    let config = MeterConfig { unit: MeterUnit::Packets, burst: false, stats: true, bands };
    let meter = Some(MeterId::new(1));
    let meter = MeterMod { command: MeterCommand::Add, meter, config };
    let actions = vec![Action::Meter(MeterId::new(1)), controller(None), output(2)];
    switch.modify([meter.into(), rule(20, Match::any(), actions).into()]);
    for host in 1..=5 {
        sender.send(forecast(&switch, [10, 1, 0, host]));
    }
    switch.settle();
    assert!(counts(&sender).installed > 0, "{:?}", counts(&sender));
    let metered = |switch: &Switch| switch.pipeline.meters(BRIDGE)[0].totals().packets;
    assert_eq!((metered(&switch), switch.counters(0).punted.get()), (0, 0));
    assert!(switch.controls[0].packet_ins.pop().is_none());
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    // The meter still passes its first packet.
    assert_eq!((switch.receive(0, 2).len(), switch.counters(0).punted.get()), (1, 1));
    assert!(switch.controls[0].packet_ins.pop().is_some());
    assert_eq!((metered(&switch), switch.counters(0).upcalls.get()), (1, 0));
}

/// In this test, both caches are full of entries with traffic.
#[test]
fn a_forecast_displaces_no_entry_with_traffic() {
    let mut small = caches();
    (small.entries_max, small.wildcard) = (16, tiny());
    let (mut switch, mut sender) = switch(ThreadConfig { caches: small, ..thread_config() });
    switch.apply(&added(&["priority=20,udp,nw_dst=10.4.0.0/15,tp_dst=2,actions=output:2"]));
    let mut rules = Vec::new();
    for at in 0..20_u8 {
        rules.push(format!("priority=30,udp,nw_dst=10.4.0.{at},actions=output:2"));
    }
    switch.apply(&added(&rules.iter().map(String::as_str).collect::<Vec<_>>()));
    for at in 0..20 {
        assert!(switch.send(0, 1, &frame([10, 4, 0, at], 7)));
        switch.settle();
    }
    let before: Vec<_> = dump(&mut switch).iter().map(|own| own.entry).collect();
    assert!(before.len() >= 2);
    for at in 0..20 {
        sender.send(forecast(&switch, [10, 5, 0, at]));
        switch.settle();
    }
    let after: Vec<_> = dump(&mut switch).iter().map(|own| own.entry).collect();
    assert_eq!(before, after);
    assert_eq!(count_refused(&sender, ForecastRefusal::NoRoom), 20);
}

/// Returns the number of entries with traffic after misses filled a small cache.
fn entries_with_traffic(forecasts: u8) -> usize {
    let mut small = caches();
    (small.entries_max, small.wildcard) = (16, tiny());
    let (mut switch, mut sender) = switch(ThreadConfig { caches: small, ..thread_config() });
    let rules: Vec<_> =
        (0..40).map(|at| format!("priority=30,udp,nw_dst=10.4.0.{at},actions=output:2")).collect();
    switch.apply(&added(&rules.iter().map(String::as_str).collect::<Vec<_>>()));
    for at in 0..forecasts {
        sender.send(forecast(&switch, [10, 4, 0, at]));
    }
    switch.settle();
    let installed = counts(&sender).installed;
    assert_eq!((installed > 0, counts(&sender).evicted), (forecasts > 0, 0));
    for at in 20..36 {
        assert!(switch.send(0, 1, &frame([10, 4, 0, at], 7)));
        switch.settle();
    }
    assert_eq!(counts(&sender).evicted > 0, forecasts > 0);
    dump(&mut switch).iter().filter(|own| own.packets > 0).count()
}

#[test]
fn a_miss_evicts_speculative_entries_first() {
    assert_eq!(entries_with_traffic(8), entries_with_traffic(0));
}

/// The forecast waits for its translation while the rules change.
#[test]
fn a_waiting_forecast_follows_the_changed_rules() {
    let (mut switch, mut sender) = switch(thread_config());
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    let text = "priority=99,udp,nw_dst=10.1.0.1,actions=output:3";
    let change = Modification::Flow(request(FlowModCommand::Add, text));
    let change = switch.pipeline.modify(BRIDGE, [change], switch.now).unwrap();
    // The thread translates by the old rules, because it has not adopted the new version.
    switch.run_iteration(0);
    assert_eq!(counts(&sender).installed, 1);
    switch.change(&change);
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (0, 1));
    let counts = counts(&sender);
    assert_eq!((counts.installed, counts.evicted, counts.hits), (2, 1, 1));
    assert_eq!(switch.counters(0).upcalls.get(), 0);
}

#[test]
fn a_forecast_wakes_a_parked_thread() {
    let (mut switch, mut sender) = switch(thread_config());
    switch.settle();
    assert!(switch.sleep(0));
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    sender.wake();
    assert!(switch.is_woken(0));
    switch.settle();
    assert_eq!(counts(&sender).installed, 1);
}

#[test]
fn thread_sleeps_until_predictor_has_forecast() {
    let due = Duration::from_secs(10);
    let key = forecast(&Switch::new(1, 3, thread_config()), [10, 1, 0, 1]).key;
    let (mut switch, sender) = switch_with(thread_config(), || {
        let mut predictors = Foresight::new(GovernorConfig::default());
        let flows = vec![(due, key.clone())];
        let oracle = Oracle::new(flows, 100, Duration::ZERO, Duration::from_secs(5), 0);
        predictors.add(Box::new(oracle));
        predictors
    });
    let installed = || sender.counters().of(ForecastSource::Oracle).counts().installed;
    let millisecond = Duration::from_millis(1);
    switch.wait(due - Duration::from_nanos(switch.now.nanoseconds()) - millisecond);
    switch.settle();
    assert_eq!(installed(), 0);
    let left = due - Duration::from_nanos(switch.now.nanoseconds());
    assert_eq!(switch.threads[0].sleep_max(), left);
    switch.wait(left);
    switch.settle();
    assert_eq!(installed(), 1);
    assert!(switch.threads[0].sleep_max() > left);
}

#[test]
fn sets_of_back_ends_reach_the_predictors() {
    let (mut switch, mut sender) = switch_with(thread_config(), || {
        let mut predictors = Foresight::new(GovernorConfig::default());
        predictors.add(Box::new(Siblings::default()));
        predictors
    });
    let values = vec![0x0a02_0001, 0x0a02_0002, 0x0a02_0003];
    let sets = SiblingSets::new(vec![SiblingSet { field: FieldId::Ipv4Dst, values }]);
    assert!(sender.send_sibling_sets(Arc::new(sets)));
    assert!(switch.send(0, 1, &frame([10, 2, 0, 1], 7)));
    switch.settle();
    let counts = sender.counters().of(ForecastSource::Siblings).counts();
    // The entry of the flow covers both similar flows, or they get entries.
    assert_eq!((counts.received, counts.refused_total()), (2, 0));
}

/// Returns a switch with a packet thread that forecasts replies.
fn replying(rules: &[&str]) -> (Switch, ForecastSender) {
    let mut switch = Switch::new(1, 3, thread_config());
    let sender = switch.attach_predictors(ForecastConfig::default(), || {
        let mut foresight = Foresight::new(GovernorConfig::default());
        foresight.add(Box::new(Reply::default()));
        foresight
    });
    switch.apply(&added(rules));
    (switch, sender.into_iter().next().unwrap())
}

pub(super) fn replies(sender: &ForecastSender) -> OutcomeCounts {
    sender.counters().of(ForecastSource::Reply).counts()
}

#[test]
fn reply_has_its_entry_right_after_request() {
    let (mut switch, sender) = replying(&[
        "udp,nw_dst=10.1.0.1,tp_dst=2,actions=set_field:10.2.0.9->ip_dst,output:2",
        "udp,nw_src=10.2.0.9,nw_dst=10.0.0.1,tp_dst=7,actions=set_field:10.1.0.1->ip_src,output:1",
    ]);
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    // The back end replies to the source address that the rules have written into the request.
    let reply = PacketBuilder::ipv4([10, 2, 0, 9], [10, 0, 0, 1]).udp(2, 7).build();
    assert_eq!((replies(&sender).received, replies(&sender).installed), (1, 1));
    assert!(switch.send(0, 2, &reply));
    switch.settle();
    let sent = switch.receive(0, 1);
    let expected = PacketBuilder::ipv4([10, 1, 0, 1], [10, 0, 0, 1]).udp(2, 7).build();
    assert_eq!(sent, [expected]);
    assert_eq!(switch.counters(0).upcalls.get(), 1, "the reply does not miss");
    switch.settle();
    // The hit reply causes no forecast, because the reply to the reply is the request.
    assert_eq!((replies(&sender).hits, replies(&sender).received), (1, 1));
    assert_eq!(sender.counters().observed.get(), 2);
}

#[test]
fn a_thread_pauses_replies_that_nobody_sends() {
    // Each request and each reply needs its own entry.
    let rules: Vec<_> = (0..200)
        .flat_map(|at| {
            let [request, reply] = [format!("nw_dst=10.1.0.{at}"), format!("nw_src=10.1.0.{at}")];
            [format!("udp,{request},actions=output:2"), format!("udp,{reply},actions=output:1")]
        })
        .collect();
    let (mut switch, sender) = replying(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    for at in 0..200 {
        assert!(switch.send(0, 1, &frame([10, 1, 0, at], 7)));
        switch.settle();
        switch.wait(Duration::from_millis(100));
        switch.settle();
    }
    let status = sender.counters().predictors.lock()[0];
    assert!(matches!(status.state, GovernorState::Paused { .. }), "{status:?}");
    let counts = replies(&sender);
    // A withheld forecast costs no token.
    let (made, installed) = (status.forecasts - counts.withheld, counts.installed);
    assert_eq!((made, installed, counts.hits), (64, 64, 0), "{status:?}");
}
