//! Tests of a NIC with representors: packets that miss go to the switch.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shunt_datapath::{
    Packet, Pool, PortError, RxLoss, RxQueue, TxQueue,
    port::{
        Capabilities, FrameCopies, Port, PortCopies, PortCounters, Queues, RxReport,
        pair::{Pair, RING, pair},
    },
};
use shunt_flow::{FieldId, testing::PacketBuilder};
use shunt_gigaflow::ltm::{Next, Tag};
use shunt_nic::{NicDropReason, NicPortLosses};
use tokio::time::{sleep, timeout};

use crate::fixture::{NicFixture, REPRESENTORS, frame, rule, with_output};

#[tokio::test]
async fn miss_leaves_unchanged_by_representor_of_port() {
    let mut fixture = NicFixture::represented().await;
    let ttl = (FieldId::NwTtl, 9);
    fixture.insert(0, rule(0, &[(FieldId::EthType, 0x0800)], &[ttl], Next::Tag(Tag::new(5)))).await;
    let unparsed = vec![0; 60];
    for (end, representor) in REPRESENTORS.into_iter().enumerate() {
        for frame in [frame(), unparsed.clone()] {
            fixture.send(end, &frame);
            assert_eq!(fixture.receive(representor).await, frame);
        }
    }
    assert_eq!((fixture.traffic.represented(), fixture.traffic.handed_over()), (4, 0));
    assert_eq!(fixture.target.take_packets(), []);
}

#[tokio::test]
async fn a_packet_from_a_representor_bypasses_the_stages() {
    let mut fixture = NicFixture::represented().await;
    fixture.insert(0, with_output(1, rule(0, &[], &[(FieldId::NwTtl, 9)], Next::End))).await;
    let [first, second] = REPRESENTORS;
    fixture.send(second, &frame());
    assert_eq!(fixture.receive(1).await, frame());
    fixture.send(first, &frame());
    assert_eq!(fixture.receive(0).await, frame());
    assert_eq!((fixture.traffic.hits(), fixture.traffic.sent()), (0, 2));
}

#[tokio::test]
async fn a_hit_never_reaches_the_switch() {
    let mut fixture = NicFixture::represented().await;
    fixture.send(0, &frame());
    fixture.receive(REPRESENTORS[0]).await;
    fixture.insert(0, with_output(2, rule(0, &[(FieldId::InPort, 1)], &[], Next::End))).await;
    for _ in 0..3 {
        fixture.send(0, &frame());
        assert_eq!(fixture.receive(1).await, frame());
    }
    assert_eq!((fixture.traffic.hits(), fixture.traffic.represented()), (3, 1));
    assert_eq!(fixture.traffic.received(), 4);
}

/// Returns a frame of the flow with this number.
fn flow(number: u8) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, number]).udp(1000, 2000).build()
}

/// Adds a port to the NIC.
///
/// Returns the representor of the port with its queues, and the far end of the port.
fn add_port(fixture: &NicFixture, number: u16, threads: u16) -> (Box<dyn Port>, Vec<Queues>, Pair) {
    add_counted_port(fixture, number, threads, Arc::default())
}

/// Adds a port to the NIC, which counts the losses of the port in `losses`.
fn add_counted_port(
    fixture: &NicFixture,
    number: u16,
    threads: u16,
    losses: Arc<NicPortLosses>,
) -> (Box<dyn Port>, Vec<Queues>, Pair) {
    let (near, far) = pair(1, 50);
    let mut port = fixture.ports.represent(number, Box::new(near), 60, losses);
    let queues = port.split(threads).unwrap();
    (port, queues, far)
}

#[tokio::test]
async fn running_nic_adds_and_removes_port() {
    let mut fixture = NicFixture::new().await;
    for round in 0..3 {
        let (port, queues, mut far) = add_port(&fixture, 7, 1);
        assert!(port.link_up());
        let representor = fixture.add_end(queues.into_iter().next().unwrap());
        let end = fixture.add_end(far.split(1).unwrap().remove(0));
        fixture.send(end, &frame());
        assert_eq!(fixture.receive(representor).await, frame());
        fixture.send(representor, &frame());
        assert_eq!(fixture.receive(end).await, frame());
        if round == 0 {
            fixture
                .insert(0, with_output(7, rule(0, &[(FieldId::InPort, 1)], &[], Next::End)))
                .await;
        }
        fixture.send(0, &frame());
        assert_eq!(fixture.receive(end).await, frame(), "other ports reach the port");
        // The number 7 is taken while its port exists.
        let mut other = fixture.ports.represent(7, Box::new(pair(1, 80).0), 80, Arc::default());
        assert!(other.split(1).is_err());
        drop(port);
        assert!(!far.link_up(), "the NIC has closed it");
    }
}

