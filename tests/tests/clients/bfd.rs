//! BFD sessions of ports with Open vSwitch, and with the daemon of FRR.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Stdio},
};

use shunt_tests::{
    daemon::{Daemon, error_text, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
    open_vswitch::OpenVSwitch,
};
use tempfile::TempDir;

use crate::vsctl::{DaemonFixture, show};

/// The session of a port of Open vSwitch, which expires after 600 ms.
const SESSION: &str = "bfd:enable=true bfd:min_tx=200 bfd:min_rx=200";

/// Starts Open vSwitch in `far`, behind the ports `p1` and `p2` of `middle`.
///
/// The links `x1` and `x2` are in separate bridges.
fn start_partner<'a>(middle: &Namespace, far: &'a Namespace) -> Option<OpenVSwitch<'a>> {
    for (link, port) in [("x1", "p1"), ("x2", "p2")] {
        far.connect(link, middle, port);
    }
    let partner = OpenVSwitch::start_or_skip(far)?;
    for (bridge, link) in [("far1", "x1"), ("far2", "x2")] {
        partner.vsctl(&format!(
            "add-br {bridge} -- set bridge {bridge} datapath_type=netdev \
             -- add-port {bridge} {link} -- set interface {link} {SESSION}"
        ));
    }
    Some(partner)
}

/// Returns an entry of `bfd_status` of a link of Open vSwitch.
fn far_status(partner: &OpenVSwitch<'_>, link: &str, key: &str) -> String {
    let line = format!("--if-exists get interface {link} bfd_status:{key}");
    partner.vsctl(&line).trim().trim_matches('"').to_owned()
}

/// Returns an entry of `bfd_status` of a port.
fn status(fixture: &DaemonFixture, port: &str, key: &str) -> String {
    let line = format!("--if-exists get interface {port} bfd_status:{key}");
    fixture.done(&line).trim_matches('"').to_owned()
}

fn bond_line(daemon: &Daemon) -> String {
    let shown = show(daemon);
    shown.lines().find(|line| line.contains(" bond ")).unwrap_or_default().trim().to_owned()
}

/// Checks that both sessions are up at both ends, and that the bond uses `p1`.
fn both_are_up(fixture: &DaemonFixture, daemon: &Daemon, partner: &OpenVSwitch<'_>) {
    for (port, link) in [("p1", "x1"), ("p2", "x2")] {
        let is_up = || {
            let own = ["state", "remote_state", "forwarding"].map(|key| status(fixture, port, key));
            own == ["up", "up", "true"] && far_status(partner, link, "state") == "up"
        };
        assert!(wait_until(is_up), "{port}: {}\n{}", show(daemon), daemon.log());
    }
    let line = "bond bond0 (active-backup: p1 active, p2 enabled)";
    assert!(wait_until(|| bond_line(daemon) == line), "{}", bond_line(daemon));
}

/// Checks that a session that ends at the other end moves the bond.
fn a_session_without_a_partner_leaves_the_bond(
    fixture: &DaemonFixture,
    daemon: &Daemon,
    partner: &OpenVSwitch<'_>,
) {
    partner.vsctl("set interface x1 bfd:enable=false");
    let line = "bond bond0 (active-backup: p1 disabled, p2 active)";
    assert!(wait_until(|| bond_line(daemon) == line), "{}", bond_line(daemon));
    let expired = "port p1: BFD state up -> down, Control Detection Time Expired";
    assert!(daemon.log().contains(expired), "{}", daemon.log());
    let reason = || status(fixture, "p1", "diagnostic");
    assert!(wait_until(|| reason() == "Control Detection Time Expired"), "{}", reason());
    assert_eq!(fixture.done("get interface p1 link_state"), "up");
    let shown = show(daemon);
    assert!(shown.contains("bfd down (Control Detection Time Expired)"), "{shown}");
    partner.vsctl("set interface x1 bfd:enable=true");
    // The primary member is active again.
    both_are_up(fixture, daemon, partner);
}

