//! Tests egress queues on packet threads: the sent packets, their times, and drop counters.

use std::{sync::Arc, time::Duration};

use shunt_datapath::{
    Command, DropReason,
    egress::{
        PortQos,
        counters::QueueCounts,
        htb::{HtbOptions, HtbQueue},
        scheduler::EgressScheduler,
    },
};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match, testing::packet::PacketBuilder};
use shunt_pipeline::{Action, DatapathPort, QueueId};

use crate::harness::{Switch, output, rule};

/// Number of bits of a frame.
const FRAME: u64 = 800;

/// Number of frames that a full bucket allows at once.
///
/// The minimum burst is 12,112 bits, and the bucket may go below zero for the last frame.
const BURST_FRAMES: usize = 16;

/// The port with egress queues.
const PORT: u32 = 3;

/// Returns a frame of 100 bytes that contains `number`.
fn frame(destination: u16, number: u16) -> Vec<u8> {
    let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let [high, low] = number.to_be_bytes();
    let mut payload = vec![7; 56];
    payload.extend([high, low]);
    packet.udp(1000, destination).payload(payload).build()
}

fn frame_number(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[98], frame[99]])
}

fn match_of(destination: u16) -> Match {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    for (field, value) in
        [(FieldId::EthType, 0x800), (FieldId::IpProto, 17), (FieldId::UdpDst, destination.into())]
    {
        key.set_field(field, value);
        mask.add_field(field);
    }
    Match::new(&key, &mask)
}

/// Returns a switch that forwards to port 3; UDP port 5 goes to queue 5.
fn forwarding(threads: u16) -> Switch {
    let mut switch = Switch::new(threads, PORT, super::thread_config());
    let enqueue = vec![Action::SetQueue(5), output(PORT), Action::PopQueue { ends_enqueue: false }];
    switch.apply(&[rule(1, Match::any(), vec![output(PORT)]), rule(2, match_of(5), enqueue)]);
    switch
}

/// Sets egress queues on port 3: 100 frames per second, and `queue` as queue 5.
fn set_queues(switch: &mut Switch, queue: HtbQueue) -> Arc<EgressScheduler> {
    let options = HtbOptions { max_rate: 100 * FRAME, queues: [(QueueId::new(5), queue)].into() };
    set_queues_of(switch, PORT, &options)
}

/// Sets egress queues on a port.
fn set_queues_of(switch: &mut Switch, port: u32, options: &HtbOptions) -> Arc<EgressScheduler> {
    let scheduler = Arc::new(EgressScheduler::new(options, switch.now));
    set_qos(switch, port, Some(&PortQos::Queues(Arc::clone(&scheduler))));
    scheduler
}

fn set_qos(switch: &mut Switch, port: u32, qos: Option<&PortQos>) {
    for control in &mut switch.controls {
        control.send(Command::SetQos(DatapathPort::new(port), qos.cloned())).unwrap();
    }
    switch.settle();
}

/// Sends frames with these numbers to a packet thread.
fn send(switch: &mut Switch, thread: usize, destination: u16, numbers: std::ops::Range<u16>) {
    for number in numbers {
        assert!(switch.send(thread, 1, &frame(destination, number)));
        if number % 32 == 31 {
            switch.settle();
        }
    }
    settle(switch);
}

fn settle(switch: &mut Switch) {
    switch.settle();
    for thread in 0..switch.threads.len() {
        assert_eq!(switch.counters(thread).unaccounted(), 0);
    }
}

/// Advances the time in steps; returns the numbers of the frames that leave.
fn sent_within(switch: &mut Switch, thread: usize, steps: u32, step: Duration) -> Vec<u16> {
    let mut numbers = Vec::new();
    for _ in 0..steps {
        switch.wait(step);
        settle(switch);
        numbers.extend(switch.receive(thread, PORT).iter().map(|frame| frame_number(frame)));
    }
    numbers
}

fn received_numbers(switch: &mut Switch, thread: usize) -> Vec<u16> {
    switch.receive(thread, PORT).iter().map(|frame| frame_number(frame)).collect()
}

/// Time that passes between two looks at the sent packets.
const STEP: Duration = Duration::from_millis(10);

fn counts(scheduler: &EgressScheduler) -> Vec<(u32, QueueCounts)> {
    scheduler.counts().map(|(queue, counts)| (queue.number(), counts)).collect()
}

#[test]
fn a_queue_delays_packets_above_its_rate() {
    let mut switch = forwarding(1);
    let scheduler = set_queues(&mut switch, HtbQueue::DEFAULT);
    send(&mut switch, 0, 1, 0..40);
    assert_eq!(received_numbers(&mut switch, 0), (0..16).collect::<Vec<_>>());
    assert_eq!(switch.counters(0).held.get(), 24);
    assert!(switch.sleep(0), "the next frame is due in several milliseconds");
    let wait = switch.threads[0].sleep_max();
    assert!(wait > Duration::from_millis(1) && wait < STEP, "{wait:?}");
    assert_eq!(sent_within(&mut switch, 0, 5, STEP), [16, 17, 18, 19, 20]);
    let rest = sent_within(&mut switch, 0, 19, STEP);
    assert_eq!(rest, (21..40).collect::<Vec<_>>(), "in order");
    assert_eq!((switch.counters(0).held.get(), switch.counters(0).sent.get()), (0, 40));
    let expected = QueueCounts { tx_packets: 40, tx_bytes: 4000, tx_errors: 0 };
    assert_eq!(counts(&scheduler), [(0, expected), (5, QueueCounts::default())]);
}