/// The port is a pair, which copies only the packets that it sends.
#[tokio::test]
async fn a_packet_that_misses_is_copied_once_more() {
    let mut fixture = NicFixture::new().await;
    let (port, queues, mut far) = add_port(&fixture, 7, 1);
    let representor = fixture.add_end(queues.into_iter().next().unwrap());
    let end = fixture.add_end(far.split(1).unwrap().remove(0));
    let of = |count: u64| FrameCopies { frames: count, bytes: count * frame().len() as u64 };
    fixture.send(end, &frame());
    fixture.receive(representor).await;
    // The thread of the NIC counts a copy after the packet has left.
    let are = async |expected: PortCopies| {
        while port.copies() != expected {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let limit = Duration::from_secs(20);
    timeout(limit, are(PortCopies { rx: of(1), tx: of(0) })).await.unwrap();
    fixture.send(representor, &frame());
    fixture.receive(end).await;
    timeout(limit, are(PortCopies { rx: of(1), tx: of(2) })).await.unwrap();
}

#[tokio::test]
async fn flows_are_spread_over_queues_without_moving() {
    let mut fixture = NicFixture::new().await;
    let (_port, queues, mut far) = add_port(&fixture, 7, 4);
    let end = fixture.add_end(far.split(1).unwrap().remove(0));
    for number in (0..32).chain(0..32) {
        fixture.send(end, &flow(number));
    }
    let mut queues_of = vec![BTreeSet::new(); 32];
    let (mut came, mut burst) = (0, Vec::new());
    let mut queues = queues;
    while came < 64 {
        for (at, queue) in queues.iter_mut().enumerate() {
            let rx = queue.rx.as_mut().unwrap();
            rx.rx(&mut fixture.pool, &mut burst).unwrap();
            for packet in burst.drain(..) {
                let number = (0..32).find(|number| packet.frame() == flow(*number)).unwrap();
                queues_of[usize::from(number)].insert(at);
                came += 1;
                fixture.pool.put_back(packet);
            }
        }
        tokio::task::yield_now().await;
    }
    assert!(queues_of.iter().all(|queues| queues.len() == 1), "{queues_of:?}");
    let used: BTreeSet<usize> = queues_of.into_iter().flatten().collect();
    assert_eq!(used.len(), 4, "of 32 flows none is on a queue: {used:?}");
}

/// A port that fails when a packet is received for the first time.
struct FailingPort;

impl Port for FailingPort {
    fn capabilities(&self) -> Capabilities {
        pair(1, 1).0.capabilities()
    }

    fn split(&mut self, _: u16) -> Result<Vec<Queues>, PortError> {
        Ok(vec![Queues { rx: Some(Box::new(Self)), tx: Box::new(Self) }])
    }

    fn link_up(&self) -> bool {
        false
    }

    fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, 9]
    }

    fn copies(&self) -> PortCopies {
        PortCopies::default()
    }

    fn counters(&self) -> PortCounters {
        PortCounters { rx_dropped: 3, tx_dropped: 4 }
    }
}

impl RxQueue for FailingPort {
    fn rx(&mut self, _: &mut Pool, _: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        Err(PortError::DeviceGone { name: "the device".into() })
    }
}

impl TxQueue for FailingPort {
    fn tx(&mut self, _: &[Packet]) -> usize {
        0
    }

    fn flush(&mut self) {}
}