/// Checks that a silent partner takes both sessions down, while the links stay up.
fn a_silent_partner_takes_sessions_down(
    fixture: &DaemonFixture,
    daemon: &Daemon,
    partner: &OpenVSwitch<'_>,
) {
    let live = || text(&daemon.ovs_ofctl("br0", "dump-ports-desc", &[])).matches("LIVE").count();
    let before = live();
    partner.signal("-STOP");
    let line = "bond bond0 (active-backup: p1 disabled, p2 disabled)";
    assert!(wait_until(|| bond_line(daemon) == line), "{}", bond_line(daemon));
    assert!(wait_until(|| live() + 2 == before), "{before} ports were live, and now {}", live());
    partner.signal("-CONT");
    both_are_up(fixture, daemon, partner);
    assert!(wait_until(|| live() == before), "{before} ports were live, and now {}", live());
}

/// Checks the states that an operator sets at either end.
fn operators_decide(fixture: &DaemonFixture, daemon: &Daemon, partner: &OpenVSwitch<'_>) {
    partner.vsctl("set interface x1 bfd:cpath_down=true");
    let cause = || status(fixture, "p1", "remote_diagnostic");
    assert!(wait_until(|| cause() == "Concatenated Path Down"), "{}", cause());
    assert!(wait_until(|| status(fixture, "p1", "forwarding") == "false"), "{}", show(daemon));
    assert_eq!(status(fixture, "p1", "state"), "up");
    partner.vsctl("set interface x1 bfd:cpath_down=false");
    assert!(wait_until(|| status(fixture, "p1", "forwarding") == "true"), "{}", show(daemon));
    fixture.done("set interface p1 bfd:cpath_down=true");
    assert!(wait_until(|| far_status(partner, "x1", "forwarding") == "false"), "{}", show(daemon));
    fixture.done("remove interface p1 bfd cpath_down");
    assert!(wait_until(|| far_status(partner, "x1", "forwarding") == "true"), "{}", show(daemon));
    let appctl = |arguments: &[&str]| text(&daemon.ovs_appctl(arguments));
    assert_eq!(appctl(&["bfd/set-forwarding", "p2", "false"]), "OK\n");
    assert!(wait_until(|| bond_line(daemon).contains("p2 disabled")), "{}", show(daemon));
    assert_eq!(appctl(&["bfd/set-forwarding", "normal"]), "OK\n");
    assert!(wait_until(|| bond_line(daemon).contains("p2 enabled")), "{}", show(daemon));
    // When the switch ends a session, the session sends a last packet.
    fixture.done("set interface p2 bfd:enable=false");
    let reason = || far_status(partner, "x2", "diagnostic");
    assert!(wait_until(|| reason() == "Neighbor Signaled Session Down"), "{}", reason());
    assert!(wait_until(|| fixture.done("get interface p2 bfd_status") == "{}"), "{}", show(daemon));
    fixture.done("set interface p2 bfd:enable=true");
    both_are_up(fixture, daemon, partner);
}

