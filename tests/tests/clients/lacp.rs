//! LACP of a bond with real links to a bond of Open vSwitch.

use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::{Namespace, namespace_or_skip},
    open_vswitch::OpenVSwitch,
    traffic::ping_once,
};

use crate::vsctl::{DaemonFixture, bond_line, show};

/// A host at the port `p3`, and Open vSwitch behind the ports `p1` and `p2`.
struct Peers<'a> {
    host: &'a Namespace,
    /// The namespace of Open vSwitch, which has the address 10.69.1.2.
    ///
    /// The links are `x1` and `x2`.
    network: &'a Namespace,
    switch: OpenVSwitch<'a>,
}

/// Connects the ports of a switch in `middle`, and starts Open vSwitch.
fn peers<'a>(middle: &Namespace, host: &'a Namespace, network: &'a Namespace) -> Option<Peers<'a>> {
    host.connect("eth0", middle, "p3");
    host.run("ip", &["addr", "add", "10.69.1.1/24", "dev", "eth0"]);
    for (link, port) in [("x1", "p1"), ("x2", "p2")] {
        network.connect(link, middle, port);
        // Otherwise, beside Open vSwitch, the kernel answers for 10.69.1.2 with the address of a
        // link.
        network.run("ip", &["link", "set", link, "arp", "off"]);
    }
    let switch = OpenVSwitch::start_or_skip(network)?;
    switch.vsctl(
        "add-br far -- set bridge far datapath_type=netdev other_config:hwaddr=02:00:00:00:00:0b",
    );
    switch.vsctl(
        "add-bond far bond1 x1 x2 bond_mode=balance-tcp lacp=active other_config:lacp-time=fast",
    );
    network.run("ip", &["addr", "add", "10.69.1.2/24", "dev", "far"]);
    network.run("ip", &["link", "set", "far", "up"]);
    Some(Peers { host, network, switch })
}

impl Peers<'_> {
    /// Returns whether Open vSwitch answers a ping of the host.
    fn reaches(&self) -> bool {
        ping_once(self.host, "10.69.1.2")
    }

    /// Returns the number of packets that Open vSwitch has received on a link.
    fn count_received(&self, link: &str) -> u64 {
        let path = format!("/sys/class/net/{link}/statistics/rx_packets");
        self.network.run("cat", &[&path]).trim().parse().expect("a number")
    }

    /// Sends a packet of each of 200 connections.
    fn send_connections(&self) {
        let script =
            "for port in $(seq 1000 1199); do echo x 2>/dev/null >/dev/udp/10.69.1.2/$port; done";
        self.host.run("bash", &["-c", script]);
    }
}

/// Returns the state of LACP, as `ovs-appctl` shows it.
fn lacp(daemon: &Daemon) -> String {
    text(&daemon.ovs_appctl(&["lacp/show", "bond0"]))
}

fn is_negotiated(daemon: &Daemon) -> bool {
    let shown = lacp(daemon);
    let state = "actor state: activity timeout aggregation synchronized collecting distributing\n";
    shown.contains("  status: active negotiated\n") && shown.matches(state).count() == 2
}

/// Checks that a pulled link leaves the bond immediately, and returns.
fn a_pulled_link_leaves_the_bond(daemon: &Daemon, peers: &Peers<'_>) {
    peers.network.run("ip", &["link", "set", "x1", "down"]);
    let line = "bond bond0 (balance-tcp, LACP negotiated: p1 disabled (LACP: the link is down), p2 active)";
    assert!(wait_until(|| bond_line(daemon) == line), "{}", bond_line(daemon));
    assert!(wait_until(|| peers.reaches()), "{}", show(daemon));
    peers.network.run("ip", &["link", "set", "x1", "up"]);
    assert!(wait_until(|| is_negotiated(daemon)), "{}", lacp(daemon));
}

/// Checks that disabling a member does not change the other member.
fn a_disabled_port_leaves_the_other_member(daemon: &Daemon, peers: &Peers<'_>) {
    let changes = |member: &str| daemon.log().matches(&format!("member {member}: LACP")).count();
    let (before, of_other) = (changes("p1"), changes("p2"));
    text(&daemon.ovs_ofctl("br0", "mod-port", &["p1", "down"]));
    assert!(wait_until(|| changes("p1") > before && peers.reaches()), "{}", show(daemon));
    text(&daemon.ovs_ofctl("br0", "mod-port", &["p1", "up"]));
    assert!(wait_until(|| is_negotiated(daemon)), "{}", lacp(daemon));
    assert_eq!(changes("p2"), of_other, "{}", daemon.log());
}

