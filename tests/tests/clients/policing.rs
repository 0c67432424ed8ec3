//! Policing of real frames, configured by `ovs-vsctl`.

use std::ops::RangeInclusive;

use shunt_tests::{
    daemon::{Daemon, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip},
};

use crate::vsctl::{DaemonFixture, show};

/// Number of pings in a round.
const PINGS: u64 = 50;

/// Pings that pass with a burst of twenty.
///
/// One more frame passes in eight seconds, even on a slow host.
const PASSED: RangeInclusive<u64> = 20..=25;

/// Two hosts: pings go from the first to the second.
struct Hosts {
    a: Namespace,
    b: Namespace,
}

/// Connects the hosts with the ports `p1` and `p2` of a switch in `middle`.
fn hosts(middle: &Namespace) -> Option<Hosts> {
    let [a, b] = [(); 2].map(|()| namespace_or_skip("police"));
    let (a, b) = (a?, b?);
    let hosts = Hosts { a, b };
    connect(&hosts.b, middle, "p2", [2, 1]);
    hosts.connect_first(middle);
    Some(hosts)
}

/// Connects a host to the bridge in `middle`, and gives it its addresses.
///
/// `own` and `other` are the last bytes of the addresses of both hosts.
fn connect(host: &Namespace, middle: &Namespace, port: &str, [own, other]: [u8; 2]) {
    host.connect("eth0", middle, port);
    let mac = |number| format!("02:00:00:00:00:0{number}");
    host.run("ip", &["link", "set", "eth0", "address", &mac(own)]);
    host.run("ip", &["addr", "add", &format!("10.68.1.{own}/24"), "dev", "eth0"]);
    // Only the pings take tokens.
    let peer = format!("10.68.1.{other}");
    host.run("ip", &["neigh", "replace", &peer, "lladdr", &mac(other), "dev", "eth0"]);
}

impl Hosts {
    /// Connects the first host, also again after [`Self::unplug_first`].
    fn connect_first(&self, middle: &Namespace) {
        connect(&self.a, middle, "p1", [1, 2]);
    }

    /// Deletes the device of the first host, and thus the device of `p1`.
    fn unplug_first(&self) {
        self.a.run("ip", &["link", "delete", "eth0"]);
    }

    /// Sends all pings together, and returns the number of pings that arrive.
    ///
    /// The frames of the pings have 1000 bytes.
    fn arrived_pings(&self, daemon: &Daemon) -> u64 {
        let policed =
            |daemon| count_dropped(daemon, "rx_policed") + count_dropped(daemon, "egress_policed");
        let before = (self.b.echo_requests(), policed(daemon));
        let count = PINGS.to_string();
        let arguments = ["-q", "-s", "958", "-l", &count, "-c", &count, "-W", "1", "10.68.1.2"];
        let _ = output(self.a.command("ping").args(arguments));
        let arrived = || self.b.echo_requests() - before.0;
        assert!(wait_until(|| arrived() + policed(daemon) - before.1 == PINGS), "{}", arrived());
        arrived()
    }
}

/// Returns the number of dropped packets for a reason, from `shuntctl drops`.
fn count_dropped(daemon: &Daemon, reason: &str) -> u64 {
    let drops = text(&daemon.shuntctl(&["drops"]));
    let line = drops.lines().find(|line| line.starts_with(&format!("dropped: {reason} ")));
    let count = line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
    count.unwrap_or_default()
}

#[test]
fn vsctl_limits_the_pings_of_a_port() {
    for fixture in DaemonFixture::both("police") {
        let Some(hosts) = hosts(&fixture.namespace) else { return };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p1 -- add-port br0 p2");
        assert_eq!(hosts.arrived_pings(&daemon), PINGS);
        // A burst of twenty frames passes, and one frame in eight seconds.
        fixture.done("set interface p1 ingress_policing_rate=1 ingress_policing_burst=160");
        let limits = "up, ingress_policing_burst=160 ingress_policing_rate=1)";
        assert!(show(&daemon).contains(limits), "{}", show(&daemon));
        let arrived = hosts.arrived_pings(&daemon);
        assert!(PASSED.contains(&arrived), "{arrived} frames passed");
        let dropped = (PINGS - arrived).to_string();
        assert!(
            wait_until(|| fixture.done("get interface p1 statistics:rx_dropped") == dropped),
            "{}",
            fixture.done("get interface p1 statistics")
        );
        fixture.done("set interface p1 ingress_policing_rate=0");
        assert_eq!(hosts.arrived_pings(&daemon), PINGS);
    }
}