#[test]
fn thread_stays_awake_before_frame_is_due() {
    let mut switch = forwarding(1);
    set_queues(&mut switch, HtbQueue::DEFAULT);
    send(&mut switch, 0, 1, 0..20);
    // The bucket is 608 bits below zero, which is 7.6 ms.
    switch.wait(Duration::from_millis(7));
    switch.run_iteration(0);
    assert!(!switch.sleep(0));
    assert_eq!(received_numbers(&mut switch, 0).len(), BURST_FRAMES);
}

#[test]
fn set_queue_selects_queue_with_own_rate() {
    let mut switch = forwarding(1);
    let urgent = HtbQueue { min_rate: 80 * FRAME, priority: 1, ..HtbQueue::DEFAULT };
    let scheduler = set_queues(&mut switch, urgent);
    send(&mut switch, 0, 1, 0..200);
    send(&mut switch, 0, 5, 1000..1200);
    received_numbers(&mut switch, 0);
    let numbers = sent_within(&mut switch, 0, 100, STEP);
    let of_queue = numbers.iter().filter(|number| **number >= 1000).count();
    assert!(numbers.len().abs_diff(100) < 3, "{}", numbers.len());
    // Queue 0 has the first priority for the rate that minimum rates leave; queue 5 also has a
    // burst.
    assert!((79..=98).contains(&of_queue), "{of_queue}");
    let [(0, default), (5, queue)] = counts(&scheduler)[..] else { panic!("two queues") };
    assert_eq!(default.tx_packets + queue.tx_packets, switch.counters(0).sent.get());
}

#[test]
fn a_full_queue_drops_and_counts() {
    let mut switch = forwarding(1);
    let scheduler = set_queues(&mut switch, HtbQueue::DEFAULT);
    send(&mut switch, 0, 5, 0..1100);
    assert_eq!(switch.counters(0).held.get(), 1000);
    let dropped = 1100 - 1000 - BURST_FRAMES as u64;
    let reason = DropReason::EgressQueueFull as usize;
    assert_eq!(switch.counters(0).dropped[reason].get(), dropped);
    assert_eq!(switch.traffic[&PORT][0].tx_dropped.get(DropReason::EgressQueueFull), dropped);
    assert_eq!(counts(&scheduler)[1].1.tx_errors, dropped);
}

#[test]
fn threads_share_the_rate_of_a_queue() {
    let mut switch = forwarding(2);
    set_queues(&mut switch, HtbQueue::DEFAULT);
    send(&mut switch, 0, 1, 0..40);
    send(&mut switch, 1, 1, 0..40);
    let mut sent =
        [received_numbers(&mut switch, 0), received_numbers(&mut switch, 1)].concat().len();
    assert_eq!(sent, BURST_FRAMES);
    for _ in 0..10 {
        sent += sent_within(&mut switch, 0, 1, STEP).len();
        sent += received_numbers(&mut switch, 1).len();
    }
    assert_eq!(sent, BURST_FRAMES + 10);
}

#[test]
fn no_queue_starves_behind_a_higher_priority() {
    let mut switch = forwarding(1);
    let lazy = HtbQueue { priority: 9, min_rate: 0, ..HtbQueue::DEFAULT };
    let scheduler = set_queues(&mut switch, lazy);
    send(&mut switch, 0, 5, 0..200);
    send(&mut switch, 0, 1, 0..400);
    sent_within(&mut switch, 0, 200, STEP);
    // The minimum rate of 12,000 bits per second for two seconds, and a burst.
    let sent = counts(&scheduler)[1].1.tx_packets;
    assert!((30..=30 + BURST_FRAMES as u64 + 1).contains(&sent), "{sent}");
}

#[test]
fn a_dead_thread_blocks_no_other_thread() {
    let mut switch = forwarding(2);
    let lazy = HtbQueue { priority: 9, ..HtbQueue::DEFAULT };
    set_queues(&mut switch, lazy);
    // The queue has the smallest possible minimum rate, and uses it up.
    send(&mut switch, 1, 5, 0..40);
    assert_eq!(received_numbers(&mut switch, 1).len(), BURST_FRAMES);
    send(&mut switch, 0, 1, 0..40);
    for _ in 0..10 {
        switch.wait(STEP);
        switch.run_iteration(1);
    }
    assert!(
        received_numbers(&mut switch, 1).is_empty(),
        "the other thread has more urgent packets"
    );
    drop(switch.threads.remove(0));
    switch.wait(STEP);
    switch.threads[0].run_iteration(switch.now);
    assert!(!received_numbers(&mut switch, 1).is_empty());
}

