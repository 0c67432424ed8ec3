//! Bonds of real links, configured by `ovs-vsctl` and by `shuntctl`.

use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::{Namespace, namespace_or_skip},
    traffic::ping_once,
};

use crate::vsctl::{DaemonFixture, bond_line, show};

/// A host at the port `p3`, and a Linux bridge behind the ports `p1` and `p2`.
struct Hosts {
    host: Namespace,
    /// The bridge, with the address 10.68.1.2 and the links `x1` and `x2`.
    network: Namespace,
}

/// Connects the ports of a switch in `middle`.
fn hosts(middle: &Namespace) -> Option<Hosts> {
    let (host, network) = (namespace_or_skip("bond")?, namespace_or_skip("bond")?);
    host.connect("eth0", middle, "p3");
    host.run("ip", &["addr", "add", "10.68.1.1/24", "dev", "eth0"]);
    network.run("ip", &["link", "add", "lan", "type", "bridge", "forward_delay", "0"]);
    for (link, port) in [("x1", "p1"), ("x2", "p2")] {
        network.connect(link, middle, port);
        network.run("ip", &["link", "set", link, "master", "lan"]);
    }
    network.run("ip", &["addr", "add", "10.68.1.2/24", "dev", "lan"]);
    network.run("ip", &["link", "set", "lan", "up"]);
    Some(Hosts { host, network })
}

impl Hosts {
    /// Returns whether the network answers a ping of the host.
    fn reaches(&self) -> bool {
        ping_once(&self.host, "10.68.1.2")
    }

    fn set_link(&self, link: &str, state: &str) {
        self.network.run("ip", &["link", "set", link, state]);
    }

    /// Checks that the host uses the member with the bucket of the host's address.
    fn each_member_carries_the_host(&self, daemon: &Daemon) {
        let mac = self.host.run("cat", &["/sys/class/net/eth0/address"]);
        let bucket = text(&daemon.ovs_appctl(&["bond/hash", mac.trim()]));
        for (member, link) in [("p1", "x1"), ("p2", "x2")] {
            let migrated = daemon.ovs_appctl(&["bond/migrate", "bond0", bucket.trim(), member]);
            assert_eq!(text(&migrated), "migrated\n");
            assert!(wait_until(|| self.reaches() && self.learned_on() == link), "{}", show(daemon));
        }
    }

    /// Returns the link on which the network has learned the host's address.
    fn learned_on(&self) -> String {
        let mac = self.host.run("cat", &["/sys/class/net/eth0/address"]);
        let table = self.network.run("bridge", &["fdb", "show", "br", "lan"]);
        let line = table.lines().find(|line| line.starts_with(mac.trim()));
        let link = line.and_then(|line| line.split_whitespace().nth(2));
        link.unwrap_or_default().to_owned()
    }
}

/// Checks that pings continue when the active member loses its link.
fn pings_survive_a_lost_link(daemon: &Daemon, hosts: &Hosts) {
    assert!(wait_until(|| hosts.reaches()), "{}", show(daemon));
    assert_eq!(hosts.learned_on(), "x1", "{}", bond_line(daemon));
    hosts.set_link("x1", "down");
    // The check is before any other packet of the host: the learning packets move the host's
    // address.
    assert!(wait_until(|| hosts.learned_on() == "x2"), "{}", daemon.log());
    assert!(hosts.reaches(), "{}", show(daemon));
    assert_eq!(bond_line(daemon), "bond bond0 (active-backup: p1 disabled, p2 active)");
    assert!(daemon.log().contains("bond bond0: active member is now p2"), "{}", daemon.log());
    hosts.set_link("x1", "up");
    assert!(wait_until(|| bond_line(daemon).contains("p1 enabled")), "{}", show(daemon));
    assert!(hosts.reaches(), "{}", show(daemon));
}

/// Checks that a bond that the switch refuses does not change another bond.
///
/// The members were ports before. Without the bond, the ports are a loop, so the ports are removed.
fn a_refused_bond_has_no_ports(fixture: &DaemonFixture, daemon: &Daemon, hosts: &Hosts) {
    let ports = "-- set interface n1 type=null -- set interface n2 type=null";
    fixture.done(&format!("add-port br0 n1 -- add-port br0 n2 {ports}"));
    assert!(show(daemon).contains("n2"), "{}", show(daemon));
    let plain = "del-port br0 n1 -- del-port br0 n2";
    fixture.done(&format!("--no-wait {plain} -- add-bond br0 n1 n1 n2 {ports}"));
    for name in ["n1", "n2"] {
        let error = || fixture.done(&format!("get interface {name} error"));
        let is_named = || error().contains("bond n1: a member has the name of the bond");
        assert!(wait_until(is_named), "{}", error());
        let removed = format!("port {name}: removed by OVSDB");
        assert!(wait_until(|| daemon.log().contains(&removed)), "{}", daemon.log());
    }
    assert!(!show(daemon).contains("n2"), "{}", show(daemon));
    assert!(bond_line(daemon).contains("bond0"), "{}", show(daemon));
    assert!(hosts.reaches(), "{}", show(daemon));
    fixture.done("del-port br0 n1");
    // No device has the name of a bond, so the name may be long.
    fixture.done(&format!("add-bond br0 bond-mgmt-uplink n1 n2 {ports}"));
    assert!(wait_until(|| show(daemon).contains("bond bond-mgmt-uplink (")), "{}", show(daemon));
    fixture.done("del-port br0 bond-mgmt-uplink");
}