/// Checks that a silent partner disables the bond, with and without the fallback.
fn a_silent_partner_disables_the_bond(fixture: &DaemonFixture, daemon: &Daemon, peers: &Peers<'_>) {
    peers.switch.signal("-STOP");
    let both = "p1 disabled (LACP: no partner has sent LACPDUs), p2 disabled (LACP: no partner has sent LACPDUs)";
    let line = format!("bond bond0 (balance-tcp, LACP configured: {both})");
    assert!(wait_until(|| bond_line(daemon) == line), "{}", bond_line(daemon));
    let current = || fixture.done("get interface p1 lacp_current");
    assert!(wait_until(|| current() == "false"), "{}", current());
    let trace = text(&daemon.ovs_appctl(&["ofproto/trace", "br0", "in_port=p2"]));
    let reason = "the LACP partner of bond bond0 does not use port ";
    assert!(trace.contains(reason) && trace.contains("(p2): dropped"), "{trace}");
    fixture.done("set port bond0 other_config:lacp-fallback-ab=true");
    let line = "bond bond0 (balance-tcp, LACP configured: p1 active, p2 enabled)";
    assert!(wait_until(|| bond_line(daemon) == line), "{}", bond_line(daemon));
    let shown = text(&daemon.ovs_appctl(&["bond/show", "bond0"]));
    assert!(shown.contains("\nlacp_status: configured\nlacp_fallback_ab: true\n"), "{shown}");
    peers.switch.signal("-CONT");
    assert!(wait_until(|| is_negotiated(daemon)), "{}", lacp(daemon));
    assert!(wait_until(|| peers.reaches()), "{}", show(daemon));
}

#[test]
fn a_bond_negotiates_with_open_vswitch() {
    for fixture in DaemonFixture::both("lacp") {
        let (Some(host), Some(network)) = (namespace_or_skip("lacp"), namespace_or_skip("lacp"))
        else {
            return;
        };
        let Some(peers) = peers(&fixture.namespace, &host, &network) else { return };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p3");
        fixture.done(
            "add-bond br0 bond0 p1 p2 bond_mode=balance-tcp lacp=active \
             other_config:lacp-time=fast -- set interface p2 other_config:lacp-port-id=77",
        );
        assert!(wait_until(|| is_negotiated(&daemon)), "{}\n{}", lacp(&daemon), daemon.log());
        assert!(lacp(&daemon).contains("  partner sys_id: 02:00:00:00:00:0b\n"));
        let far = || peers.switch.run("ovs-appctl", &["lacp/show", "bond1"]);
        let knows = || far().contains("status: active negotiated") && far().contains("port_id: 77");
        assert!(wait_until(knows), "{}", far());
        let current = || fixture.done("get interface p1 lacp_current");
        assert!(wait_until(|| current() == "true"), "{}", current());
        assert!(daemon.log().contains("bond bond0: member p1: LACP current"), "{}", daemon.log());
        assert!(wait_until(|| peers.reaches()), "{}", show(&daemon));
        let before = ["x1", "x2"].map(|link| peers.count_received(link));
        peers.send_connections();
        let more = || {
            let now = ["x1", "x2"].map(|link| peers.count_received(link));
            (now[0] - before[0]).min(now[1] - before[1])
        };
        assert!(wait_until(|| more() >= 50), "both members send: {}", more());
        a_pulled_link_leaves_the_bond(&daemon, &peers);
        a_disabled_port_leaves_the_other_member(&daemon, &peers);
        a_silent_partner_disables_the_bond(&fixture, &daemon, &peers);
        fixture.done("set port bond0 other_config:lacp-time=slow");
        assert!(wait_until(|| lacp(&daemon).contains("  lacp_time: slow\n")), "{}", lacp(&daemon));
        let slow = "partner state: activity aggregation synchronized collecting distributing";
        assert!(wait_until(|| far().matches(slow).count() == 2), "{}", far());
        assert!(peers.reaches(), "{}", show(&daemon));
        let stats = text(&daemon.ovs_appctl(&["lacp/show-stats", "bond0"]));
        assert!(stats.contains("  RX Bad PDUs: 0\n") && stats.contains("Expired: 1\n"), "{stats}");
        fixture.done("set port bond0 lacp=off bond_mode=active-backup");
        assert!(
            wait_until(|| bond_line(&daemon).contains("(active-backup: ")),
            "{}",
            show(&daemon)
        );
        let gone = daemon.ovs_appctl(&["lacp/show", "bond0"]);
        assert!(String::from_utf8_lossy(&gone.stderr).contains("no such lacp object"));
    }
}

