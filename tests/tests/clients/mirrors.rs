//! Mirrors of real frames, configured by `ovs-vsctl` and by `shuntctl`.

use shunt_tests::{
    daemon::{Daemon, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip},
};

use crate::vsctl::{DaemonFixture, show};

/// Number of pings in a round.
const PINGS: u64 = 5;

/// Hosts a and b, and a probe with the addresses of b.
///
/// The kernel at the probe counts the copied pings.
struct Hosts {
    a: Namespace,
    probe: Namespace,
    _b: Namespace,
}

/// Connects the hosts with the ports `p1`, `p2` and `p3` of a switch in `middle`.
fn hosts(middle: &Namespace) -> Option<Hosts> {
    let [a, b, probe] = [(); 3].map(|()| namespace_or_skip("mirror"));
    let (a, b, probe) = (a?, b?, probe?);
    let addressed = [(&a, "p1", "1"), (&b, "p2", "2"), (&probe, "p3", "2")];
    for (host, port, number) in addressed {
        host.connect("eth0", middle, port);
        let mac = format!("02:00:00:00:00:0{number}");
        host.run("ip", &["link", "set", "eth0", "address", &mac]);
        host.run("ip", &["addr", "add", &format!("10.67.1.{number}/24"), "dev", "eth0"]);
    }
    // The hosts need no ARP, so that the copies are pings alone.
    for (host, number) in [(&a, "2"), (&b, "1"), (&probe, "1")] {
        let (address, mac) = (format!("10.67.1.{number}"), format!("02:00:00:00:00:0{number}"));
        host.run("ip", &["neigh", "replace", &address, "lladdr", &mac, "dev", "eth0"]);
    }
    Some(Hosts { a, probe, _b: b })
}

/// An ICMP echo reply to the probe that no host has requested.
const LAST_FRAME: &str = "02000000000202000000000908004500002e000000004001643f0a4301090a430102\
                          0000ffff00000000000000000000000000000000000000000000";

impl Hosts {
    /// Pings b from a.
    fn ping(&self) {
        let arguments = ["-q", "-i", "0.02", "-c", "5", "-W", "2", "10.67.1.2"];
        text(&output(self.a.command("ping").args(arguments)));
    }

    /// Pings b from a, and returns the number of pings that arrive at the probe.
    ///
    /// The probe gets another frame after the pings, so the test notices later pings.
    fn copied_pings(&self, daemon: &Daemon) -> u64 {
        let (before, replies) = (self.probe.echo_requests(), self.probe.echo_replies());
        self.ping();
        let last = ["controller", "output:3", LAST_FRAME];
        text(&daemon.ovs_ofctl("br0", "packet-out", &last));
        assert!(wait_until(|| self.probe.echo_replies() > replies), "{}", show(daemon));
        self.probe.echo_requests() - before
    }

    /// Returns the numbers of frames and of bytes that the probe has received.
    fn count_received(&self) -> (u64, u64) {
        let devices = self.probe.run("cat", &["/proc/net/dev"]);
        let line = devices.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        let mut counts = line.into_iter().flat_map(str::split_whitespace).map(str::parse::<u64>);
        let mut next = || counts.next().and_then(Result::ok).unwrap_or_default();
        let bytes = next();
        (next(), bytes)
    }
}

fn drops(daemon: &Daemon) -> String {
    text(&daemon.shuntctl(&["drops"]))
}

#[test]
fn vsctl_mirrors_pings_to_a_probe() {
    for fixture in DaemonFixture::both("mirror") {
        let Some(hosts) = hosts(&fixture.namespace) else { return };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p1 -- add-port br0 p2 -- add-port br0 p3 tag=8");
        assert_eq!(hosts.copied_pings(&daemon), 0);
        fixture.done(
            "--id=@p1 get port p1 -- --id=@m create mirror name=m1 select_src_port=@p1 \
             output_vlan=9 -- set bridge br0 mirrors=@m",
        );
        assert_eq!(hosts.copied_pings(&daemon), 0, "the port of the probe has another VLAN");
        fixture.done("set port p3 tag=9");
        assert_eq!(hosts.copied_pings(&daemon), PINGS, "{}", show(&daemon));
        fixture.done(
            "--id=@p3 get port p3 -- set mirror m1 output_port=@p3 -- clear mirror m1 output_vlan",
        );
        assert_eq!(hosts.copied_pings(&daemon), PINGS, "{}", show(&daemon));
        let line = "mirror m1 (select_src_port=p1 output_port=p3, copied ";
        assert!(show(&daemon).contains(line), "{}", show(&daemon));
        // The answers of the probe are dropped.
        assert!(drops(&daemon).contains("mirror_output_port"), "{}", drops(&daemon));
        assert!(
            wait_until(|| fixture.done("get mirror m1 statistics").contains("tx_packets=")),
            "{}",
            fixture.done("list mirror")
        );
        let trace = text(&daemon.ovs_appctl(&["ofproto/trace", "br0", "in_port=p1,ip"]));
        assert!(trace.contains("-> mirror m1: copied to port p3"), "{trace}");
        fixture.done("--id=@m create mirror name=m2 select_all=true -- add bridge br0 mirrors @m");
        let reason = "mirror m2 copies nothing: set output_port or output_vlan";
        assert!(wait_until(|| daemon.log().contains(reason)), "{}", daemon.log());
        assert_eq!(hosts.copied_pings(&daemon), PINGS, "m1 is not affected");
        fixture.done("clear bridge br0 mirrors");
        assert!(!show(&daemon).contains("mirror"), "{}", show(&daemon));
        assert_eq!(hosts.copied_pings(&daemon), 0);
    }
}