#[test]
fn vsctl_adds_bond_that_survives_lost_link() {
    for fixture in DaemonFixture::both("bond") {
        let Some(hosts) = hosts(&fixture.namespace) else { return };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p3");
        fixture.done("add-bond br0 bond0 p1 p2 bond_mode=active-backup");
        pings_survive_a_lost_link(&daemon, &hosts);
        let address = |port: &str| {
            let path = format!("/sys/class/net/{port}/address");
            fixture.namespace.run("cat", &[&path]).trim().to_owned()
        };
        let active = || fixture.done("get port bond0 bond_active_slave").replace(['"', '\n'], "");
        assert!(wait_until(|| active() == address("p2")), "{}", active());
        let appctl = |arguments: &[&str]| text(&daemon.ovs_appctl(arguments));
        assert_eq!(
            appctl(&["bond/list"]),
            "bond\ttype\trecircID\tmembers\nbond0\tactive-backup\t0\tp1, p2\n"
        );
        assert_eq!(appctl(&["bond/set-active-slave", "bond0", "p1"]), "done\n");
        let shown = appctl(&["bond/show", "bond0"]);
        assert!(shown.contains(&format!("active member mac: {}(p1)", address("p1"))), "{shown}");
        // The network may not yet forward on the link that is up again.
        assert!(wait_until(|| hosts.reaches()), "{shown}");
        let trace = appctl(&["ofproto/trace", "br0", "in_port=p3,dl_dst=ff:ff:ff:ff:ff:ff"]);
        assert!(trace.contains("(p1) is the active member of bond bond0"), "{trace}");
        let trace = appctl(&["ofproto/trace", "br0", "in_port=p2"]);
        assert!(trace.contains("(p2) is not the active member of bond bond0: dropped"), "{trace}");
        fixture.done("set port bond0 other_config:bond-primary=p2");
        assert!(wait_until(|| active() == address("p2")), "{}", active());
        let refused = daemon.ovs_appctl(&["bond/set-active-member", "bond0", "p1"]);
        let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(reason.contains("while the primary member p2 is enabled"), "{reason}");
        fixture.done("set port bond0 bond_mode=balance-tcp");
        let error = || fixture.done("get interface p1 error");
        assert!(wait_until(|| error().contains("`balance-tcp` needs LACP")), "{}", error());
        fixture.done("set port bond0 bond_mode=balance-slb");
        assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
        assert!(bond_line(&daemon).contains("bond0 (balance-slb: "), "{}", bond_line(&daemon));
        hosts.each_member_carries_the_host(&daemon);
        fixture.done("set port bond0 bond_mode=active-backup");
        assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
        a_refused_bond_has_no_ports(&fixture, &daemon, &hosts);
        // The delay applies to links, and not to a device that has disappeared.
        fixture.done("set port bond0 bond_downdelay=600000");
        assert!(wait_until(|| active() == address("p2")), "{}", active());
        fixture.namespace.run("ip", &["link", "del", "p2"]);
        assert!(wait_until(|| bond_line(&daemon).contains("p1 active")), "{}", show(&daemon));
        // A Linux bridge changes its address when the bridge loses a port.
        hosts.host.run("ip", &["neigh", "flush", "all"]);
        assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
        let refused = daemon.ovs_appctl(&["bond/enable-member", "bond0", "p2"]);
        let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(reason.contains("member p2 has no open port"), "{reason}");
        fixture.done("del-port br0 bond0");
        assert!(wait_until(|| bond_line(&daemon).is_empty()), "{}", show(&daemon));
    }
}

