//! Tests what keeps a packet thread awake: packets, counts, queues without a descriptor.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use shunt_datapath::{
    BURST, Command, Packet, Pool, PortError, RxQueue, ThreadConfig, Waker,
    command::{Repair, ThreadPort, Tuning},
    evict::owner::REPORTS_PER_WAKE,
    port::{Port as _, PortSpec, Queues, RxReport, TxQueue, open, pair::pair},
};
use shunt_flow::{Match, PortNo};
use shunt_pipeline::{DatapathPort, RuleFilter};

use super::waiting::{flow, per_flow};
use crate::harness::{BRIDGE, Switch, is_readable, output, rule};

/// Returns a switch with one packet thread that sends all packets to port 2.
fn switch(config: ThreadConfig) -> Switch {
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[rule(1, Match::any(), vec![output(2)])]);
    switch
}

#[test]
fn thread_that_holds_packet_does_not_sleep() {
    if !super::HAS_CACHE {
        return;
    }
    // Without translations, the packet waits, and the thread has no other work.
    let config = ThreadConfig { translations_per_iteration: 0, ..super::thread_config() };
    let mut switch = switch(config);
    assert!(switch.sleep(0));
    assert!(switch.send(0, 1, &[0x22; 60]));
    for _ in 0..10 {
        switch.run_iteration(0);
        assert_eq!(switch.threads[0].held(), 1);
        assert!(!switch.sleep(0), "nothing would wake it for the packet");
    }
    let ThreadConfig { max_idle, verify_one_in, .. } = config;
    let wildcard = config.caches.wildcard;
    let tuning = Tuning {
        max_idle,
        translations_per_iteration: 1,
        verify_one_in,
        repair: Repair::Off,
        wildcard,
        entries_max: ThreadConfig::default().caches.entries_max,
        sleep_max: ThreadConfig::default().sleep_max,
        vlan_limit: ThreadConfig::default().vlan_limit,
    };
    switch.controls[0].send(Command::Tune(tuning)).unwrap();
    switch.settle();
    assert_eq!(switch.receive(0, 2).len(), 1);
    assert!(switch.sleep(0));
}

/// A wake-up costs more than a report, so several reports share one wake-up.
#[test]
fn reports_wake_the_engine_together() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&[per_flow(1, 2)]);
    let waker = Arc::clone(switch.coordinator.waker());
    waker.unpark();
    waker.prepare_park();
    for number in 1..=REPORTS_PER_WAKE {
        assert!(!is_readable(waker.as_fd()), "{number} flows");
        assert!(switch.send(0, 1, &flow(u16::try_from(number).unwrap())));
        switch.run_iteration(0);
        switch.run_iteration(0);
    }
    assert!(is_readable(waker.as_fd()));
    assert_eq!(switch.coordinator.take_reports(), REPORTS_PER_WAKE);
}

#[test]
fn a_sleeping_thread_has_reported_its_counts() {
    let mut switch = switch(super::thread_config());
    let counted = |switch: &Switch| {
        let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
        rules[0].stats.totals().packets
    };
    assert!(switch.send(0, 1, &[0x22; 60]));
    switch.settle();
    for sent in 2..=5 {
        assert!(switch.send(0, 1, &[0x22; 60]));
        switch.run_iteration(0);
        // An iteration with packets credits no hits without a pull.
        assert_eq!(counted(&switch), sent - 1);
        assert!(!switch.sleep(0));
        switch.run_iteration(0);
        assert!(switch.sleep(0));
        assert_eq!(counted(&switch), sent);
    }
}

#[test]
fn sleeping_thread_has_reported_dead_entries() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&[per_flow(1, 2)]);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let flows = 200;
    for number in 0..flows {
        assert!(switch.send(0, 1, &flow(number)));
        switch.run_iteration(0);
        switch.receive(0, 2);
    }
    let change = switch.pipeline.apply(BRIDGE, &[rule(2, Match::any(), vec![])], switch.now);
    switch.change(&change.unwrap());
    // The entries are evicted at once, and each iteration reclaims a few of them.
    switch.run_iteration(0);
    assert_eq!(switch.counters(0).entries.get(), 0);
    assert!(!switch.sleep(0));
    while !switch.sleep(0) {
        switch.run_iteration(0);
    }
    assert_eq!(rules[0].stats.totals().packets, u64::from(flows));
}

#[test]
fn a_busy_polling_thread_never_sleeps() {
    let tuning = |sleep_max| Tuning {
        max_idle: ThreadConfig::default().max_idle,
        translations_per_iteration: 1,
        verify_one_in: 0,
        repair: Repair::Off,
        wildcard: super::thread_config().caches.wildcard,
        entries_max: ThreadConfig::default().caches.entries_max,
        sleep_max,
        vlan_limit: ThreadConfig::default().vlan_limit,
    };
    let mut switch = switch(super::thread_config());
    for (sleep_max, may_sleep) in [(Duration::ZERO, false), (Duration::from_millis(1), true)] {
        switch.controls[0].send(Command::Tune(tuning(sleep_max))).unwrap();
        switch.settle();
        assert_eq!(switch.sleep(0), may_sleep);
    }
}

/// A transmit queue that always has unsent packets.
#[derive(Debug)]
struct StuckQueue;

impl TxQueue for StuckQueue {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        packets.len()
    }

    fn flush(&mut self) {}

    fn is_pending(&self) -> bool {
        true
    }
}

