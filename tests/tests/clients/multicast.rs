//! Multicast snooping with hosts that join groups, compared with Open vSwitch.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
    open_vswitch::OpenVSwitch,
};

use crate::vsctl::{DaemonFixture, show};

/// Joins a group at an address until the end of standard input.
const JOIN: &str = "
import socket, sys
group, own = map(socket.inet_aton, sys.argv[1:])
member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + own)
print('joined', flush=True)
sys.stdin.read()
";

/// Sends 50 packets to a group, then 50 broadcasts.
const SEND: &str = "
import socket, sys
group, own, everyone = sys.argv[1:]
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for target in [group, everyone]:
    for _ in range(50):
        sender.sendto(b'x', (target, 5000))
";

/// Sends a query of IGMPv2, which hosts answer within a tenth of a second.
const QUERY: &str = "
import socket, sys
router = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
router.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
router.sendto(bytes.fromhex('1101eefe00000000'), ('224.0.0.1', 0))
";

/// Joins a group of IPv6 until the end of standard input.
const JOIN_V6: &str = "
import socket, struct, sys
group = socket.inet_pton(socket.AF_INET6, sys.argv[1])
member = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
interface = struct.pack('I', socket.if_nametoindex('eth0'))
member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + interface)
print('joined', flush=True)
sys.stdin.read()
";

/// Sends a query of MLDv2. Hosts ignore it, because it has no Router Alert option.
const QUERY_V6: &str = "
import socket
router = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
index = socket.if_nametoindex('eth0')
router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
query = bytes.fromhex('8200000000640000') + bytes(16) + bytes.fromhex('027d0000')
router.sendto(query, ('ff02::1', 0, 0, index))
";

/// Number of packets of each kind that [`SEND`] sends.
const PACKETS: u64 = 50;

/// Four hosts, 10.70.1.1 to 10.70.1.4, at the ports `p1` to `p4` of a switch.
struct Hosts([Namespace; 4]);

/// A host that has joined a group. On drop, the host leaves the group.
struct Member(Child);

/// The switch between the hosts.
trait Middle {
    /// Runs `ovs-vsctl` with the words of a line.
    fn vsctl(&self, line: &str);
    /// Returns the answer of `ovs-appctl`.
    fn appctl(&self, arguments: &[&str]) -> String;
    /// Maximum attempts until all packets arrive at the right hosts.
    fn attempts(&self) -> usize;
}

impl Hosts {
    /// Connects four hosts to the namespace of a switch.
    fn connect(middle: &Namespace) -> Option<Self> {
        let host = |number: usize| {
            let host = namespace_or_skip("mcast")?;
            host.connect("eth0", middle, &format!("p{number}"));
            let address = format!("{}/24", address(number));
            host.run("ip", &["addr", "add", &address, "brd", "+", "dev", "eth0"]);
            Some(host)
        };
        Some(Self([host(1)?, host(2)?, host(3)?, host(4)?]))
    }

    /// Makes a host join a group by a version of IGMP.
    fn join(&self, number: usize, group: &str, version: u8) -> Member {
        let host = &self.0[number - 1];
        let force = format!("echo {version} > /proc/sys/net/ipv4/conf/eth0/force_igmp_version");
        host.run("sh", &["-c", &force]);
        Member::start(host, &[JOIN, group, &address(number)])
    }

    /// Enables IPv6 on the hosts.
    ///
    /// The link-local addresses end in the numbers of the hosts.
    fn enable_ipv6(&self) {
        // With duplicate address detection, an address cannot be used for a second.
        let enable = "cd /proc/sys/net/ipv6/conf/eth0; echo 0 > accept_dad; echo 0 > disable_ipv6";
        for (number, host) in (1..).zip(&self.0) {
            let mac = format!("02:00:00:00:00:0{number}");
            host.run("ip", &["link", "set", "eth0", "address", &mac]);
            host.run("sh", &["-c", enable]);
        }
    }

    /// Makes a host join a group of IPv6.
    fn join_v6(&self, number: usize, group: &str) -> Member {
        Member::start(&self.0[number - 1], &[JOIN_V6, group])
    }

    /// Sends a query from a host.
    fn query(&self, number: usize) {
        self.0[number - 1].run("python3", &["-c", QUERY, &address(number)]);
    }

