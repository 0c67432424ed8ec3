//! `ovs-appctl` as operators and scripts call it: without the name of a daemon.

use std::{
    fs,
    io::Read,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::{Daemon, errors, wait_until};

const BRIDGE: &str =
    "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n";

/// Runs `ovs-appctl`; `None` if it is not installed.
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
pub(crate) fn ovs_appctl(run_dir: &Path, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("ovs-appctl");
    command.env("OVS_RUNDIR", run_dir).args(arguments).stdin(Stdio::null());
    let output = command.output().ok();
    if output.is_none() {
        eprintln!("SKIPPED: ovs-appctl is not installed");
    }
    output
}

pub(crate) fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", errors(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ovs_appctl_finds_the_daemon_without_its_name() {
    let daemon = Daemon::start(BRIDGE);
    for name in [&[][..], &["-t", "shuntd"], &["-t", "ovs-vswitchd"]] {
        let arguments = [name, &["version"]].concat();
        let Some(output) = ovs_appctl(daemon.run_dir(), &arguments) else { return };
        assert!(out(&output).contains("shuntd (Shunt)"), "{arguments:?}");
    }
}

/// Another process holds the record lock,
/// as a running `ovs-vswitchd` does on its pid file.
#[test]
fn the_names_of_a_running_daemon_stay() {
    let first = Daemon::start(BRIDGE);
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("ovs-vswitchd.pid");
    // The hard link is a second name of the first daemon's pid file, which that daemon has locked.
    fs::hard_link(first.run_dir().join("shuntd.pid"), &taken).unwrap();
    fs::write(folder.path().join("shunt.toml"), BRIDGE).unwrap();
    let second = Daemon { process: crate::spawn(folder.path()), folder };
    second.wait_for_answer();
    assert!(!fs::symlink_metadata(&taken).unwrap().is_symlink());
    let expected = format!("belongs to process {}", first.process.id());
    assert!(second.log().contains(&expected), "{}", second.log());
    second.answer(&["exit"]);
    assert!(taken.exists(), "a daemon removes only the links that it made");
}

#[test]
fn a_killed_daemon_leaves_no_stale_names() {
    let mut daemon = Daemon::start(BRIDGE);
    let mut killed = daemon.kill_and_start_again();
    killed.wait().unwrap();
    let old = format!("ovs-vswitchd.{}.ctl", killed.id());
    assert!(fs::symlink_metadata(daemon.run_dir().join(old)).is_err());
    let Some(output) = ovs_appctl(daemon.run_dir(), &["version"]) else { return };
    assert!(out(&output).contains("shuntd (Shunt)"));
}

#[test]
fn errors_have_the_exit_code_of_open_vswitch() {
    let daemon = Daemon::start(BRIDGE);
    for (arguments, expected) in [
        (&["no/such"][..], "\"no/such\" is not a valid command"),
        (&["fdb/shwo"], "did you mean \"fdb/show\"?"),
        (&["fdb/show"], "\"fdb/show\" command requires at least 1 arguments"),
        (&["version", "x"], "\"version\" command takes at most 0 arguments"),
        (&["dpctl/dump-conntrack"], "connection tracking does not exist"),
        (&["dpctl/del-flows", "dp9"], "dp9: datapath not found"),
        (&["dpif/show-dp-features", "br9"], "no such bridge"),
        (&["netdev-dpdk/detach", "p1"], "use `shuntctl del-port`"),
        (&["ovs/route/lookup", "10.0.0.1"], "Not found"),
        (&["upcall/disable-megaflows"], "use `shuntctl set caches.kind=flows`"),
        (&["upcall/set-flow-limit", "abc"], "bad flow limit \"abc\""),
        (&["upcall/set-flow-limit", "0"], "must be a whole number, at least 1"),
        (&["upcall/set-flow-limit", "99999999999"], "it must be from 1 to 16777216"),
        (
            &["upcall/set-flow-limit"],
            "\"upcall/set-flow-limit\" command requires at least 1 arguments",
        ),
        (&["fdb/add", "br0", "p1", "0"], "\"fdb/add\" command requires at least 4 arguments"),
        (&["fdb/add", "br9", "p1", "0", "50:54:00:00:00:01"], "no such bridge: br9; existing"),
        (&["fdb/add", "br0", "p9", "0", "50:54:00:00:00:01"], "no such port: p9; existing"),
        (&["fdb/add", "br0", "p1", "4095", "50:54:00:00:00:01"], "bad VLAN \"4095\""),
        (&["fdb/add", "br0", "p1", "0", "50:54:00"], "bad MAC address \"50:54:00\""),
        (&["fdb/add", "br0", "p1", "0", "ff:ff:ff:ff:ff:ff"], "ff:ff:ff:ff:ff:ff is a group"),
        (&["fdb/del", "br0", "0", "50:54:00:00:00:01"], "could not find static mac entry"),
        (&["fdb/del", "br9", "0", "50:54:00:00:00:01"], "no such bridge: br9"),
        (&["bond/show", "bond0"], "no such bond"),
        (&["qos/show", "p9"], "no such interface"),
        (&["mdb/show", "br0"], "multicast snooping is disabled"),
        (&["vlog/set", "nosuch:dbg"], "no destination, level, or module \"nosuch\""),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    }
}