/// No event reports that a device has room again, so the thread must check soon.
#[test]
fn a_thread_with_unsent_packets_sleeps_shortly() {
    let mut switch = switch(super::thread_config());
    let mut null = open(&PortSpec::Null, 0).unwrap();
    let number = DatapathPort::new(2);
    switch.controls[0].send(Command::RemovePort(number, Box::new(drop))).unwrap();
    let port = ThreadPort {
        port: number,
        bridge: BRIDGE,
        number: PortNo::new(2),
        capabilities: null.capabilities(),
        queues: Queues { tx: Box::new(StuckQueue), ..null.split(1).unwrap().remove(0) },
        traffic: Arc::default(),
    };
    switch.controls[0].send(Command::AddPort(Box::new(port))).unwrap();
    switch.settle();
    let before = switch.threads[0].sleep_max();
    assert!(switch.send(0, 1, &[0x22; 60]));
    switch.settle();
    let limit = Duration::from_millis(1);
    assert!(before > limit && switch.threads[0].sleep_max() <= limit);
}

#[test]
fn a_queue_without_wakeups_keeps_its_thread_awake() {
    let mut switch = Switch::new(1, 0, super::thread_config());
    assert!(switch.sleep(0));
    let (mut near, _far) = pair(1, 2);
    let number = DatapathPort::new(1);
    let port = ThreadPort {
        port: number,
        bridge: BRIDGE,
        number: PortNo::new(1),
        capabilities: near.capabilities(),
        queues: near.split(1).unwrap().remove(0),
        traffic: Arc::default(),
    };
    assert!(port.queues.rx.as_ref().is_some_and(|rx| rx.wait_fd().is_none()));
    switch.controls[0].send(Command::AddPort(Box::new(port))).unwrap();
    switch.run_iteration(0);
    assert!(!switch.sleep(0), "nothing would wake it for a packet");
    switch.controls[0].send(Command::RemovePort(number, Box::new(drop))).unwrap();
    switch.run_iteration(0);
    assert!(switch.sleep(0));
}

/// A receive queue that counts its polls; if it is readable, it has a burst.
struct CountingRx {
    polls: Arc<AtomicUsize>,
    doorbell: Arc<Waker>,
}

impl RxQueue for CountingRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        self.polls.fetch_add(1, Relaxed);
        let is_busy = self.doorbell.is_asleep();
        let packets = (0..BURST).map(|_| pool.take(60, DatapathPort::default()).unwrap());
        burst.extend(packets.take(if is_busy { BURST } else { 0 }));
        Ok(RxReport::default())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.as_fd())
    }
}

/// Adds ports that count their polls: first `idle` ports, then `busy` ports.
///
/// Returns the counters of the polls, in order.
fn counting_ports(switch: &mut Switch, idle: u32, busy: u32) -> Vec<Arc<AtomicUsize>> {
    let mut counts = Vec::new();
    for number in 100..100 + idle + busy {
        let (polls, doorbell) = (Arc::<AtomicUsize>::default(), Arc::new(Waker::new().unwrap()));
        if number >= 100 + idle {
            // No one clears this signal, so the descriptor stays readable.
            doorbell.prepare_park();
            doorbell.signal();
        }
        let queue = CountingRx { polls: Arc::clone(&polls), doorbell };
        let mut null = open(&PortSpec::Null, 0).unwrap();
        let port = ThreadPort {
            port: DatapathPort::new(number),
            bridge: BRIDGE,
            number: PortNo::new(number),
            capabilities: null.capabilities(),
            queues: Queues { rx: Some(Box::new(queue)), ..null.split(1).unwrap().remove(0) },
            traffic: Arc::default(),
        };
        switch.controls[0].send(Command::AddPort(Box::new(port))).unwrap();
        counts.push(polls);
    }
    // A thread takes a limited number of commands in each iteration.
    (0..10).for_each(|_| _ = switch.run_iteration(0));
    counts.iter().for_each(|polls| polls.store(0, Relaxed));
    counts
}

#[test]
fn an_idle_port_is_never_polled() {
    let mut switch = switch(super::thread_config());
    let polls = counting_ports(&mut switch, 100, 1);
    (0..1000).for_each(|_| _ = switch.run_iteration(0));
    let (busy, idle) = polls.split_last().unwrap();
    assert_eq!(idle.iter().map(|polls| polls.load(Relaxed)).sum::<usize>(), 0);
    assert_eq!(busy.load(Relaxed), 1000);
}

#[test]
fn a_hundred_busy_ports_share_a_thread_fairly() {
    let mut switch = switch(super::thread_config());
    let polls = counting_ports(&mut switch, 10, 100);
    let mut iterations = 0;
    for round in 1..=20 {
        while polls[10].load(Relaxed) < round * 5 {
            switch.run_iteration(0);
            iterations += 1;
        }
        let counts: Vec<_> = polls[10..].iter().map(|polls| polls.load(Relaxed)).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1, "some ports are polled {least} times, others {most}");
    }
    assert!(iterations > 100, "an iteration polls a part of the ports: {iterations}");
}

#[test]
fn a_removed_port_leaves_the_others_ready() {
    let mut switch = switch(super::thread_config());
    let polls = counting_ports(&mut switch, 3, 3);
    switch.run_iteration(0);
    // The last port takes the index of the removed port, also in the epoll set.
    for number in [100, 104, 103] {
        let remove = Command::RemovePort(DatapathPort::new(number), Box::new(drop));
        switch.controls[0].send(remove).unwrap();
        switch.run_iteration(0);
    }
    let before: Vec<_> = polls.iter().map(|polls| polls.load(Relaxed)).collect();
    (0..10).for_each(|_| _ = switch.run_iteration(0));
    let more: Vec<_> =
        polls.iter().zip(before).map(|(polls, before)| polls.load(Relaxed) - before).collect();
    assert_eq!(more, [0, 0, 0, 0, 0, 10], "one busy port is left");
    assert!(!switch.sleep(0));
}