    /// Sends packets of host 4 to a group, and checks the hosts that receive them.
    #[track_caller]
    fn receive(&self, middle: &dyn Middle, group: &str, expected: &[usize]) {
        let mut counts = Vec::new();
        let is_right = (0..middle.attempts()).any(|_| {
            let before = self.counts_received();
            self.0[3].run("python3", &["-c", SEND, group, &address(4), "10.70.1.255"]);
            wait_until(|| {
                let now = self.counts_received();
                counts = now.iter().zip(&before).map(|(now, before)| now - before).collect();
                are_right(&counts, expected)
            })
        });
        assert!(is_right, "{group}: {counts:?}, expected {expected:?}");
    }

    /// Returns the number of packets that each of the first three hosts has received.
    fn counts_received(&self) -> Vec<u64> {
        let of_host = |host: &Namespace| {
            let path = "/sys/class/net/eth0/statistics/rx_packets";
            host.run("cat", &[path]).trim().parse().expect("a number")
        };
        self.0.iter().take(3).map(of_host).collect()
    }
}

/// Returns whether the hosts `expected` have received the packets of a group.
///
/// Each host receives the broadcasts. Hosts that want the group receive twice as many packets.
fn are_right(counts: &[u64], expected: &[usize]) -> bool {
    let is_right = |(number, count): (usize, &u64)| match expected.contains(&number) {
        true => *count >= 2 * PACKETS,
        false => (PACKETS..2 * PACKETS).contains(count),
    };
    (1..).zip(counts).all(is_right)
}

impl Member {
    /// Runs a program of a host that joins a group.
    fn start(host: &Namespace, program: &[&str]) -> Self {
        let mut command = host.command("python3");
        let child = command.arg("-c").args(program).stdin(Stdio::piped());
        let child = child.stdout(Stdio::piped()).spawn();
        let mut child = child.expect("python3 runs");
        let mut line = String::new();
        let joined = child.stdout.take().expect("a pipe");
        BufReader::new(joined).read_line(&mut line).expect("a line");
        assert_eq!(line, "joined\n");
        Self(child)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Middle for (&DaemonFixture, &Daemon) {
    fn vsctl(&self, line: &str) {
        self.0.done(line);
    }

    fn appctl(&self, arguments: &[&str]) -> String {
        text(&self.1.ovs_appctl(arguments))
    }

    fn attempts(&self) -> usize {
        1
    }
}

impl Middle for OpenVSwitch<'_> {
    fn vsctl(&self, line: &str) {
        self.run("ovs-vsctl", &line.split_whitespace().collect::<Vec<_>>());
    }

    fn appctl(&self, arguments: &[&str]) -> String {
        self.run("ovs-appctl", arguments)
    }

    /// The cache entries of Open vSwitch follow a change after some time.
    fn attempts(&self) -> usize {
        3
    }
}

fn address(number: usize) -> String {
    format!("10.70.1.{number}")
}

/// Returns the lines of `mdb/show` without the age, in order.
fn mdb(middle: &dyn Middle) -> Vec<String> {
    let shown = middle.appctl(&["mdb/show", "br0"]);
    let fields = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = shown.lines().map(fields).collect();
    assert_eq!(lines.remove(0), "port VLAN GROUP", "{shown}");
    lines.sort();
    lines
}

/// Checks that a switch has learned exactly the entries `expected`.
#[track_caller]
fn expect_learned(middle: &dyn Middle, expected: &[&str]) {
    assert!(wait_until(|| mdb(middle) == expected), "{:?}, expected {expected:?}", mdb(middle));
}

/// Adds a bridge that snoops, with the ports of the hosts.
fn add_bridge(middle: &dyn Middle) {
    let ports = (1..=4).map(|number| {
        format!("-- add-port br0 p{number} -- set interface p{number} ofport_request={number}")
    });
    let ports: Vec<String> = ports.collect();
    middle.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=netdev mcast_snooping_enable=true {}",
        ports.join(" ")
    ));
}