/// The database has the active member, which a restarted daemon keeps.
#[test]
fn the_active_member_survives_a_restart() {
    for fixture in DaemonFixture::both("bond") {
        let Some(hosts) = hosts(&fixture.namespace) else { return };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p3");
        fixture.done("add-bond br0 bond0 p1 p2");
        assert!(wait_until(|| bond_line(&daemon).contains("p1 active")), "{}", show(&daemon));
        text(&daemon.ovs_appctl(&["bond/set-active-member", "bond0", "p2"]));
        let address = fixture.namespace.run("cat", &["/sys/class/net/p2/address"]);
        let reported = || fixture.done("get port bond0 bond_active_slave");
        assert!(wait_until(|| reported().contains(address.trim())), "{}", reported());
        fixture.done("set port bond0 other_config:bond-detect-mode=miimon");
        let error = || fixture.done("get interface p1 error");
        assert!(wait_until(|| error().contains("bond-detect-mode miimon")), "{}", error());
        drop(daemon);
        let daemon = fixture.start();
        assert!(wait_until(|| bond_line(&daemon).contains("p2 active")), "{}", daemon.log());
        assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
        assert!(bond_line(&daemon).contains("p2 active"), "{}", daemon.log());
    }
}

/// Returns the configuration of the ports of [`hosts`] with a bond.
fn configuration(mode: &str) -> String {
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\n");
    format!(
        "[[bridge]]\nname = \"br0\"\n{}{}{}[[bridge.bond]]\nname = \"bond0\"\n\
         members = [\"p1\", \"p2\"]\nmode = \"{mode}\"\n",
        port("p1"),
        port("p2"),
        port("p3"),
    )
}

/// Sends broadcasts from 300 addresses, and prints how many came back.
///
/// Each address sends four times, because the rate of learning has a limit.
const BROADCASTS: &str = "python3 - <<'END'\n\
    import socket, subprocess, time\n\
    own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))\n\
    own.bind(('eth0', 0))\n\
    for host in 4 * list(range(300)):\n    \
        source = bytes([2, 0, 0, 1, host >> 8, host & 255])\n    \
        own.send(b'\\xff' * 6 + source + b'\\x88\\xb5' + bytes(46))\n    \
        time.sleep(0.001)\n\
    ping = ['ping', '-q', '-c', '3', '-W', '1', '10.68.1.2']\n\
    subprocess.run(ping, stdout=subprocess.DEVNULL)\n\
    copies = 0\n\
    try:\n    \
        while own.recv(2048, socket.MSG_DONTWAIT): copies += 1\n\
    except BlockingIOError:\n    \
        print(copies)\n\
    END";

/// The network sends half of the broadcasts back on the active member.
#[test]
fn no_host_gets_its_own_broadcast_back() {
    let Some(middle) = namespace_or_skip("bond") else { return };
    let Some(hosts) = hosts(&middle) else { return };
    let file = format!("[threads]\npacket = 2\n{}", configuration("balance-slb"));
    let daemon = Daemon::start_with(&file, |program| middle.command(&program.to_string_lossy()));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
    assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
    let copies = hosts.host.run("bash", &["-c", BROADCASTS]);
    let macs = || text(&daemon.shuntctl(&["macs", "br0"]));
    let count = |port: &str| {
        let shown = macs();
        let own = shown.lines().filter(|line| line.contains("02:00:00:01:"));
        own.filter(|line| line.split_whitespace().next() == Some(port)).count()
    };
    assert!(wait_until(|| count("3") == 300), "{} at p3: {}", count("3"), macs());
    assert_eq!((copies.trim(), count("1"), count("2")), ("0", 0, 0), "{}", macs());
    let drops = text(&daemon.shuntctl(&["drops"]));
    assert!(drops.contains("bond_loop"), "copies came back: {drops}");
}

#[test]
fn shuntctl_adds_and_deletes_bonds() {
    let Some(middle) = namespace_or_skip("bond") else { return };
    let Some(hosts) = hosts(&middle) else { return };
    let file = configuration("active-backup");
    let daemon = Daemon::start_with(&file, |program| middle.command(&program.to_string_lossy()));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
    pings_survive_a_lost_link(&daemon, &hosts);
    let done = |arguments: &[&str]| text(&daemon.shuntctl(arguments));
    // The network floods to both members, and the inactive member drops its copy.
    assert!(
        wait_until(|| done(&["drops"]).contains("bond_member_inactive")),
        "{}",
        done(&["drops"])
    );
    // Both members of a loop flood forever, so one link is set down first.
    hosts.set_link("x2", "down");
    assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
    done(&["del-bond", "br0", "bond0"]);
    assert_eq!(bond_line(&daemon), "");
    assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
    let refused = daemon.shuntctl(&["del-bond", "br0", "bond0"]);
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("there is no bond bond0; existing bonds: none"), "{reason}");
    let refused = daemon.shuntctl(&["add-bond", "br0", "p3", "members=p1,p2"]);
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("bond p3"), "{reason}");
    done(&["add-br", "br1"]);
    let refused = daemon.shuntctl(&["add-bond", "br1", "bond1", "members=p1,p9"]);
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("bond bond1: member p1 is a port of bridge br0"), "{reason}");
    done(&["add-bond", "br0", "bond0", "members=p1,p2", "primary=p1", "downdelay_ms=50"]);
    let refused = daemon.ovs_appctl(&["bond/enable-member", "bond0", "p2"]);
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("member p2 cannot be enabled, because its link is down"), "{reason}");
    assert_eq!(bond_line(&daemon), "bond bond0 (active-backup: p1 active, p2 disabled)");
    hosts.set_link("x2", "up");
    hosts.set_link("x1", "down");
    assert!(wait_until(|| bond_line(&daemon).contains("p2 active")), "{}", daemon.log());
    assert!(daemon.log().contains("will be disabled if its link stays down for 50 ms"));
    assert!(wait_until(|| hosts.reaches()), "{}", show(&daemon));
}