#[test]
fn sessions_with_open_vswitch_decide_about_a_bond() {
    for fixture in DaemonFixture::both("bfd") {
        let Some(far) = namespace_or_skip("bfd") else { return };
        let Some(partner) = start_partner(&fixture.namespace, &far) else { return };
        let daemon = fixture.start();
        fixture.done(&format!(
            "add-br br0 -- add-bond br0 bond0 p1 p2 bond_mode=active-backup \
             other_config:bond-primary=p1 \
             -- set interface p1 {SESSION} -- set interface p2 {SESSION}"
        ));
        both_are_up(&fixture, &daemon, &partner);
        let trace = text(&daemon.ovs_appctl(&[
            "ofproto/trace",
            "br0",
            "in_port=p1,udp,nw_ttl=255,tp_dst=3784",
        ]));
        assert!(trace.contains("userspace(slow_path(bfd))"), "{trace}");
        assert!(trace.contains("for the session of the port alone"), "{trace}");
        let shown = text(&daemon.ovs_appctl(&["bfd/show", "p1"]));
        for part in [
            "  Forwarding: true\n",
            "  TX Interval: Approx 200ms\n",
            "  Local Session State: up\n",
            "  Local Minimum TX Interval: 200ms\n",
            "  Remote Minimum RX Interval: 200ms\n",
            "  Remote Detect Multiplier: 3\n",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        a_session_without_a_partner_leaves_the_bond(&fixture, &daemon, &partner);
        a_silent_partner_takes_sessions_down(&fixture, &daemon, &partner);
        operators_decide(&fixture, &daemon, &partner);
        // If the intervals change, the session remains up.
        let flaps = status(&fixture, "p1", "flap_count");
        fixture.done("set interface p1 bfd:min_tx=300 bfd:min_rx=400 bfd:mult=5");
        partner.vsctl("set interface x1 bfd:min_tx=500 bfd:min_rx=600");
        let shown = || text(&daemon.ovs_appctl(&["bfd/show", "p1"]));
        let is_new = || {
            shown().contains("TX Interval: Approx 600ms\n  RX Interval: Approx 500ms\n")
                && shown().contains("Local Flags: none")
        };
        assert!(wait_until(is_new), "{}", shown());
        assert_eq!(status(&fixture, "p1", "flap_count"), flaps, "{}", daemon.log());
        fixture.done("set interface p1 bfd:mult=many bfd:nosuch=1");
        let error = || fixture.done("get interface p1 error");
        let is_named = || {
            error().contains("bfd:mult has no effect: mult = many: it must be 1 to 255")
                && error().contains("bfd:nosuch has no effect")
        };
        assert!(wait_until(is_named), "{}", error());
        let unknown = daemon.ovs_appctl(&["bfd/show", "nosuch"]);
        assert!(error_text(&unknown).contains("no such bfd object"));
        // The sessions of removed ports end with a last packet.
        fixture.done("del-port br0 bond0");
        for link in ["x1", "x2"] {
            let reason = || far_status(&partner, link, "diagnostic");
            assert!(wait_until(|| reason() == "Neighbor Signaled Session Down"), "{}", reason());
        }
    }
}

/// The daemons of FRR, with their files in a folder.
struct Frr<'a> {
    namespace: &'a Namespace,
    folder: TempDir,
    daemons: Vec<Child>,
}

/// Folder of the daemons of FRR.
const FRR: &str = "/usr/lib/frr";

