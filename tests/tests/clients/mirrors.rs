//! Mirrors of real frames, configured by `ovs-vsctl` and by `shuntctl`.

use shunt_tests::{
    daemon::{Daemon, output, text, until},
    namespace::{Namespace, namespace_or_skip},
};

use crate::vsctl::{Bench, show};

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

impl Hosts {
    /// Pings b from a, and returns the number of pings that the probe has got since.
    ///
    /// At least `expected` are waited for.
    fn copied_pings(&self, expected: u64) -> u64 {
        let before = self.probe.echo_requests();
        let arguments = ["-q", "-i", "0.02", "-c", "5", "-W", "2", "10.67.1.2"];
        text(&output(self.a.command("ping").args(arguments)));
        until(|| self.probe.echo_requests() - before >= expected);
        self.probe.echo_requests() - before
    }
}

fn drops(daemon: &Daemon) -> String {
    text(&daemon.shuntctl(&["drops"]))
}

#[test]
fn vsctl_mirrors_pings_to_a_probe() {
    for bench in Bench::both("mirror") {
        let Some(hosts) = hosts(&bench.namespace) else { return };
        let daemon = bench.start();
        bench.done("add-br br0 -- add-port br0 p1 -- add-port br0 p2");
        assert_eq!(hosts.copied_pings(0), 0);
        bench.done(
            "--id=@p1 get port p1 -- --id=@m create mirror name=m1 select_src_port=@p1 \
             output_vlan=9 -- set bridge br0 mirrors=@m",
        );
        assert_eq!(hosts.copied_pings(0), 0, "no port of this VLAN leads to the probe");
        bench.done("add-port br0 p3");
        bench.done(
            "--id=@p3 get port p3 -- set mirror m1 output_port=@p3 -- clear mirror m1 output_vlan",
        );
        assert_eq!(hosts.copied_pings(PINGS), PINGS, "{}", show(&daemon));
        let line = "mirror m1 (select_src_port=p1 output_port=p3, copied ";
        assert!(show(&daemon).contains(line), "{}", show(&daemon));
        // The answers of the probe are dropped.
        assert!(drops(&daemon).contains("mirror_output_port"), "{}", drops(&daemon));
        assert!(
            until(|| bench.done("get mirror m1 statistics").contains("tx_packets=")),
            "{}",
            bench.done("list mirror")
        );
        let trace = text(&daemon.ovs_appctl(&["ofproto/trace", "br0", "in_port=p1,ip"]));
        assert!(trace.contains("-> mirror m1: copied to port p3"), "{trace}");
        bench.done("clear bridge br0 mirrors");
        assert!(!show(&daemon).contains("mirror"), "{}", show(&daemon));
        assert_eq!(hosts.copied_pings(0), 0);
    }
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
    let daemon = Daemon::start_with(&file, |program| middle.command(&program.to_string_lossy()));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
    let missing = "copies nothing until output_port p3 is added to the bridge";
    assert!(show(&daemon).contains(missing), "{}", show(&daemon));
    assert!(daemon.log().contains(missing), "{}", daemon.log());
    assert_eq!(hosts.copied_pings(0), 0);
    let done = |arguments: &[&str]| text(&daemon.shuntctl(arguments));
    done(&["add-port", "br0", "p3"]);
    assert!(!show(&daemon).contains(missing), "{}", show(&daemon));
    // A truncated ping is no ping for the kernel of the probe.
    let copies = || hosts.probe.run("cat", &["/sys/class/net/eth0/statistics/rx_packets"]);
    let before = copies();
    assert_eq!(hosts.copied_pings(0), 0);
    assert!(until(|| copies() != before), "{}", show(&daemon));
    done(&["del-mirror", "br0", "m1"]);
    done(&["add-mirror", "br0", "m2", "select_dst_port=p2", "output_port=p3"]);
    assert_eq!(hosts.copied_pings(PINGS), PINGS, "{}", show(&daemon));
    done(&["del-mirror", "br0", "m2"]);
    assert_eq!(hosts.copied_pings(0), 0);
    let refused = daemon.shuntctl(&["del-mirror", "br0", "m2"]);
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("bridge br0 has no mirror m2; existing mirrors: none"), "{reason}");
}