#[test]
fn a_port_that_is_opened_has_its_limit() {
    for fixture in DaemonFixture::both("police") {
        let Some(hosts) = hosts(&fixture.namespace) else { return };
        let daemon = fixture.start();
        fixture.done(
            "add-br br0 -- add-port br0 p2 -- add-port br0 p1 \
             -- set interface p1 ingress_policing_rate=1 ingress_policing_burst=160",
        );
        let arrived = hosts.arrived_pings(&daemon);
        assert!(PASSED.contains(&arrived), "{arrived} frames passed");

        let is_open = || show(&daemon).contains("up, ingress_policing_burst=160");
        hosts.unplug_first();
        assert!(wait_until(|| !is_open()), "{}", show(&daemon));
        hosts.connect_first(&fixture.namespace);
        assert!(wait_until(is_open), "{}", show(&daemon));
        let arrived = hosts.arrived_pings(&daemon);
        assert!(arrived < PINGS, "{arrived} frames passed");
    }
}

#[test]
fn vsctl_shows_why_a_port_cannot_be_limited() {
    for fixture in DaemonFixture::both("police") {
        let _daemon = fixture.start();
        fixture.done("add-br br0 -- set interface br0 ingress_policing_rate=5");
        let error = || fixture.done("get interface br0 error");
        assert!(error().contains("have no ingress policing"), "{}", error());
        fixture.done("set interface br0 ingress_policing_rate=0");
        assert_eq!(error(), "[]");
    }
}

#[test]
fn vsctl_sets_an_egress_policer() {
    for fixture in DaemonFixture::both("police") {
        let Some(hosts) = hosts(&fixture.namespace) else { return };
        let daemon = fixture.start();
        // A burst of twenty frames without their Ethernet headers passes, and one frame in eight
        // seconds.
        fixture.done(
            "add-br br0 -- add-port br0 p1 -- add-port br0 p2 -- set port p2 qos=@q \
             -- --id=@q create qos type=egress-policer other_config:cir=123 other_config:cbs=19720",
        );
        let qos = fixture.done("get port p2 qos");
        let shown = text(&daemon.ovs_appctl(&["qos/show", "p2"]));
        assert_eq!(shown, "QoS: p2 egress-policer\ncbs: 19720\ncir: 123\n");
        let arrived = hosts.arrived_pings(&daemon);
        assert!(PASSED.contains(&arrived), "{arrived} frames passed");
        let lost = (PINGS - arrived).to_string();
        assert!(
            wait_until(|| fixture.done("get interface p2 statistics:tx_dropped") == lost),
            "{}",
            fixture.done("get interface p2 statistics")
        );
        fixture.done(&format!("set qos {qos} type=linux-hfsc"));
        let error = || fixture.done("get interface p2 error");
        assert!(error().contains("QoS type linux-hfsc is not supported"), "{}", error());
        fixture.done("clear port p2 qos");
        assert_eq!(error(), "[]");
        assert_eq!(hosts.arrived_pings(&daemon), PINGS);
        fixture.done(&format!("set qos {qos} type=egress-policer -- set port p2 qos={qos}"));
        let arrived = hosts.arrived_pings(&daemon);
        assert!(PASSED.contains(&arrived), "{arrived} frames passed by a limit set at run time");
    }
}

/// A queue of eight seconds for each frame delays most pings, and loses none.
#[test]
fn vsctl_sets_queues() {
    for fixture in DaemonFixture::both("police") {
        let Some(hosts) = hosts(&fixture.namespace) else { return };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p1 -- add-port br0 p2");
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,icmp,actions=set_queue:5,normal"]));
        fixture.done(
            "--id=@q create qos type=linux-htb other_config:max-rate=100000 queues:5=@five \
             -- --id=@five create queue other_config:max-rate=1000 other_config:burst=160000 \
             other_config:priority=3 -- set port p2 qos=@q",
        );
        let shown = || text(&daemon.ovs_appctl(&["qos/show", "p2"]));
        let head = "QoS: p2 linux-htb\nmax-rate: 100000\n\nDefault:\n  max-rate: 100000\n";
        assert!(shown().starts_with(head), "{}", shown());
        let queue = "Queue 5:\n  burst: 160000\n  max-rate: 1000\n  min-rate: 0\n  priority: 3\n";
        assert!(shown().contains(queue), "{}", shown());
        let config = text(&daemon.ovs_ofctl("br0", "queue-get-config", &["p2"]));
        assert!(config.contains("min_rate:0.0%") && config.contains("max_rate:1.0%"), "{config}");
        let before = hosts.b.echo_requests();
        let count = PINGS.to_string();
        let arguments = ["-q", "-s", "958", "-l", &count, "-c", &count, "-W", "1", "10.68.1.2"];
        let _ = output(hosts.a.command("ping").args(arguments));
        let sent = || pings_of_queue(&daemon);
        assert!(wait_until(|| sent() >= 2), "{}", shown());
        assert!(sent() <= *PASSED.end(), "{}", shown());
        assert_eq!(count_dropped(&daemon, "egress_queue_full"), 0);
        fixture.done("clear port p2 qos");
        let arrived = || hosts.b.echo_requests() - before;
        assert!(wait_until(|| arrived() == PINGS), "{} pings arrived", arrived());
    }
}

