//! `ovs-vsctl` against the embedded OVSDB server of the daemon.

use std::{
    path::Path,
    process::{Command, Output},
};

use shunt_tests::{
    daemon::{Daemon, output},
    namespace::{Namespace, namespace_or_skip, skipped},
};
use tempfile::TempDir;

/// A daemon in a namespace, with a database in a folder of its own.
struct Bench {
    namespace: Namespace,
    folder: TempDir,
}

impl Bench {
    fn new() -> Option<Self> {
        let is_installed = Command::new("ovs-vsctl").arg("--version").output().is_ok();
        if !is_installed || !Path::new("/dev/net/tun").exists() {
            skipped("ovs-vsctl or /dev/net/tun is missing: apt-get install openvswitch-switch");
            return None;
        }
        let namespace = namespace_or_skip("vsctl")?;
        Some(Self { namespace, folder: tempfile::tempdir().expect("a folder") })
    }

    fn start(&self) -> Daemon {
        let [socket, log] = ["db.sock", "conf.db"].map(|name| self.folder.path().join(name));
        let text = format!("[ovsdb]\nsocket = {socket:?}\nlog = {log:?}\n");
        Daemon::start_with(&text, |program| {
            self.namespace.command(program.to_str().expect("a path in UTF-8"))
        })
    }

    fn vsctl(&self, line: &str) -> Output {
        let database = format!("--db=unix:{}", self.folder.path().join("db.sock").display());
        let mut command = Command::new("ovs-vsctl");
        output(command.args([&database, "--timeout=10"]).args(line.split_whitespace()))
    }

    /// Runs a command that succeeds. Returns its output without the last line end.
    fn done(&self, line: &str) -> String {
        let result = self.vsctl(line);
        assert!(result.status.success(), "{line}: {}", String::from_utf8_lossy(&result.stderr));
        String::from_utf8_lossy(&result.stdout).trim_end().to_owned()
    }
}

/// Each command returns when the switch has done what it asks for.
#[test]
fn vsctl_configures_bridges_and_ports() {
    let Some(bench) = Bench::new() else { return };
    let daemon = bench.start();
    let show = || String::from_utf8_lossy(&daemon.shuntctl(&["show"]).stdout).into_owned();
    bench.done("add-br br0");
    assert!(show().contains("bridge br0"), "{}", show());
    assert_eq!(bench.done("get Interface br0 ofport"), "65534");
    bench.done("add-port br0 p1 tag=10 -- set Interface p1 type=null");
    bench.done("add-port br0 p2 -- set Interface p2 type=null ofport_request=7");
    assert_eq!(bench.done("get Interface p2 ofport error link_state"), "7\n[]\nup");
    assert!(show().contains("p1 (null, up, access tag=10)"), "{}", show());
    bench.done("set Port p1 tag=20");
    assert!(show().contains("p1 (null, up, access tag=20)"), "{}", show());

    // An impossible port has a reason in its row, and harms no other.
    bench.done("add-port br0 nosuch0");
    assert_eq!(bench.done("get Interface nosuch0 ofport"), "-1");
    let error = bench.done("get Interface nosuch0 error");
    assert!(error.contains("no device nosuch0"), "{error}");
    bench.done("add-port br0 vx0 -- set Interface vx0 type=vxlan");
    let error = bench.done("get Interface vx0 error");
    assert!(error.contains("interface type vxlan is not supported"), "{error}");
    bench.done("del-port nosuch0 -- del-port vx0");

    bench.done("set-controller br0 ptcp:0:127.0.0.1 ssl:192.0.2.1");
    let listed = bench.done("--columns=status find Controller target=\"ssl:192.0.2.1\"");
    assert!(listed.contains("target ssl:192.0.2.1 is not supported"), "{listed}");
    assert!(bench.done("show").contains("Bridge br0"));
    assert_eq!(bench.done("get Open_vSwitch . next_cfg"), bench.done("get Open_vSwitch . cur_cfg"));
    bench.done("del-br br0");
    assert!(!show().contains("br0"), "{}", show());
    bench.done("add-br br0");
}

/// Bridges, ports and port numbers are the same after a restart.
#[test]
fn the_configuration_survives_a_restart() {
    let Some(bench) = Bench::new() else { return };
    let daemon = bench.start();
    bench.done("add-br br0");
    for port in ["z", "y", "x"] {
        bench.done(&format!("add-port br0 {port} -- set Interface {port} type=null"));
    }
    let numbers = "get Interface x ofport -- get Interface y ofport -- get Interface z ofport";
    let before = bench.done(numbers);
    drop(daemon);
    let daemon = bench.start();
    // Waits until the rows are applied.
    bench.done("set Bridge br0 external_ids:a=b");
    assert_eq!(bench.done(numbers), before);
    let show = String::from_utf8_lossy(&daemon.shuntctl(&["show"]).stdout).into_owned();
    assert!(show.contains("port 3 x (null, up)"), "{show}");
}