/// Starts a daemon in a namespace, with the configuration `file`.
fn daemon_in(middle: &Namespace, file: &str) -> Daemon {
    Daemon::start_with(file, |program| middle.command(&program.to_string_lossy()))
}

#[test]
fn shuntctl_adds_and_deletes_mirrors() {
    let Some(middle) = namespace_or_skip("mirror") else { return };
    let Some(hosts) = hosts(&middle) else { return };
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\n");
    let file = format!(
        "[[bridge]]\nname = \"br0\"\n{}{}[[bridge.mirror]]\nname = \"m1\"\nselect_all = true\n\
         output_port = \"p3\"\nsnaplen = 64\n",
        port("p1"),
        port("p2"),
    );
    let daemon = daemon_in(&middle, &file);
    text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
    let missing = "copies nothing until output_port p3 is added to the bridge";
    assert!(show(&daemon).contains(missing), "{}", show(&daemon));
    assert!(daemon.log().contains(missing), "{}", daemon.log());
    let done = |arguments: &[&str]| text(&daemon.shuntctl(arguments));
    done(&["add-port", "br0", "p3"]);
    assert!(!show(&daemon).contains(missing), "{}", show(&daemon));
    assert!(daemon.log().contains("ports ready: p3"), "{}", daemon.log());
    let (frames, bytes) = hosts.count_received();
    hosts.ping();
    // Each ping is a request and a reply.
    let received = || hosts.count_received().0 - frames;
    assert!(wait_until(|| received() >= 2 * PINGS), "{}", show(&daemon));
    assert_eq!((received(), hosts.count_received().1 - bytes), (2 * PINGS, 2 * PINGS * 64));
    done(&["del-mirror", "br0", "m1"]);
    done(&["add-mirror", "br0", "m2", "select_dst_port=p2", "output_port=p3"]);
    assert_eq!(hosts.copied_pings(&daemon), PINGS, "{}", show(&daemon));
    done(&["del-mirror", "br0", "m2"]);
    assert_eq!(hosts.copied_pings(&daemon), 0);
    let refused = daemon.shuntctl(&["del-mirror", "br0", "m2"]);
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("bridge br0 has no mirror m2; existing mirrors: none"), "{reason}");
}

/// Access ports get copies without a tag, and trunks get copies with the tag.
///
/// Ports of other VLANs get no copies. The ports `p4` and `p5` lead to a second bridge, where rules
/// count the copies.
#[test]
fn copies_for_a_vlan_reach_its_ports() {
    let Some(middle) = namespace_or_skip("mirror") else { return };
    let Some(hosts) = hosts(&middle) else { return };
    let port = |name: &str, vlan: &str| format!("[[bridge.port]]\nname = \"{name}\"\n{vlan}\n");
    let ports = [("p1", ""), ("p2", ""), ("p3", "tag = 9"), ("p4", ""), ("p5", "tag = 8")];
    let file = format!(
        "[[bridge]]\nname = \"br0\"\n{}[[bridge.mirror]]\nname = \"m1\"\n\
         select_src_port = [\"p1\"]\noutput_vlan = 9\n[[bridge]]\nname = \"br1\"\n{}{}",
        ports.map(|(name, vlan)| port(name, vlan)).concat(),
        port("q4", ""),
        port("q5", ""),
    );
    middle.connect("p4", &middle, "q4");
    middle.connect("p5", &middle, "q5");
    let daemon = daemon_in(&middle, &file);
    text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
    for rule in [
        "cookie=4,in_port=1,icmp,icmp_type=8,dl_vlan=9,actions=drop",
        "cookie=5,in_port=2,actions=drop",
    ] {
        text(&daemon.ovs_ofctl("br1", "add-flow", &[rule]));
    }
    let count = |cookie: &str| {
        let filter = format!("cookie={cookie}/-1");
        let rules = text(&daemon.ovs_ofctl("br1", "dump-flows", &[&filter]));
        let count = rules.split_once("n_packets=").and_then(|(_, rest)| rest.split_once(','));
        count.and_then(|(count, _)| count.parse::<u64>().ok())
    };
    for round in 1..=2 {
        assert_eq!(hosts.copied_pings(&daemon), PINGS, "{}", show(&daemon));
        let expected = Some(round * PINGS);
        assert!(wait_until(|| count("4") == expected), "{:?}", count("4"));
    }
    // Copies of the first round arrive before the copies of the second round.
    assert_eq!(count("5"), Some(0));
}