/// An invalid value has a reason in the row and in the log, and the limit remains.
#[test]
fn wrong_qos_row_keeps_limit_in_force() {
    for fixture in DaemonFixture::both("police") {
        let daemon = fixture.start();
        fixture.done(
            "add-br br0 -- add-port br0 p1 -- set interface p1 type=null -- set port p1 qos=@q \
             -- --id=@q create qos type=linux-htb other_config:max-rate=50000000 queues:5=@five \
             -- --id=@five create queue other_config:min-rate=20000000",
        );
        let qos = fixture.done("get port p1 qos");
        let queue = fixture.done("--bare --columns=_uuid list queue");
        let shown = || text(&daemon.ovs_appctl(&["qos/show", "p1"]));
        let before = shown();
        assert!(before.contains("max-rate: 50000000\n"), "{before}");
        for (row, wrong, right, reason) in [
            (
                format!("qos {qos}"),
                "other_config:max-rate=10Mbit",
                "other_config:max-rate=50000000",
                "other_config:max-rate is `10Mbit`: use a number without a unit",
            ),
            (format!("qos {qos}"), "type=linux-hfsc", "type=linux-htb", "linux-hfsc"),
            (
                format!("queue {queue}"),
                "other_config:min-rate=-5",
                "other_config:min-rate=20000000",
                "queue 5: other_config:min-rate is `-5`",
            ),
            (format!("queue {queue}"), "dscp=10", "dscp=[]", "dscp is not supported"),
        ] {
            fixture.done(&format!("set {row} {wrong}"));
            let error = fixture.done("get interface p1 error");
            assert!(error.contains(reason), "{error}");
            assert_eq!(shown(), before);
            let log = daemon.log();
            assert_eq!(log.lines().filter(|line| line.contains(reason)).count(), 1, "{log}");
            fixture.done(&format!("set {row} {right}"));
            assert_eq!(fixture.done("get interface p1 error"), "[]");
            assert_eq!(shown(), before);
        }
    }
}

/// As in Open vSwitch, without a rate of the port,
/// queues have the rate of the link.
#[test]
fn port_without_rate_has_that_of_link() {
    for fixture in DaemonFixture::both("police") {
        let daemon = fixture.start();
        let run = |program: &str, line: &str| {
            fixture.namespace.run(program, &line.split(' ').collect::<Vec<_>>());
        };
        run("ip", "tuntap add p1 mode tap");
        run("ip", "link set p1 up");
        run("ethtool", "-s p1 speed 1000 duplex full");
        fixture
            .done("add-br br0 -- add-port br0 p1 -- add-port br0 p2 -- set interface p2 type=null");
        fixture
            .done("--id=@q create qos type=linux-htb -- set port p1 qos=@q -- set port p2 qos=@q");
        let rate = |port: &str| {
            let shown = text(&daemon.ovs_appctl(&["qos/show", port]));
            shown.lines().nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(rate("p1"), "max-rate: 1000000000");
        assert_eq!(rate("p2"), "max-rate: 10000000000", "a port without a link");
        let log = daemon.log();
        let [qos, rate_in_log] = ["port p1: QoS set to linux-htb", "max_rate=1000000000"];
        let is_logged = |line: &str| line.contains(qos) && line.contains(rate_in_log);
        assert!(log.lines().any(is_logged), "{log}");
        run("ethtool", "-s p1 speed 2500 duplex full");
        // The kernel reports no new speed, but the kernel reports this change.
        run("ip", "link set p1 mtu 1400");
        assert!(wait_until(|| rate("p1") == "max-rate: 2500000000"), "{}", daemon.log());
        let followed = "port p1: QoS linux-htb follows the speed of the link";
        assert!(daemon.log().contains(followed), "{}", daemon.log());
    }
}

/// Returns the packets of queue 5 in `ovs-ofctl queue-stats`.
fn pings_of_queue(daemon: &Daemon) -> u64 {
    let stats = text(&daemon.ovs_ofctl("br0", "queue-stats", &[]));
    assert!(stats.contains(": 2 queues"), "{stats}");
    let line = stats.lines().find(|line| line.contains("queue 5: "));
    let packets = line.and_then(|line| line.split_once("pkts=")?.1.split_once(','));
    packets.and_then(|(packets, _)| packets.parse().ok()).unwrap_or_default()
}
