//! The periodic tasks of a switch: upkeep, and checks of threads, the NIC and ports.
//!
//! The tasks also react to events: panics of threads, changes of links, and devices that disappear
//! and return.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use shunt_datapath::{
    metrics::{ThreadCounters, TrainingFailure},
    thread::CacheMismatch,
};
use shunt_ofproto::server::ControlTask;
use shunt_pipeline::{BridgeId, Pipeline};
use tokio::{
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval, sleep},
};
use tracing::{debug, error, warn};

use crate::{
    control::ControlPlane,
    multicast::router_log::RouterChange,
    ports::{
        attacher::check::CheckScope,
        learning_packets::send_learning_packets,
        link_events::{ChangedDevices, LinkEvents},
        port::BridgePort,
        registry::BridgeState,
    },
    threads::{data_plane::DataPlane, load::balancer::watch_loads, publisher::log_rules},
    trace::{
        explain::Tracer,
        report::{Trace, TraceVisit},
    },
};

/// Interval between two checks of expired rules, threads, ports and captures.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Number of upkeep intervals between two checks of all devices,
/// while events report changes.
///
/// A check makes some system calls for each port; a thousand idle ports should not cost that every
/// half second.
const TICKS_PER_DEVICE_CHECK: u32 = 20;

/// Pause between the event of a changed device and the check of its port.
const LINK_PAUSE: Duration = Duration::from_millis(2);

/// Minimum time between two publications of ports because of BFD.
const FLAP_PAUSE: Duration = Duration::from_millis(10);

/// Interval between two checks of the NIC.
const NIC_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the tasks.
///
/// No task waits for another task. Rules must expire while a port is being opened, and a request to
/// a thread that has ended may wait.
pub(crate) fn start(control: &Arc<ControlPlane>) -> [JoinHandle<()>; 8] {
    let (upkeep, threads, ports) = (Arc::clone(control), Arc::clone(control), Arc::clone(control));
    let (bonds, moved) = (Arc::clone(control), Arc::clone(control));
    let (admin, sessions) = (Arc::clone(control), Arc::clone(control));
    let loads = Arc::clone(control);
    [
        spawn_named("loads of packet threads", async move { watch_loads(&loads).await }),
        spawn_named("bonds", async move { watch_bonds(&bonds).await }),
        spawn_named("moved bonds", async move { send_for_moved_bonds(&moved).await }),
        spawn_named("states of controllers", async move { watch_controllers(&admin).await }),
        spawn_named("BFD", async move { watch_bfd(&sessions).await }),
        spawn_named("expiry of rules", async move { watch_upkeep(&upkeep).await }),
        spawn_named("packet threads and NIC", async move {
            let mut interval = upkeep_interval();
            loop {
                // The upkeep may wait for a reply of a panicked thread, until the next check of
                // threads.
                tokio::select! {
                    _ = interval.tick() => check_threads(&threads).await,
                    () = sleep(NIC_CHECK_INTERVAL), if threads.nic.front().is_some() => {}
                }
                check_nic(&threads).await;
            }
        }),
        spawn_named("ports", async move { watch_ports(&ports).await }),
    ]
}

/// Starts a task; the log names it if an iteration takes long.
fn spawn_named(name: &str, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(ControlTask::new(name, task))
}

/// Checks ports at intervals, and after each event of a device.
async fn watch_ports(control: &ControlPlane) {
    let mut events = link_events();
    let mut interval = upkeep_interval();
    let mut intervals = CheckIntervals::default();
    loop {
        let (cause, changed) = tokio::select! {
            _ = interval.tick() => {
                let changed = events.is_none().then_some(ChangedDevices::Any);
                (CheckCause::Interval, changed)
            }
            changed = next_change(events.as_ref()) => match changed {
                Ok(changed) => {
                    // The kernel may finish the change only after its first event.
                    sleep(LINK_PAUSE).await;
                    (CheckCause::Event, Some(changed))
                }
                Err(error) => {
                    // The system may lack memory for a moment.
                    debug!(
                        %error,
                        "ports: the link events of the kernel ended, subscribing again"
                    );
                    events = None;
                    (CheckCause::Event, Some(ChangedDevices::Any))
                }
            },
        };
        // Events name changed devices. All devices are also checked at intervals, in case
        // an event was lost.
        let scope = intervals.scope(cause, changed.clone());
        if events.is_none() && scope == CheckScope::Drivers {
            // The system may have descriptors and memory again.
            events = LinkEvents::subscribe().ok();
        }
        let structure = control.structure().await;
        structure.ports().check(&scope).await;
        structure.follow_link_speeds().await;
        if let Some(changed) = changed {
            let is_selected = |port: &BridgePort| {
                port.device.is_some_and(|device| changed.contains(device.index))
            };
            structure.ports().check_users(is_selected).await;
        }
    }
}