/// Waits until the descriptor of a queue is readable.
fn wait(rx: &dyn RxQueue) {
    let mut fds = [PollFd::new(rx.wait_fd().unwrap(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(20_000_u16)).unwrap(), 1, "nobody is woken");
}

#[tokio::test]
async fn a_failed_port_fails_only_its_representor() {
    let mut fixture = NicFixture::new().await;
    let mut port = fixture.ports.represent(7, Box::new(FailingPort), 60, Arc::default());
    let own = (port.link_up(), port.mac(), port.counters());
    assert_eq!(
        own,
        (false, [2, 0, 0, 0, 0, 9], FailingPort.counters()),
        "the representor has the state of the port"
    );
    let mut queues = port.split(1).unwrap().remove(0);
    let (rx, mut burst) = (queues.rx.as_mut().unwrap(), Vec::new());
    while rx.rx(&mut fixture.pool, &mut burst).is_ok() {
        wait(&**rx);
    }
    assert_eq!(fixture.traffic.ports_broken(), 1);
    fixture.send(0, &frame());
    assert_eq!(fixture.receive_punted().await.payload, frame());
    drop(port);
    let (_port, queues, mut far) = add_port(&fixture, 7, 1);
    let representor = fixture.add_end(queues.into_iter().next().unwrap());
    let end = fixture.add_end(far.split(1).unwrap().remove(0));
    fixture.send(end, &frame());
    assert_eq!(fixture.receive(representor).await, frame(), "the representor is reopened");
}

#[tokio::test]
async fn without_a_server_the_nic_runs_without_rules() {
    let mut fixture = NicFixture::represented().await;
    fixture.insert(0, with_output(2, rule(0, &[], &[], Next::End))).await;
    fixture.send(0, &frame());
    assert_eq!(fixture.receive(1).await, frame());
    fixture.stop_server().await;
    fixture.send(0, &frame());
    assert_eq!(fixture.receive(REPRESENTORS[0]).await, frame());
}

/// Tests that the threads of the NIC and of the switch wait for notifications.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packet_wakes_the_waiting_thread() {
    let fixture = NicFixture::new().await;
    let (port, queues, mut far) = add_port(&fixture, 7, 1);
    let mut far = far.split(1).unwrap().remove(0);
    let mut near = queues.into_iter().next().unwrap();
    tokio::task::spawn_blocking(move || {
        let mut pool = Pool::new();
        let mut burst = Vec::new();
        for number in 0..200 {
            let mut packet = pool.take(64, shunt_pipeline::DatapathPort::new(0)).unwrap();
            packet.frame_mut().fill(number);
            assert_eq!(far.tx.tx(std::slice::from_ref(&packet)), 1);
            far.tx.flush();
            pool.put_back(packet);
            let rx = near.rx.as_mut().unwrap();
            loop {
                rx.rx(&mut pool, &mut burst).unwrap();
                if let Some(packet) = burst.pop() {
                    assert!(packet.frame().iter().all(|byte| *byte == number));
                    pool.put_back(packet);
                    break;
                }
                wait(&**rx);
            }
        }
    })
    .await
    .unwrap();
    drop(port);
    drop(fixture);
}

/// Number of frames that overrun each queue of the NIC.
const OVERRUN: u64 = 2 * RING as u64;

/// Overruns a queue of the NIC with frames, and waits until the NIC has them all.
async fn overrun(fixture: &mut NicFixture, end: usize) {
    let before = fixture.traffic.received();
    let sending = async {
        for sent in 0..OVERRUN {
            fixture.send(end, &frame());
            // The NIC receives each frame, because few of them wait in its receive queue.
            while before + sent >= fixture.traffic.received() + 32 {
                sleep(Duration::from_millis(1)).await;
            }
        }
        while fixture.traffic.received() < before + OVERRUN {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), sending).await.unwrap();
}

/// Waits until two counters have an expected sum, and returns the counters.
async fn wait_for_sum(counters: impl Fn() -> (u64, u64), sum: u64) -> (u64, u64) {
    let waiting = async {
        loop {
            let (passed, lost) = counters();
            if passed + lost == sum {
                return (passed, lost);
            }
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), waiting).await.unwrap()
}

#[tokio::test]
async fn misses_beyond_the_representor_count_at_their_port() {
    let mut fixture = NicFixture::new().await;
    let losses = Arc::new(NicPortLosses::default());
    let (_port, _queues, mut far) = add_counted_port(&fixture, 7, 1, Arc::clone(&losses));
    let end = fixture.add_end(far.split(1).unwrap().remove(0));
    // Nobody receives from the representor.
    overrun(&mut fixture, end).await;
    let traffic = Arc::clone(&fixture.traffic);
    let counters = || (traffic.represented(), losses.dropped(NicDropReason::Representor));
    let (passed, lost) = wait_for_sum(counters, OVERRUN).await;
    assert!(passed > 0 && lost > 0, "{passed} passed, {lost} lost");
    assert_eq!(traffic.dropped(NicDropReason::Representor), lost);
    assert_eq!(losses.not_sent(), 0);
}