/// Checks that a removed member removes only its own link at the partner.
///
/// The link is removed immediately. A timeout at the partner takes 90 seconds.
fn a_removed_member_leaves_the_other_one(
    daemon: &Daemon,
    peers: &Peers<'_>,
    done: &impl Fn(&str) -> String,
) {
    let far = || peers.switch.run("ovs-appctl", &["bond/show", "bond1"]);
    let slow = ["set", "port", "bond1", "other_config:lacp-time=slow"];
    peers.switch.run("ovs-vsctl", &slow);
    let both =
        || ["x1", "x2"].iter().all(|link| far().contains(&format!("member {link}: enabled")));
    assert!(wait_until(both), "{}", far());
    let changes = || daemon.log().matches("member p2: LACP").count();
    let before = changes();
    done("del-port p1");
    assert!(wait_until(|| far().contains("member x1: disabled")), "{}", far());
    assert!(far().contains("member x2: enabled"), "{}", far());
    assert!(wait_until(|| peers.reaches()), "{}", show(daemon));
    assert_eq!(changes(), before, "{}", daemon.log());
    done("add-port br0 p1");
    assert!(wait_until(both), "{}", far());
    assert_eq!(changes(), before, "{}", daemon.log());
}

/// A partner that is added later, the keys of `shuntctl`, and a reload.
#[test]
fn shuntctl_adds_a_bond_with_lacp() {
    let (Some(middle), Some(host), Some(network)) =
        (namespace_or_skip("lacp"), namespace_or_skip("lacp"), namespace_or_skip("lacp"))
    else {
        return;
    };
    let Some(peers) = peers(&middle, &host, &network) else { return };
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\n");
    let file = format!("[[bridge]]\nname = \"br0\"\n{}", port("p3"));
    let daemon = Daemon::start_with(&file, |program| middle.command(&program.to_string_lossy()));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
    let done = |line: &str| text(&daemon.shuntctl(&line.split(' ').collect::<Vec<_>>()));
    let refused = |line: &str| {
        let result = daemon.shuntctl(&line.split(' ').collect::<Vec<_>>());
        String::from_utf8_lossy(&result.stderr).into_owned()
    };
    let error = refused("add-bond br0 bond0 members=p1,p2 mode=balance-tcp");
    assert!(error.contains("`balance-tcp` needs LACP: set `lacp`"), "{error}");
    let error = refused("add-bond br0 bond0 members=p1,p2 lacp=active lacp_port_priority=p9:5");
    assert!(
        error.contains("it names a port that is not among the `members` of the bond"),
        "{error}"
    );
    done(
        "add-bond br0 bond0 members=p1,p2 lacp=passive lacp_time=fast lacp_port_priority=p2:5 lacp_system_id=02:00:00:00:00:aa lacp_system_priority=7",
    );
    done("add-port br0 p1");
    done("add-port br0 p2");
    let negotiated =
        || bond_line(&daemon).starts_with("bond bond0 (active-backup, LACP negotiated: ");
    assert!(wait_until(|| negotiated() && peers.reaches()), "{}", show(&daemon));
    let shown = lacp(&daemon);
    for part in [
        "status: passive negotiated",
        "sys_id: 02:00:00:00:00:aa",
        "sys_priority: 7",
        "port_priority: 5",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    a_removed_member_leaves_the_other_one(&daemon, &peers, &done);
    // A frame that is not an LACPDU changes nothing.
    let frame = "python3 - <<'END'\n\
        import socket\n\
        own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
        own.bind(('x1', 0))\n\
        for length in range(14, 122, 18):\n    \
            own.send(bytes.fromhex('0180c2000002020000000001880901') + b'\\xff' * length)\n\
        END";
    network.run("bash", &["-c", frame]);
    let stats = || text(&daemon.ovs_appctl(&["lacp/show-stats", "bond0"]));
    assert!(wait_until(|| stats().contains("RX Bad PDUs: 6\n")), "{}", stats());
    // A flood on one link takes no queue space of the other link.
    network.run("bash", &["-c", &frame.replace("122, 18", "1014, 1")]);
    let refused = || {
        let stats = stats();
        let count = stats.lines().find_map(|line| line.strip_prefix("  RX Refused Frames: "));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    assert!(wait_until(|| refused() > 900), "{}", stats());
    assert!(stats().ends_with("  RX Refused Frames: 0\n"), "{}", stats());
    assert!(negotiated() && peers.reaches(), "{}", lacp(&daemon));
    done("del-bond br0 bond0");
    assert_eq!(bond_line(&daemon), "");
}
