//! Tests of the sender with real sockets, each in its own network namespace.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use tokio::runtime::Builder;

use super::*;
use crate::exports::{
    collector::TemplateUse,
    totals::{ExportCounts, ExportTotals},
};

/// Runs a test in its own network namespace, with the device `d0`.
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn in_namespace<T: Future<Output = ()>>(test: impl FnOnce() -> T + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
            return;
        }
        ip("link add d0 type veth peer name d1");
        ip("link set d1 up");
        ip("link set d0 up");
        Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    });
    thread.join().unwrap();
}

/// Runs a command of `ip`.
fn ip(line: &str) {
    assert!(is_done("ip", line), "{line}");
}

fn is_done(program: &str, line: &str) -> bool {
    Command::new(program).args(line.split(' ')).status().unwrap().success()
}

/// Returns the bytes that a device of the namespace has received.
fn received_bytes(device: &str) -> usize {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let counters =
        text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    counters.unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// The address of a collector that does not exist.
const REMOTE: &str = "10.9.0.2:6343";

/// The address of a collector on the same host.
const LOCAL: &str = "127.0.0.1:6343";

/// A sender without its task: the test runs the steps of the task.
struct SenderFixture {
    sender: CollectorSender,
    collector: Arc<Collector>,
    totals: Arc<ExportTotals>,
}

impl SenderFixture {
    fn new(address: &str, templates: TemplateUse) -> Self {
        let (totals, owner) = (Arc::default(), "bridge br0: sFlow");
        let address = address.parse().unwrap();
        let collector = Collector::new(address, owner, templates, &totals, &Arc::default());
        let collector = Arc::new(collector);
        let sender = CollectorSender::new(Arc::clone(&collector));
        Self { sender, collector, totals }
    }

    /// Sends a datagram to the collector.
    fn push(&self, first: u8) {
        self.collector.push(&datagram(first));
    }

    /// Pushes a datagram, and sends it if the sender has a socket.
    async fn send(&mut self) {
        self.push(0);
        if self.collector.has_room().is_some() {
            assert!(self.sender.send_some().await);
        }
    }

    /// Returns the numbers of sent and lost datagrams,
    /// and whether the collector has a problem.
    fn state(&self) -> (u64, u64, bool) {
        let ExportCounts { sent, lost, records_lost, .. } = self.totals.counts();
        assert_eq!(records_lost, 3 * lost);
        (sent, lost, self.collector.problem().is_some())
    }

    /// Returns the local address of the socket.
    fn local(&self) -> String {
        self.collector.local().unwrap().to_string()
    }
}

/// Returns a datagram with a first byte.
fn datagram(first: u8) -> Arc<ExportDatagram> {
    Arc::new(ExportDatagram { bytes: vec![first], records: 3 })
}

#[test]
fn a_socket_follows_the_address_of_the_host() {
    in_namespace(|| async {
        ip("addr add 10.9.0.1/24 dev d0");
        let mut own = SenderFixture::new(REMOTE, TemplateUse::Never);
        own.send().await;
        assert_eq!((own.local().as_str(), own.state()), ("10.9.0.1", (1, 0, false)));
        // A refresh finds the new local address before a datagram is lost.
        ip("addr del 10.9.0.1/24 dev d0");
        ip("addr add 10.9.0.11/24 dev d0");
        own.sender.refresh();
        own.send().await;
        assert_eq!((own.local().as_str(), own.state()), ("10.9.0.11", (2, 0, false)));
        // While the local address stays, the socket and its port stay.
        let port =
            |own: &SenderFixture| own.sender.socket.as_ref().unwrap().local_addr().unwrap().port();
        let before = port(&own);
        own.sender.refresh();
        assert_eq!(port(&own), before);
    });
}

#[test]
fn a_refused_datagram_opens_the_socket_again() {
    in_namespace(|| async {
        ip("addr add 10.9.0.1/24 dev d0");
        let mut own = SenderFixture::new(REMOTE, TemplateUse::Never);
        ip("addr del 10.9.0.1/24 dev d0");
        ip("addr add 10.9.0.11/24 dev d0");
        own.push(0);
        // The datagrams after the refused datagram are not lost.
        own.push(0);
        assert!(own.sender.send_some().await);
        assert_eq!((own.local().as_str(), own.state()), ("10.9.0.11", (0, 1, true)));
        let fault = own.collector.problem().unwrap();
        assert!(fault.starts_with("collector 10.9.0.2:6343 cannot be reached: "), "{fault}");
        // The fault ends only when a datagram was sent.
        assert!(own.sender.send_some().await);
        assert_eq!(own.state(), (1, 1, false));
    });
}

#[test]
fn a_collector_without_a_route_is_tried_again() {
    in_namespace(|| async {
        let mut own = SenderFixture::new(REMOTE, TemplateUse::Never);
        for lost in 1..3 {
            own.sender.refresh();
            own.send().await;
            assert_eq!((own.state(), own.collector.local()), ((0, lost, true), None));
        }
        let fault = own.collector.problem().unwrap();
        assert!(fault.contains("Network is unreachable"), "{fault}");
        ip("addr add 10.9.0.1/24 dev d0");
        own.sender.refresh();
        assert_eq!(own.state(), (0, 2, false));
    });
}

#[test]
fn each_socket_begins_with_templates() {
    in_namespace(|| async {
        let mut own = SenderFixture::new(LOCAL, TemplateUse::EachSocket);
        own.send().await;
        assert_eq!(own.state(), (0, 1, true));
        ip("link set lo up");
        let listener = StdUdpSocket::bind(LOCAL).unwrap();
        own.sender.refresh();
        own.push(1);
        assert!(own.collector.needs_templates() && own.collector.take().is_none());
        own.collector.push_templates(&[datagram(8), datagram(9)]);
        // The socket has sent templates before, so these templates wait behind the datagram.
        own.collector.push_templates(&[datagram(7)]);
        assert!(own.sender.send_some().await);
        let mut received = [0; 4];
        received.iter_mut().for_each(|first| {
            listener.recv(std::slice::from_mut(first)).unwrap();
        });
        assert_eq!((received, own.state()), ([8, 9, 1, 7], (4, 1, false)));
    });
}

#[test]
fn a_collector_that_starts_later_gets_templates() {
    in_namespace(|| async {
        ip("link set lo up");
        let mut own = SenderFixture::new(LOCAL, TemplateUse::EachSocket);
        own.collector.push_templates(&[datagram(8)]);
        while own.collector.problem().is_none() {
            own.send().await;
        }
        let problem = own.collector.problem().unwrap();
        assert!(problem.contains("refuses datagrams"), "{problem}");
        let _listener = StdUdpSocket::bind(LOCAL).unwrap();
        let mut templates = 0;
        while own.collector.problem().is_some() {
            own.send().await;
            own.collector.check_refusal();
            if own.collector.needs_templates() {
                templates += 1;
                own.collector.push_templates(&[datagram(8)]);
            }
        }
        assert!(templates > 0);
    });
}

/// A host reports only some of the datagrams that it refuses.
#[test]
fn a_refusal_stays_while_some_datagrams_are_refused() {
    in_namespace(|| async {
        ip("link set lo up");
        let _listener = StdUdpSocket::bind(LOCAL).unwrap();
        let own = SenderFixture::new(LOCAL, TemplateUse::EachSocket);
        own.collector.push_templates(&[datagram(8)]);
        for _ in 0..20 {
            own.collector.note_refused();
            own.collector.note_accepted();
            assert!(!own.collector.needs_templates(), "once a second");
            own.collector.check_refusal();
            assert!(own.collector.problem().is_some() && own.collector.needs_templates());
            own.collector.push_templates(&[datagram(8)]);
        }
        // A check without sent datagrams proves nothing.
        (0..20).for_each(|_| own.collector.check_refusal());
        assert!(own.collector.problem().is_some());
        for _ in 0..3 {
            own.collector.note_accepted();
            own.collector.check_refusal();
        }
        assert_eq!(own.collector.problem(), None);
    });
}

/// With steady traffic, an overflow ends although the queue is never empty.
#[test]
fn an_overflow_ends_when_nothing_is_lost() {
    in_namespace(|| async {
        ip("link set lo up");
        let own = SenderFixture::new(LOCAL, TemplateUse::Never);
        for _ in 0..8192 + 1 {
            own.push(0);
        }
        own.collector.log_overflow();
        assert!(own.collector.problem().is_some());
        own.collector.take().unwrap();
        for _ in 0..9 {
            own.collector.log_overflow();
        }
        assert!(own.collector.problem().is_some());
        own.push(0);
        own.collector.log_overflow();
        assert_eq!(own.collector.problem(), None);
    });
}

/// Sends more datagrams than the send buffer holds, faster than the link.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn a_slow_link_loses_no_datagram() {
    /// Number of datagrams that the test sends.
    const DATAGRAMS: usize = 2000;
    in_namespace(|| async {
        ip("addr add 10.9.0.1/24 dev d0");
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev d0");
        if !is_done("tc", "qdisc add dev d0 root tbf rate 50mbit burst 20kb limit 10mb") {
            eprintln!("SKIPPED: needs tc and the queueing discipline tbf");
            return;
        }
        let SenderFixture { sender, collector, totals } =
            SenderFixture::new(REMOTE, TemplateUse::Never);
        let datagram = Arc::new(ExportDatagram { bytes: vec![7; 1400], records: 3 });
        (0..DATAGRAMS).for_each(|_| collector.push(&datagram));
        collector.close();
        sender.run().await;
        let ExportCounts { sent, lost, .. } = totals.counts();
        assert_eq!((sent, lost), (DATAGRAMS as u64, 0));
        // The size includes headers of UDP, IPv4 and Ethernet. Frames of other protocols are
        // shorter than a datagram.
        let expected = DATAGRAMS * (1400 + 8 + 20 + 14);
        for _ in 0..1000 {
            if received_bytes("d1") >= expected {
                break;
            }
            // Some datagrams are still in the queue of the network device.
            sleep(Duration::from_millis(10)).await;
        }
        assert!(received_bytes("d1") >= expected, "{} of {expected}", received_bytes("d1"));
    });
}

#[test]
fn bounded_datagrams_are_sent_at_end() {
    in_namespace(|| async {
        ip("link set lo up");
        let _listener = StdUdpSocket::bind(LOCAL).unwrap();
        let own = SenderFixture::new(LOCAL, TemplateUse::Never);
        assert_eq!(own.collector.has_room(), Some(true));
        for _ in 0..8192 + 3 {
            own.push(0);
        }
        assert_eq!((own.collector.has_room(), own.state()), (Some(false), (0, 3, true)));
        let problem = own.collector.problem().unwrap();
        assert!(problem.contains("the send buffer is full"), "{problem}");
        own.collector.close();
        let SenderFixture { sender, collector, totals } = own;
        sender.run().await;
        let ExportCounts { sent, lost, .. } = totals.counts();
        assert_eq!((sent, lost, collector.has_room()), (8192, 3, Some(true)));
    });
}