/// Each text is the one of `ovs-vswitchd` 3.1 after the same commands.
#[test]
fn static_macs_answer_like_open_vswitch() {
    let port = "[[bridge.port]]\nname = \"p2\"\ntype = \"null\"\n";
    let daemon = Daemon::start(&format!("{BRIDGE}{port}"));
    let head = " port  VLAN  MAC                Age\n";
    let shown = |rows: &str| format!("{head}{rows}");
    let mac = "02:00:00:00:00:01";
    let first = shown("    1     0  02:00:00:00:00:01  static\n");
    let moved =
        shown("    2     0  02:00:00:00:00:01  static\nLOCAL     7  02:00:00:00:00:03  static\n");
    let stats = "Statistics for bridge \"br0\":\n  \
                 Current/maximum MAC entries in the table: 2/8192\n  \
                 Current static MAC entries in the table : 2\n  \
                 Total number of learned MAC entries     : 0\n";
    let left = shown("LOCAL     7  02:00:00:00:00:03  static\n");
    for (arguments, expected) in [
        (&["fdb/add", "br0", "p1", "0", mac][..], ""),
        (&["fdb/add", "br0", "p1", "0", mac], ""),
        (&["fdb/show", "br0"], &first),
        (&["fdb/add", "br0", "p2", "0", mac], "Overriding already existing static entry on 1\n"),
        (&["fdb/add", "br0", "br0", "7", "02:00:00:00:00:03"], ""),
        (&["fdb/flush", "br0"], "table successfully flushed\n"),
        (&["fdb/show", "br0"], &moved),
        (&["fdb/stats-show", "br0"], stats),
        (&["fdb/del", "br0", "0", mac], ""),
        (&["fdb/show", "br0"], &left),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert!(out(&output).starts_with(expected), "{arguments:?}: {}", out(&output));
        assert_eq!(out(&output).is_empty(), expected.is_empty(), "{arguments:?}");
    }
}

#[test]
fn absent_features_answer_like_open_vswitch() {
    let daemon = Daemon::start(BRIDGE);
    for (arguments, expected) in [
        (&["bond/list"][..], "bond\ttype\trecircID\tmembers\n"),
        (&["bond/show"], ""),
        (&["lacp/show"], ""),
        (&["bfd/show"], ""),
        (&["stp/show"], ""),
        (&["qos/show", "p1"], "QoS not configured on p1\n"),
        (&["ofproto/list"], "br0\n"),
        (&["ofproto/list-tunnels"], ""),
        (&["revalidator/wait"], ""),
        (&["dpctl/del-flows"], ""),
        (&["dpctl/del-flows", "ovs-netdev"], ""),
        (&["dpif-netdev/bond-show"], ""),
        (&["ovs/route/show"], "Route Table:\n"),
        (&["vlog/close"], ""),
        (&["upcall/enable-megaflows"], "megaflows enabled\n"),
        (
            &["upcall/enable-ufid"],
            "Datapath dumping tersely using UFID enabled for supported datapaths\n",
        ),
        (&["upcall/set-flow-limit", "5000"], "set flow_limit to 5000\n"),
        (&["fdb/flush"], "table successfully flushed\n"),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert_eq!(out(&output), expected, "{arguments:?}");
    }
}