impl<'a> Frr<'a> {
    /// Starts `zebra` and `bfdd`, or prints that these programs are not installed.
    fn start_or_skip(namespace: &'a Namespace, configuration: &str) -> Option<Self> {
        if !Path::new(FRR).join("bfdd").exists() {
            print_skipped("FRR is not installed: apt-get install frr");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        // The daemons change to a separate user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a folder");
        fs::write(folder.path().join("frr.conf"), configuration).expect("a file");
        let mut frr = Self { namespace, folder, daemons: Vec::new() };
        let socket = frr.path("zserv");
        let control = vec!["--bfdctl".to_owned(), frr.path("bfdd.sock")];
        for (daemon, more) in [("zebra", Vec::new()), ("bfdd", control)] {
            let mut command = namespace.command(&format!("{FRR}/{daemon}"));
            command.args(["-z", &socket, "-A", "127.0.0.1"]);
            command.args(["--vty_socket", &frr.path(""), "-i", &frr.path(daemon)]);
            command.args(["-f", &frr.path("frr.conf"), "--log", "stdout"]).args(more);
            let log = fs::File::create(frr.path(&format!("{daemon}.log"))).expect("a file");
            command.stdout(log).stderr(Stdio::null());
            frr.daemons.push(command.spawn().expect("the daemon starts"));
            let vty = frr.path(&format!("{daemon}.vty"));
            assert!(wait_until(|| Path::new(&vty).exists()), "{daemon} has no socket");
        }
        Some(frr)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns the output of commands of `bfdd`.
    fn vtysh(&self, commands: &[&str]) -> String {
        let mut command = self.namespace.command("vtysh");
        command.args(["--vty_socket", &self.path(""), "-d", "bfdd"]);
        for own in commands {
            command.args(["-c", own]);
        }
        text(&shunt_tests::daemon::output(&mut command))
    }

    fn peers(&self) -> String {
        self.vtysh(&["show bfd peers"])
    }
}

impl Drop for Frr<'_> {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // A process that has ended already needs no signal.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// The session of FRR with the switch, which expires after 600 ms.
const FRR_SESSION: &str = "bfd\n peer 192.0.2.1 local-address 192.0.2.2 interface x1\n  \
    detect-multiplier 3\n  receive-interval 200\n  transmit-interval 200\n exit\nexit\n";

#[test]
fn a_session_with_frr_comes_up_and_expires() {
    let (Some(middle), Some(far)) = (namespace_or_skip("bfd"), namespace_or_skip("bfd")) else {
        return;
    };
    far.connect("x1", &middle, "p1");
    far.run("ip", &["addr", "add", "192.0.2.2/24", "dev", "x1"]);
    let mac = |namespace: &Namespace, device: &str| {
        let path = format!("/sys/class/net/{device}/address");
        namespace.run("cat", &[&path]).trim().to_owned()
    };
    // The switch answers no ARP requests for the address of the session.
    let neighbor = ["neigh", "add", "192.0.2.1", "lladdr", &mac(&middle, "p1"), "dev", "x1"];
    far.run("ip", &neighbor);
    let Some(mut frr) = Frr::start_or_skip(&far, FRR_SESSION) else { return };
    let file = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\n";
    let daemon = Daemon::start_with(file, |program| middle.command(&program.to_string_lossy()));
    let destination = format!("local_dst_mac={}", mac(&far, "x1"));
    let addresses = ["src_ip=192.0.2.1", "dst_ip=192.0.2.2", &destination];
    let session = [&["set-bfd", "p1", "min_tx_ms=200", "min_rx_ms=200"][..], &addresses].concat();
    text(&daemon.shuntctl(&session));
    let is_up =
        |frr: &Frr<'_>| show(&daemon).contains("bfd up") && frr.peers().contains("Status: up");
    assert!(wait_until(|| is_up(&frr)), "{}\n{}", show(&daemon), frr.peers());
    let shown = || text(&daemon.ovs_appctl(&["bfd/show", "p1"]));
    let is_fast = || {
        shown().contains("TX Interval: Approx 200ms\n  RX Interval: Approx 200ms\n")
            && shown().contains("Local Flags: none")
    };
    assert!(wait_until(is_fast), "{}", shown());
    let peer = "peer 192.0.2.1 local-address 192.0.2.2 interface x1";
    frr.vtysh(&["configure terminal", "bfd", peer, "shutdown"]);
    let down = "bfd down (Neighbor Signaled Session Down)";
    assert!(wait_until(|| show(&daemon).contains(down)), "{}", show(&daemon));
    assert!(shown().contains("Remote Session State: admin_down"), "{}", shown());
    frr.vtysh(&["configure terminal", "bfd", peer, "no shutdown"]);
    assert!(wait_until(|| is_up(&frr)), "{}\n{}", show(&daemon), frr.peers());
    // The switch ends the session with a last packet.
    text(&daemon.shuntctl(&["set-bfd", "p1"]));
    assert!(wait_until(|| frr.peers().contains("Status: down")), "{}", frr.peers());
    text(&daemon.shuntctl(&session));
    assert!(wait_until(|| is_up(&frr)), "{}\n{}", show(&daemon), frr.peers());
    // The partner ends without a last packet.
    let _ = frr.daemons.pop().map(|mut bfdd| bfdd.kill().and_then(|()| bfdd.wait()));
    let expired = "bfd down (Control Detection Time Expired)";
    assert!(wait_until(|| show(&daemon).contains(expired)), "{}", show(&daemon));
}