#[test]
fn packets_move_when_queues_are_replaced_or_removed() {
    let mut switch = forwarding(1);
    set_queues(&mut switch, HtbQueue::DEFAULT);
    send(&mut switch, 0, 5, 0..40);
    assert_eq!(received_numbers(&mut switch, 0).len(), BURST_FRAMES);
    let scheduler = set_queues(&mut switch, HtbQueue::DEFAULT);
    settle(&mut switch);
    let of_queue = counts(&scheduler)[1].1.tx_packets;
    assert_eq!((of_queue, switch.counters(0).held.get()), (BURST_FRAMES as u64, 8));
    set_qos(&mut switch, PORT, None);
    settle(&mut switch);
    assert_eq!(received_numbers(&mut switch, 0), (16..40).collect::<Vec<_>>(), "in order");
    assert_eq!(switch.counters(0).held.get(), 0);
    assert!(switch.sleep(0));
}

#[test]
fn a_removed_port_drops_its_waiting_packets() {
    let mut switch = forwarding(1);
    set_queues(&mut switch, HtbQueue::DEFAULT);
    send(&mut switch, 0, 1, 0..40);
    let remove = Command::RemovePort(DatapathPort::new(PORT), Box::new(|_| {}));
    switch.controls[0].send(remove).unwrap();
    settle(&mut switch);
    let dropped = switch.counters(0).dropped[DropReason::PortRemoved as usize].get();
    assert_eq!((dropped, switch.counters(0).held.get()), (24, 0));
}

/// A rate that the test never exceeds.
const FAST: u64 = 10_000_000_000;

#[test]
fn packets_within_the_rate_leave_in_their_iteration() {
    for destination in [1, 5] {
        let mut switch = Switch::new(1, 6, super::thread_config());
        let enqueue =
            vec![Action::SetQueue(5), output(PORT), Action::PopQueue { ends_enqueue: false }];
        switch.apply(&[rule(1, Match::any(), vec![output(PORT)]), rule(2, match_of(5), enqueue)]);
        let queues = [(QueueId::new(5), HtbQueue::DEFAULT)].into();
        set_queues_of(&mut switch, PORT, &HtbOptions { max_rate: FAST, queues });
        let ingress = [1, 2, 4, 5, 6];
        for port in ingress {
            assert!(switch.send(0, port, &frame(destination, 0)));
            settle(&mut switch);
        }
        received_numbers(&mut switch, 0);
        switch.wait(STEP);
        for (port, number) in ingress.into_iter().flat_map(|port| (0..32).map(move |n| (port, n))) {
            assert!(switch.send(0, port, &frame(destination, number)));
        }
        switch.run_iteration(0);
        assert_eq!(
            received_numbers(&mut switch, 0).len(),
            32 * ingress.len(),
            "UDP port {destination}"
        );
        assert_eq!(switch.counters(0).held.get(), 0);
    }
}

#[test]
fn a_congested_port_leaves_buffers_to_other_ports() {
    let mut switch = Switch::new(1, 4, super::thread_config());
    let enqueue = |queue| {
        vec![Action::SetQueue(queue), output(PORT), Action::PopQueue { ends_enqueue: false }]
    };
    let rules = (1..=9_u16).map(|queue| rule(2, match_of(queue), enqueue(queue.into())));
    switch.apply(&rules.chain([rule(1, Match::any(), vec![output(4)])]).collect::<Vec<_>>());
    let queues = (1..=9).map(|queue| (QueueId::new(queue), HtbQueue::DEFAULT)).collect();
    let slow = set_queues_of(&mut switch, PORT, &HtbOptions { max_rate: FRAME, queues });
    set_queues_of(&mut switch, 4, &HtbOptions { max_rate: FAST, queues: [].into() });
    for destination in 1..=8 {
        send(&mut switch, 0, destination, 0..1100);
    }
    let held = switch.counters(0).held.get();
    assert!((6000..7000).contains(&held), "nearly all buffers that packets may keep: {held}");
    // Sends a new flow to the other port, and a new flow to an empty queue.
    let drops =
        |switch: &Switch| switch.counters(0).dropped[DropReason::EgressQueueFull as usize].get();
    let before = drops(&switch);
    for number in 0..32 {
        assert!(switch.send(0, 1, &frame(100, number)));
    }
    settle(&mut switch);
    let sent: Vec<_> = switch.receive(0, 4).iter().map(|frame| frame_number(frame)).collect();
    assert_eq!(sent, (0..32).collect::<Vec<_>>());
    send(&mut switch, 0, 9, 0..31);
    assert_eq!((drops(&switch), switch.counters(0).held.get()), (before, held + 31));
    let errors: Vec<_> = counts(&slow).iter().map(|(_, counts)| counts.tx_errors).collect();
    assert_eq!(errors.iter().sum::<u64>(), before);
    assert!(errors[1..9].iter().all(|errors| *errors > 0), "{errors:?}");
}