/// The lines have the order of `ovs-vswitchd` 3.1.
#[test]
fn features_of_the_datapath_are_listed() {
    let daemon = Daemon::start(BRIDGE);
    let Some(output) = ovs_appctl(daemon.run_dir(), &["dpif/show-dp-features", "br0"]) else {
        return;
    };
    let text = out(&output);
    assert!(text.starts_with("Masked set action: Yes\nTunnel push pop: No\nUfid: Yes\n"), "{text}");
    assert!(text.contains("Max VLAN headers: 2\nMax MPLS depth: 3\nRecirc: Yes\n"), "{text}");
    assert!(text.ends_with("CT orig tuple for IPv6: No\nIPv6 ND Extension: Yes\n"), "{text}");
    assert_eq!(text.lines().count(), 26);
    let Some(output) = ovs_appctl(daemon.run_dir(), &["dpctl/list-commands"]) else { return };
    let text = out(&output);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("The available commands are:"));
    assert!(lines.all(|line| line.starts_with("  dpctl/")), "{text}");
}

/// With flows alone, there are no megaflows to enable.
#[test]
fn a_limit_of_flows_is_shown_and_kept() {
    let daemon = Daemon::start(&format!("[threads]\npacket = 3\n{BRIDGE}"));
    let limit = || {
        let shown = ovs_appctl(daemon.run_dir(), &["upcall/show"]).map(|shown| out(&shown))?;
        Some(shown.split_once("(limit ")?.1.split_once(')')?.0.to_owned())
    };
    let Some(first) = limit() else { return };
    assert_eq!(first, (3 * 262_144).to_string());
    // Each of three packet threads gets the same share, rounded up.
    let Some(output) = ovs_appctl(daemon.run_dir(), &["upcall/set-flow-limit", "100"]) else {
        return;
    };
    assert_eq!(out(&output), "set flow_limit to 102\n");
    assert_eq!(limit().as_deref(), Some("102"));
    daemon.answer(&["set", "caches.kind=flows"]);
    let Some(output) = ovs_appctl(daemon.run_dir(), &["upcall/enable-megaflows"]) else { return };
    assert!(errors(&output).contains("shuntctl set caches.kind=megaflow"), "{}", errors(&output));
}

#[test]
fn buckets_of_bonds_are_shown_and_moved() {
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"null\"\n");
    let bond = |name: &str, members: &str, mode: &str| {
        format!("[[bridge.bond]]\nname = \"{name}\"\nmembers = [{members}]\nmode = \"{mode}\"\n")
    };
    let ports: String = ["p1", "p2", "p3", "p4"].map(port).concat();
    let bonds = [
        bond("bond0", "\"p1\", \"p2\"", "balance-slb"),
        bond("bond1", "\"p3\", \"p4\"", "active-backup"),
    ];
    let daemon = Daemon::start(&format!("[[bridge]]\nname = \"br0\"\n{ports}{}", bonds.concat()));
    let listed = "bond\ttype\trecircID\tmembers\nbond0\tbalance-slb\t0\tp1, p2\n\
                  bond1\tactive-backup\t0\tp3, p4\n";
    for (arguments, expected) in [
        (&["bond/list"][..], listed),
        (&["bond/hash", "02:00:00:00:00:01"], "38\n"),
        (&["bond/hash", "02:00:00:00:00:01", "10"], "218\n"),
        (&["bond/hash", "02:00:00:00:00:01", "10", "3"], "19\n"),
        (&["bond/migrate", "bond0", "3", "p1"], "migrated\n"),
        (&["bond/migrate", "bond0", "999", "p2"], "migrated\n"),
        (&["bond/disable-member", "bond0", "p1"], "disabled\n"),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert_eq!(out(&output), expected, "{arguments:?}");
    }
    for (arguments, expected) in [
        (&["bond/hash", "zz"][..], "invalid mac"),
        (&["bond/hash", "02:00:00:00:00:01", "x"], "invalid vlan"),
        (&["bond/hash", "02:00:00:00:00:01", "1", "x"], "invalid basis"),
        (&["bond/migrate", "bond0", "3", "p1"], "cannot migrate to disabled member"),
        (&["bond/migrate", "bond0", "3", "p9"], "no such member"),
        (&["bond/migrate", "bond1", "3", "p3"], "not an SLB bond"),
        (&["bond/migrate", "bond9", "3", "p3"], "no such bond"),
        (&["bond/migrate", "bond0", "x", "p2"], "bad hash"),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    }
    let Some(output) = ovs_appctl(daemon.run_dir(), &["bond/show", "bond0"]) else { return };
    assert!(out(&output).contains("\nall members active: false\n"), "{}", out(&output));
}