#[tokio::test]
async fn refused_packets_count_as_not_sent() {
    let mut fixture = NicFixture::new().await;
    let losses = Arc::new(NicPortLosses::default());
    let (_port, queues, _far) = add_counted_port(&fixture, 7, 1, Arc::clone(&losses));
    let representor = fixture.add_end(queues.into_iter().next().unwrap());
    // Nobody receives from the port.
    overrun(&mut fixture, representor).await;
    let traffic = Arc::clone(&fixture.traffic);
    let (sent, lost) = wait_for_sum(|| (traffic.sent(), losses.not_sent()), OVERRUN).await;
    assert!(sent > 0 && lost > 0, "{sent} sent, {lost} lost");
    assert_eq!(traffic.dropped(NicDropReason::Refused), lost);
    let dropped = NicDropReason::ALL.map(|reason| losses.dropped(reason));
    assert_eq!(dropped, [0; NicDropReason::ALL.len()], "the packets are in `not_sent` alone");
}

#[tokio::test]
async fn a_removed_port_sends_what_the_switch_sent() {
    const FRAMES: u64 = RING as u64 / 2;
    let mut fixture = NicFixture::new().await;
    for _ in 0..8 {
        let (before, losses) = (fixture.traffic.sent(), Arc::new(NicPortLosses::default()));
        let (port, queues, _far) = add_counted_port(&fixture, 7, 1, Arc::clone(&losses));
        let representor = fixture.add_end(queues.into_iter().next().unwrap());
        for _ in 0..FRAMES {
            fixture.send(representor, &frame());
        }
        drop(port);
        assert_eq!((fixture.traffic.sent() - before, losses.not_sent()), (FRAMES, 0));
    }
}

/// A port that refuses seven frames in each receive.
struct RefusingPort;

impl Port for RefusingPort {
    fn capabilities(&self) -> Capabilities {
        FailingPort.capabilities()
    }

    fn split(&mut self, _: u16) -> Result<Vec<Queues>, PortError> {
        Ok(vec![Queues { rx: Some(Box::new(Self)), tx: Box::new(FailingPort) }])
    }

    fn link_up(&self) -> bool {
        true
    }

    fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, 9]
    }

    fn copies(&self) -> PortCopies {
        PortCopies::default()
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

impl RxQueue for RefusingPort {
    fn rx(&mut self, _: &mut Pool, _: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        // The queue ends, so the NIC calls it once.
        Ok(RxReport {
            refused: 7,
            no_buffer: 2,
            ring_full: 1,
            exhausted: true,
            ..RxReport::default()
        })
    }
}

#[tokio::test]
async fn frames_that_nic_refuses_count_at_port() {
    let fixture = NicFixture::new().await;
    let losses = Arc::new(NicPortLosses::default());
    let port = Box::new(RefusingPort);
    let mut port = fixture.ports.represent(7, port, 60, Arc::clone(&losses));
    let _queues = port.split(1).unwrap();
    let lost = |reason| losses.not_received(reason);
    wait_for_sum(|| (lost(RxLoss::NoBuffer), lost(RxLoss::Refused)), 6).await;
    assert_eq!((lost(RxLoss::NoBuffer), lost(RxLoss::Refused)), (2, 4));
    wait_for_sum(|| (lost(RxLoss::RingFull), 0), 1).await;
}

/// The thread waits between the frames, and is in no iteration meanwhile.
#[tokio::test]
async fn the_packet_thread_notes_its_iterations() {
    let mut fixture = NicFixture::represented().await;
    fixture.send(0, &frame());
    assert_eq!(fixture.receive(REPRESENTORS[0]).await, frame());
    let is_noted = || {
        let all = shunt_thread_watch::watched_threads().into_iter();
        let mut own = all.filter(|own| &*own.name == "nic thread");
        own.any(|own| own.iterations.count() > 0 && own.iterations.current().is_none())
    };
    while !is_noted() {
        sleep(Duration::from_millis(1)).await;
    }
}