/// The cause of a check of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckCause {
    /// An upkeep interval has passed.
    Interval,
    /// The kernel has sent events of devices, or the events have ended.
    Event,
}

/// A count of upkeep intervals, by which all devices are checked.
///
/// Events do not count: with each new port, the kernel sends some.
#[derive(Debug, Default)]
struct CheckIntervals {
    /// Number of intervals since the last check of all devices.
    passed: u32,
}

impl CheckIntervals {
    /// Returns the scope of the next check, for devices that may have changed.
    fn scope(&mut self, cause: CheckCause, changed: Option<ChangedDevices>) -> CheckScope {
        if cause == CheckCause::Interval {
            self.passed = self.passed.wrapping_add(1);
            if self.passed.is_multiple_of(TICKS_PER_DEVICE_CHECK) {
                return CheckScope::Drivers;
            }
        }
        changed.map_or(CheckScope::Threads, CheckScope::Devices)
    }
}

/// Runs the periodic work of the control plane.
async fn watch_upkeep(control: &ControlPlane) {
    let mut interval = upkeep_interval();
    let (mut without_rules, mut training_failures) = (BTreeSet::new(), BTreeSet::new());
    loop {
        interval.tick().await;
        run_upkeep(control).await;
        control.upkeep_runs.fetch_add(1, Ordering::Relaxed);
        log_bridges_without_rules(control, &mut without_rules);
        log_failed_trainings(control.plane.counters(), &mut training_failures);
    }
}