#[test]
fn bond_commands_work_like_open_vswitch() {
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"null\"\n");
    let bond = "[[bridge.bond]]\nname = \"bond0\"\nmembers = [\"p1\", \"p2\"]\n";
    let file = format!("[[bridge]]\nname = \"br0\"\n{}{}{bond}", port("p1"), port("p2"));
    let daemon = Daemon::start(&file);
    let listed = "bond\ttype\trecircID\tmembers\nbond0\tactive-backup\t0\tp1, p2\n";
    for (arguments, expected) in [
        (&["bond/list"][..], listed),
        (&["bond/set-active-member", "bond0", "p2"], "done\n"),
        (&["bond/set-active-slave", "bond0", "p1"], "done\n"),
        (&["bond/disable-member", "bond0", "p1"], "disabled\n"),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert_eq!(out(&output), expected, "{arguments:?}");
    }
    let Some(output) = ovs_appctl(daemon.run_dir(), &["bond/show", "bond0"]) else { return };
    let shown = out(&output);
    let members =
        "member p1: disabled\n  may_enable: true\n\nmember p2: enabled\n  active member\n";
    assert!(shown.contains(members), "{shown}");
    for (arguments, expected) in [
        (&["bond/set-active-member", "bond0", "p1"], "cannot make disabled member active"),
        (&["bond/set-active-member", "bond0", "p9"], "no such member"),
        (&["bond/enable-member", "bond9", "p1"], "no such bond"),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn log_levels_change_by_module() {
    let daemon = Daemon::start(BRIDGE);
    let Some(output) = ovs_appctl(daemon.run_dir(), &["vlog/set", "ofproto:console:dbg"]) else {
        return;
    };
    assert_eq!(out(&output), "");
    let Some(output) = ovs_appctl(daemon.run_dir(), &["vlog/list"]) else { return };
    let listed = out(&output);
    let line = listed.lines().find(|line| line.starts_with("shunt_ofproto")).unwrap();
    assert!(line.contains("DBG"), "{listed}");
}

#[test]
fn a_reconnect_closes_and_opens_connections() {
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    controller.set_nonblocking(true).unwrap();
    let address = controller.local_addr().unwrap();
    let bridge = format!("[[bridge]]\nname = \"br0\"\ncontrollers = [\"tcp:{address}\"]\n");
    let daemon = Daemon::start(&bridge);
    let mut connection = None;
    let accept = |connection: &mut Option<TcpStream>| {
        *connection = controller.accept().ok().map(|(stream, _)| stream);
        connection.is_some()
    };
    assert!(wait_until(|| accept(&mut connection)), "{}", daemon.log());
    let mut first = connection.take().unwrap();
    let Some(output) = ovs_appctl(daemon.run_dir(), &["bridge/reconnect", "br0"]) else { return };
    assert_eq!(out(&output), "");
    first.set_nonblocking(false).unwrap();
    first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    assert!(first.read_to_end(&mut rest).is_ok(), "the first connection is closed");
    assert!(wait_until(|| accept(&mut connection)), "{}", daemon.log());
    let output = ovs_appctl(daemon.run_dir(), &["bridge/reconnect", "br9"]).unwrap();
    assert!(errors(&output).starts_with("Unknown bridge"), "{}", errors(&output));
}