/// The rows of members have the error of a bond that the running switch refuses.
#[test]
fn duplicate_lacp_port_number_is_refused() {
    for fixture in DaemonFixture::both("bond") {
        let daemon = fixture.start();
        start_two_bonds(&fixture);
        let number = fixture.done("get interface n1 ofport");
        let wrong = format!("other_config:lacp-port-id={number}");
        let error = |name: &str| fixture.done(&format!("get interface {name} error"));
        let is_refused = |name: &str| {
            error(name).contains(
                "port n1: another member of a bond has the number of this port as `lacp_port_id`",
            )
        };
        // The running bond remains unchanged.
        fixture.done(&format!("set interface n3 {wrong}"));
        assert!(wait_until(|| is_refused("n3") && is_refused("n4")), "{}", error("n3"));
        assert!(show(&daemon).contains("bond bond1 ("), "{}", show(&daemon));
        fixture.done("set interface n3 other_config:lacp-port-id=77");
        assert!(wait_until(|| error("n3") == "[]"), "{}", error("n3"));
        // Ports that become members are removed: without the bond, the ports are a loop.
        let ports = "-- set interface n3 type=null -- set interface n4 type=null";
        fixture.done(&format!("del-port br0 bond1 -- add-port br0 n3 -- add-port br0 n4 {ports}"));
        assert!(show(&daemon).contains("n4"), "{}", show(&daemon));
        let removed = "del-port br0 n3 -- del-port br0 n4";
        fixture
            .done(&format!("--no-wait {removed} -- {}", lacp_bond("bond1", ["n3", "n4"], &wrong)));
        assert!(wait_until(|| is_refused("n3") && is_refused("n4")), "{}", error("n3"));
        for name in ["n3", "n4"] {
            let removed = format!("port {name}: removed, because its bond was refused: port n1");
            assert!(wait_until(|| daemon.log().contains(&removed)), "{}", daemon.log());
        }
        assert!(!show(&daemon).contains("n4"), "{}", show(&daemon));
        assert!(show(&daemon).contains("bond bond0 ("), "{}", show(&daemon));
    }
}

/// A bond with a chosen key takes another one when an operator configures its key.
#[test]
fn configured_key_displaces_key_of_bond() {
    for fixture in DaemonFixture::both("bond") {
        let daemon = fixture.start();
        start_two_bonds(&fixture);
        let key = || {
            let shown = text(&daemon.ovs_appctl(&["lacp/show", "bond0"]));
            let key = shown.lines().find_map(|line| line.trim().strip_prefix("aggregation key: "));
            key.expect("a key").to_owned()
        };
        let before = key();
        fixture.done(&format!("set interface n3 other_config:lacp-aggregation-key={before}"));
        let other = || text(&daemon.ovs_appctl(&["lacp/show", "bond1"]));
        assert!(wait_until(|| other().contains(&format!("actor key: {before}\n"))), "{}", other());
        assert!(wait_until(|| key() != before), "{}", daemon.log());
        assert_eq!(fixture.done("get interface n3 error"), "[]");
        let line = format!("bond bond0: LACP key is now {}, because", key());
        assert!(daemon.log().contains(&line), "{}", daemon.log());
    }
}

/// Adds a bridge with two bonds that use LACP: `n1` with `n2`, and `n3` with `n4`.
fn start_two_bonds(fixture: &DaemonFixture) {
    fixture.done(&format!("add-br br0 -- {}", lacp_bond("bond0", ["n1", "n2"], "")));
    fixture.done(&lacp_bond("bond1", ["n3", "n4"], ""));
}

/// Returns the `ovs-vsctl` command for a bond with LACP.
///
/// `option` is set on the first member.
fn lacp_bond(name: &str, [one, two]: [&str; 2], option: &str) -> String {
    format!(
        "add-bond br0 {name} {one} {two} lacp=active -- set interface {one} type=null {option} \
         -- set interface {two} type=null"
    )
}