/// Returns the timer of a periodic task.
///
/// The timers of all tasks expire together, so an idle switch wakes up once for all tasks.
fn upkeep_interval() -> Interval {
    let mut interval = interval(UPKEEP_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

/// Applies the delayed changes of bonds, and rebalances their buckets.
async fn watch_bonds(control: &ControlPlane) {
    let (plane, bridges) = (&control.plane, &control.bridges);
    loop {
        let due = bridges.lock().next_bond_change();
        let delay = due.map(|due| due.since(plane.now()));
        tokio::select! {
            () = bridges.changed_bonds().changed() => {}
            () = sleep(delay.unwrap_or_default()), if delay.is_some() => {}
        }
        if bridges.lock().rebalances(plane.now()) {
            plane.pull().await;
        }
        // If no change is due, the call publishes nothing and does not wake this task again.
        bridges.publish_ports();
    }
}

/// Sends learning packets for bonds that have begun to send on other members.
async fn send_for_moved_bonds(control: &ControlPlane) {
    let (plane, bridges) = (&control.plane, &control.bridges);
    loop {
        let moved = bridges.changed_bonds().take_moved().await;
        // A thread with the old version would learn a source address from a copy that the network
        // sends back.
        plane.adopted_newest().await;
        for (bridge, bond) in moved {
            send_learning_packets(plane, bridge, &bond).await;
        }
    }
}

/// Sets devices up or down as controllers have configured their ports.
async fn watch_controllers(control: &ControlPlane) {
    loop {
        let ports = control.bridges.admin_changes().take().await;
        control.bridges.follow_controllers(ports).await;
    }
}

/// Publishes ports of which the BFD session came up or went down.
///
/// Controllers are notified of these ports.
async fn watch_bfd(control: &ControlPlane) {
    let bridges = &control.bridges;
    loop {
        let ports = bridges.bfd().flapped().take().await;
        bridges.publish_ports();
        for (bridge, number) in ports {
            bridges.changed().add(bridge, number);
        }
        // The pause limits how often a faulty partner can change the tables.
        sleep(FLAP_PAUSE).await;
    }
}

/// Subscribes to device events.
///
/// Without events, all ports are checked at intervals.
fn link_events() -> Option<LinkEvents> {
    let events = LinkEvents::subscribe();
    if let Err(error) = &events {
        let after = UPKEEP_INTERVAL.as_millis();
        warn!(
            %error,
            "ports: the kernel sends no link events, so the switch notices changes of links after \
             up to {after} ms"
        );
    }
    events.ok()
}

/// Waits for the next event of a device; without a subscription, waits forever.
async fn next_change(events: Option<&LinkEvents>) -> io::Result<ChangedDevices> {
    match events {
        Some(events) => events.changed().await,
        None => std::future::pending().await,
    }
}

/// Does the periodic work of the control plane once.
///
/// The work expires rules, reclaims old versions, ends unread captures, and logs wrong cache
/// entries.
async fn run_upkeep(control: &ControlPlane) {
    let plane = &control.plane;
    // A pending count may include a hit that keeps a rule from expiring. So threads first report
    // their counts, and the time of the check is the time before these reports.
    let now = plane.now();
    plane.pull().await;
    let mut routers = Vec::new();
    let expire = |pipeline: &Pipeline| {
        let change = pipeline.expire(now);
        log_rules(pipeline, &change, "timeout");
        routers = RouterChange::of(pipeline, &change);
        Ok::<_, Infallible>(change)
    };
    let Ok(_) = plane.publisher().change(expire);
    control.router_log.log_changes(plane.pipeline(), &routers, now);
    control.router_log.log_summaries(now);
    control.bridges.reclaim(plane.version());
    control.captures.end_unread().await;
    log_differences(plane, &control.tracer());
}

/// Stops using threads that have panicked, and takes down ports without a receiver.
async fn check_threads(control: &ControlPlane) {
    let stopped = control.plane.reclaim();
    if stopped.listener {
        error!(
            "listener thread: the thread panicked, so controllers receive no packet-ins: \
             restart the switch"
        );
    }
    if stopped.offload {
        control.nic.lose_agent(stopped.vital.is_some());
    }
    for thread in &stopped.trainers {
        error!(
            "trainer of packet thread {thread}: the trainer panicked, so the thread searches \
             masks one by one: restart the switch to use the learned index again"
        );
    }
    if let Some(thread) = stopped.vital {
        error!("{thread}: the thread panicked, so all packet threads stop: restart the switch");
    } else {
        for thread in &stopped.packet {
            error!(
                "packet thread {thread}: the thread panicked, and the other threads continue: \
                 restart the switch"
            );
        }
    }
    control.structure().await.ports().take_down_cut_off(&stopped).await;
}

/// Closes the ports of a stale NIC, if this is configured.
async fn check_nic(control: &ControlPlane) {
    let Some(nic) = control.nic.front() else { return };
    let Some(reason) = nic.closes_ports() else { return };
    control.structure().await.ports().take_down_at_nic(&nic, reason).await;
}

/// Logs each bridge that receives packets and has no rules, once.
///
/// A bridge that fails open forwards without rules. A bridge is logged again after it had rules.
/// `logged` holds the bridges that were logged.
fn log_bridges_without_rules(control: &ControlPlane, logged: &mut BTreeSet<BridgeId>) {
    let pipeline = control.plane.pipeline();
    let has_rules = |id| pipeline.table_stats(id).iter().any(|table| table.rules_count > 0);
    let has_traffic = |bridge: &BridgeState| bridge.ports.values().any(BridgePort::has_received);
    let fails_open = |id| pipeline.settings(id).is_some_and(|settings| settings.fails_open);
    let drops = |bridge: &&BridgeState| !has_rules(bridge.id) && !fails_open(bridge.id);
    let bridges = control.bridges.lock();
    let without: Vec<_> = bridges.iter().filter(drops).collect();
    let all = without.iter().map(|bridge| bridge.id).collect();
    let busy = without.iter().filter(|bridge| has_traffic(bridge)).map(|bridge| bridge.id);
    for id in not_logged(logged, &all, busy) {
        if let Some(bridge) = without.iter().find(|bridge| bridge.id == id) {
            let name = &bridge.settings.name;
            warn!(
                "bridge {name}: the bridge has no rules, so every received packet is dropped: \
                 add a rule"
            );
        }
    }
}

/// Returns the bridges to log, and records them as logged.
///
/// `all` has the bridges without rules, and `busy` those of them that receive packets.
fn not_logged(
    logged: &mut BTreeSet<BridgeId>,
    all: &BTreeSet<BridgeId>,
    busy: impl Iterator<Item = BridgeId>,
) -> Vec<BridgeId> {
    logged.retain(|id| all.contains(id));
    busy.filter(|id| logged.insert(*id)).collect()
}

/// Logs why trainings of the learned indexes of tables fail, once for each cause.
fn log_failed_trainings(counters: &[Arc<ThreadCounters>], logged: &mut BTreeSet<TrainingFailure>) {
    for failure in new_training_failures(counters, logged) {
        match failure {
            TrainingFailure::Unindexable => warn!(
                "learned index: the index cannot hold the rules of a table, so tuple space search \
                 finds them; training is tried again after pauses"
            ),
            TrainingFailure::Panicked => error!(
                "learned index: the training for a table panicked, and is tried again after \
                 pauses: please report this bug"
            ),
            TrainingFailure::TrainerLost => error!(
                "learned index: tables are not trained any more, because the trainer thread \
                 panicked: restart the switch"
            ),
        }
    }
}

/// Returns the causes that are not logged yet, and adds them to `logged`.
fn new_training_failures(
    counters: &[Arc<ThreadCounters>],
    logged: &mut BTreeSet<TrainingFailure>,
) -> Vec<TrainingFailure> {
    let is_counted = |failure: TrainingFailure| {
        counters.iter().any(|own| own.table_trainings_failed[failure as usize].get() > 0)
    };
    let counted = TrainingFailure::ALL.into_iter().filter(|failure| is_counted(*failure));
    counted.filter(|failure| logged.insert(*failure)).collect()
}

/// Logs wrong results of cache entries.
///
/// The first wrong result is logged in full, the others as a number.
fn log_differences(plane: &DataPlane, tracer: &Tracer<'_>) {
    let found = plane.take_differences();
    let Some(CacheMismatch { cached, fresh }) = found.first() else { return };
    let bridge = BridgeId::new(u16::try_from(fresh.key.bridge()).unwrap_or_default());
    let fresh = tracer.explain_alone(fresh, bridge);
    let explained = cached.iter().map(|traversal| answer(&tracer.explain_alone(traversal, bridge)));
    let cached = explained.collect::<Vec<_>>().join(" | ");
    let count: u64 = plane.counters().iter().map(|counters| counters.differences.get()).sum();
    warn!(
        flow = fresh.flow,
        cached,
        tables = answer(&fresh),
        version = fresh.version,
        count,
        "cache entry: the result is wrong, because its actions differ from those of the tables; \
         the entry is dropped: please report this bug"
    );
}

/// Returns a trace as one line: rules by table, then actions.
fn answer(trace: &Trace) -> String {
    let rule = |visit: &TraceVisit| match &visit.rule {
        Some(rule) => {
            format!("{}. priority {}, cookie {}; ", visit.table, rule.priority, rule.cookie)
        }
        None => format!("{}. No match; ", visit.table),
    };
    let actions = if trace.actions.is_empty() { "drop".into() } else { trace.actions.join(",") };
    trace.visits.iter().map(rule).collect::<String>() + &actions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// New ports cause events, after which their devices alone are read.
    #[test]
    fn events_cause_no_check_of_all_devices() {
        let mut intervals = CheckIntervals::default();
        let named = |index: u32| ChangedDevices::Named(BTreeSet::from([index]));
        for passed in 1..=3 * TICKS_PER_DEVICE_CHECK {
            let scope = intervals.scope(CheckCause::Interval, None);
            let is_full = passed.is_multiple_of(TICKS_PER_DEVICE_CHECK);
            let expected = if is_full { CheckScope::Drivers } else { CheckScope::Threads };
            assert_eq!(scope, expected, "after {passed} intervals");
            for index in 0..7 {
                let scope = intervals.scope(CheckCause::Event, Some(named(index)));
                assert_eq!(scope, CheckScope::Devices(named(index)));
            }
        }
        // Without events of the kernel, each interval reads all devices.
        let scope = intervals.scope(CheckCause::Interval, Some(ChangedDevices::Any));
        assert_eq!(scope, CheckScope::Devices(ChangedDevices::Any));
    }

    #[test]
    fn a_bridge_without_rules_is_logged_once() {
        let mut logged = BTreeSet::new();
        let [one, two] = [1, 2].map(BridgeId::new);
        let mut next = |all: &[BridgeId], busy: &[BridgeId]| {
            let all = all.iter().copied().collect();
            not_logged(&mut logged, &all, busy.iter().copied())
        };
        assert_eq!(next(&[one, two], &[]), [], "no packets are lost");
        assert_eq!(next(&[one, two], &[one]), [one]);
        for _ in 0..3 {
            assert_eq!(next(&[one, two], &[one]), [], "nothing has changed");
        }
        assert_eq!(next(&[one, two], &[one, two]), [two]);
        assert_eq!(next(&[one], &[one]), [], "the other bridge has rules");
        assert_eq!(next(&[one, two], &[one, two]), [two], "its rules are gone again");
    }

    #[test]
    fn each_cause_of_failed_trainings_is_logged_once() {
        let (counters, mut logged) = (<[Arc<ThreadCounters>; 2]>::default(), BTreeSet::new());
        let mut next = || new_training_failures(&counters, &mut logged);
        assert_eq!(next(), []);
        let fail = |thread: usize, failure: TrainingFailure| {
            counters[thread].table_trainings_failed[failure as usize].add(1);
        };
        fail(0, TrainingFailure::Unindexable);
        assert_eq!(next(), [TrainingFailure::Unindexable]);
        fail(0, TrainingFailure::Unindexable);
        fail(1, TrainingFailure::Unindexable);
        fail(1, TrainingFailure::Panicked);
        assert_eq!(next(), [TrainingFailure::Panicked]);
        assert_eq!(next(), []);
    }
}