/// Runs hosts at a switch, which must behave as Open vSwitch does.
fn snoop(middle: &dyn Middle, hosts: &Hosts) {
    add_bridge(middle);
    hosts.receive(middle, "239.1.1.1", &[1, 2, 3]);
    expect_learned(middle, &[]);
    let members = [
        hosts.join(1, "239.1.1.1", 1),
        hosts.join(1, "239.1.1.2", 2),
        hosts.join(2, "239.1.1.3", 3),
    ];
    let groups = ["1 0 239.1.1.1", "1 0 239.1.1.2", "2 0 239.1.1.3"];
    expect_learned(middle, &groups);
    hosts.receive(middle, "239.1.1.1", &[1]);
    hosts.receive(middle, "239.1.1.3", &[2]);
    hosts.receive(middle, "239.1.1.9", &[1, 2, 3]);
    hosts.query(3);
    expect_learned(middle, &[&groups[..], &["3 0 querier"]].concat());
    hosts.receive(middle, "239.1.1.2", &[1, 3]);
    middle.vsctl("set bridge br0 other_config:mcast-snooping-disable-flood-unregistered=true");
    hosts.receive(middle, "239.1.1.9", &[3]);
    hosts.receive(middle, "224.0.0.9", &[1, 2, 3]);
    middle.vsctl("set port p2 other_config:mcast-snooping-flood=true");
    hosts.receive(middle, "239.1.1.9", &[2, 3]);
    middle.vsctl("remove port p2 other_config mcast-snooping-flood");
    hosts.receive(middle, "239.1.1.9", &[3]);
    // Only version 2 has a leave message.
    let [by_report, by_leave, by_record] = members;
    drop(by_leave);
    expect_learned(middle, &["1 0 239.1.1.1", "2 0 239.1.1.3", "3 0 querier"]);
    hosts.receive(middle, "239.1.1.2", &[3]);
    assert_eq!(middle.appctl(&["mdb/flush", "br0"]), "table successfully flushed\n");
    expect_learned(middle, &[]);
    drop((by_report, by_record));
    middle.vsctl("set bridge br0 mcast_snooping_enable=false");
    hosts.receive(middle, "239.1.1.9", &[1, 2, 3]);
}

/// Runs hosts with IPv6 at a switch, which must behave as Open vSwitch does.
fn snoop_v6(middle: &dyn Middle, hosts: &Hosts) {
    add_bridge(middle);
    hosts.enable_ipv6();
    // Each host reports the group of its own address, for neighbour discovery.
    let own: Vec<String> = (1..5).map(|own| format!("{own} 0 ff02::1:ff00:{own}")).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let with = |more: &[&'static str]| {
        let mut all = [&own[..], more].concat();
        all.sort_unstable();
        all
    };
    expect_learned(middle, &with(&[]));
    let member = hosts.join_v6(1, "ff1e::7");
    expect_learned(middle, &with(&["1 0 ff1e::7"]));
    hosts.0[2].run("python3", &["-c", QUERY_V6]);
    expect_learned(middle, &with(&["1 0 ff1e::7", "3 0 querier"]));
    drop(member);
    expect_learned(middle, &with(&["3 0 querier"]));
}

/// Runs hosts at Open vSwitch, then at the daemon with each kind of database.
///
/// `check` tests the daemon afterwards.
fn at_both(run: fn(&dyn Middle, &Hosts), check: fn(&DaemonFixture, &Daemon)) {
    if Command::new("python3").arg("--version").output().is_err() {
        return print_skipped("python3 is missing: apt-get install python3");
    }
    let Some(middle) = namespace_or_skip("mcast") else { return };
    let (Some(rival), Some(hosts)) = (OpenVSwitch::start_or_skip(&middle), Hosts::connect(&middle))
    else {
        return;
    };
    run(&rival, &hosts);
    for fixture in DaemonFixture::both("mcast") {
        let Some(hosts) = Hosts::connect(&fixture.namespace) else { continue };
        let daemon = fixture.start();
        run(&(&fixture, &daemon), &hosts);
        check(&fixture, &daemon);
    }
}

#[test]
fn hosts_join_groups_as_at_open_vswitch() {
    at_both(snoop, |fixture, daemon| {
        let status = fixture.done("get bridge br0 status");
        assert!(!status.contains("no effect"), "{status}");
        assert!(!show(daemon).contains("multicast snooping"), "{}", show(daemon));
        let log = daemon.log();
        assert!(log.contains("bridge br0: port p3: a multicast router was found vlan=0"), "{log}");
    });
}

#[test]
fn ipv6_groups_equal_those_of_open_vswitch() {
    at_both(snoop_v6, |_, daemon| {
        let shown = show(daemon);
        assert!(shown.contains("multicast snooping (4 of 2048 groups, 1 router port)"), "{shown}");
    });
}
