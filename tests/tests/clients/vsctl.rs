//! `ovs-vsctl` with the daemon, with its embedded OVSDB server and with `ovsdb-server`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use shunt_tests::{
    daemon::{Daemon, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
    ovsdb_server::OvsdbServer,
    repository::root,
    traffic::ping_once,
};
use tempfile::TempDir;

/// The Python of the system, which has the packages of Debian.
const PYTHON: &str = "/usr/bin/python3";

/// A daemon in a namespace, with a database.
pub(crate) struct DaemonFixture {
    pub(crate) namespace: Namespace,
    pub(crate) database: Database,
}

/// The database that `ovs-vsctl` changes.
pub(crate) enum Database {
    /// The database of the daemon, in a separate folder.
    Embedded(TempDir),
    /// The database of `ovsdb-server`.
    Foreign(OvsdbServer),
}

impl DaemonFixture {
    /// Returns a fixture for each kind of database.
    ///
    /// A part that is not installed is skipped with a message.
    pub(crate) fn both(label: &str) -> Vec<Self> {
        let embedded = Self::parts(label).map(|namespace| {
            let folder = tempfile::tempdir().expect("a folder");
            Self { namespace, database: Database::Embedded(folder) }
        });
        embedded.into_iter().chain(Self::foreign(label)).collect()
    }

    /// Returns a fixture with `ovsdb-server`.
    pub(crate) fn foreign(label: &str) -> Option<Self> {
        Self::with_server(label, OvsdbServer::start_or_skip()?)
    }

    /// Returns a fixture with a server.
    pub(crate) fn with_server(label: &str, server: OvsdbServer) -> Option<Self> {
        let namespace = Self::parts(label)?;
        Some(Self { namespace, database: Database::Foreign(server) })
    }

    fn parts(label: &str) -> Option<Namespace> {
        let is_installed = Command::new("ovs-vsctl").arg("--version").output().is_ok();
        if !is_installed || !Path::new("/dev/net/tun").exists() {
            print_skipped(
                "ovs-vsctl or /dev/net/tun is missing: apt-get install openvswitch-switch",
            );
            return None;
        }
        namespace_or_skip(label)
    }

    pub(crate) fn start(&self) -> Daemon {
        let text = match &self.database {
            Database::Embedded(folder) => {
                let [socket, log] = ["db.sock", "conf.db"].map(|name| folder.path().join(name));
                format!("[ovsdb]\nsocket = {socket:?}\nlog = {log:?}\n")
            }
            Database::Foreign(_) => String::new(),
        };
        Daemon::start_with(&text, |program| self.command(program))
    }

    /// Ends the daemon with a signal, and starts the next daemon.
    pub(crate) fn start_next(&self, daemon: &mut Daemon, signal: &str) {
        daemon.start_next(signal, |program| self.command(program));
    }

    /// Returns the command that starts the daemon in the namespace.
    fn command(&self, program: &Path) -> Command {
        let mut command = self.namespace.command(program.to_str().expect("a path in UTF-8"));
        if let Database::Foreign(_) = self.database {
            command.arg(format!("--db=unix:{}", self.socket().display()));
        }
        command
    }

    fn socket(&self) -> PathBuf {
        match &self.database {
            Database::Embedded(folder) => folder.path().join("db.sock"),
            Database::Foreign(server) => server.socket(),
        }
    }

    pub(crate) fn server(&mut self) -> &mut OvsdbServer {
        let Database::Foreign(server) = &mut self.database else { unreachable!("it is embedded") };
        server
    }

    pub(crate) fn vsctl(&self, line: &str) -> Output {
        let database = format!("--db=unix:{}", self.socket().display());
        let mut command = Command::new("ovs-vsctl");
        output(command.args([&database, "--timeout=10"]).args(line.split_whitespace()))
    }

    /// Runs a command that succeeds. Returns the output without the last line end.
    pub(crate) fn done(&self, line: &str) -> String {
        let result = self.vsctl(line);
        assert!(result.status.success(), "{line}: {}", String::from_utf8_lossy(&result.stderr));
        String::from_utf8_lossy(&result.stdout).trim_end().to_owned()
    }
}

/// Returns the output of `shuntctl show`.
pub(crate) fn show(daemon: &Daemon) -> String {
    String::from_utf8_lossy(&daemon.shuntctl(&["show"]).stdout).into_owned()
}

/// Returns the line of `shuntctl show` about the only bond; empty without a bond.
pub(crate) fn bond_line(daemon: &Daemon) -> String {
    let shown = show(daemon);
    shown.lines().find(|line| line.contains(" bond ")).unwrap_or_default().trim().to_owned()
}

/// Each command returns when the switch has made the change.
#[test]
fn vsctl_configures_bridges_and_ports() {
    for fixture in DaemonFixture::both("conf") {
        let daemon = fixture.start();
        let show = || show(&daemon);
        fixture.done("add-br br0");
        assert!(show().contains("bridge br0"), "{}", show());
        assert_eq!(fixture.done("get Interface br0 ofport"), "65534");
        fixture.done("add-port br0 p1 tag=10 -- set Interface p1 type=null");
        fixture.done("add-port br0 p2 -- set Interface p2 type=null ofport_request=7");
        assert_eq!(fixture.done("get Interface p2 ofport error link_state"), "7\n[]\nup");
        assert!(show().contains("p1 (null, up, access tag=10)"), "{}", show());
        fixture.done("set Port p1 tag=20");
        assert!(show().contains("p1 (null, up, access tag=20)"), "{}", show());

        // An impossible port has a reason in its row, and does not affect other ports.
        let added = fixture.vsctl("add-port br0 nosuch0");
        let message = String::from_utf8_lossy(&added.stderr);
        assert!(message.contains("Error detected while setting up 'nosuch0'"), "{message}");
        let error = fixture.done("get Interface nosuch0 error");
        assert!(error.contains("no device nosuch0"), "{error}");
        fixture.done("add-port br0 vx0 -- set Interface vx0 type=vxlan");
        let error = fixture.done("get Interface vx0 error");
        assert!(error.contains("interface type vxlan is not supported"), "{error}");
        fixture.done("del-port nosuch0 -- del-port vx0");

        fixture.done("set-controller br0 ptcp:0:127.0.0.1 udp:192.0.2.1");
        let listed = fixture.done("--columns=status find Controller target=\"udp:192.0.2.1\"");
        assert!(listed.contains("udp:192.0.2.1` begins with none of"), "{listed}");
        assert!(fixture.done("show").contains("Bridge br0"));
        assert_eq!(
            fixture.done("get Open_vSwitch . next_cfg"),
            fixture.done("get Open_vSwitch . cur_cfg")
        );
        fixture.done("del-br br0");
        assert!(!show().contains("br0"), "{}", show());
        fixture.done("add-br br0");
    }
}

/// Packets and controllers wait until the rules are restored.
#[test]
fn flow_restore_wait_holds_packets_and_controllers() {
    for fixture in DaemonFixture::both("hold") {
        let Some(host) = namespace_or_skip("wait") else { continue };
        host.connect("eth0", &fixture.namespace, "p1");
        host.run("ip", &["addr", "add", "10.68.1.1/24", "dev", "eth0"]);
        let ping = || ping_once(&host, "10.68.1.2");
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p1 -- set-controller br0 tcp:127.0.0.1:1");
        fixture.namespace.run("ip", &["addr", "add", "10.68.1.2/24", "dev", "br0"]);
        fixture.done("set Open_vSwitch . other_config:flow-restore-wait=true");
        drop(daemon);
        let daemon = fixture.start();
        let show = || show(&daemon);
        text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
        assert!(!ping(), "{}", daemon.log());
        assert!(!show().contains("tcp:127.0.0.1:1"), "{}", show());
        fixture.done("remove Open_vSwitch . other_config flow-restore-wait");
        assert!(show().contains("tcp:127.0.0.1:1"), "{}", show());
        assert!(wait_until(ping), "{}", daemon.log());
    }
}

/// Bridges, ports and port numbers are the same after a restart.
#[test]
fn the_configuration_survives_a_restart() {
    for fixture in DaemonFixture::both("rest") {
        let daemon = fixture.start();
        fixture.done("add-br br0");
        for port in ["z", "y", "x"] {
            fixture.done(&format!("add-port br0 {port} -- set Interface {port} type=null"));
        }
        let numbers = "get Interface x ofport -- get Interface y ofport -- get Interface z ofport";
        let before = fixture.done(numbers);
        drop(daemon);
        let daemon = fixture.start();
        // Waits until the rows are applied.
        fixture.done("set Bridge br0 external_ids:a=b");
        assert_eq!(fixture.done(numbers), before);
        let show = show(&daemon);
        assert!(show.contains("port 3 x (null, up)"), "{show}");
    }
}

/// A port of a missing device keeps its number until the device appears.
#[test]
fn a_missing_device_keeps_its_port() {
    for fixture in DaemonFixture::both("miss") {
        let daemon = fixture.start();
        let show = || show(&daemon);
        fixture.done("add-br br0");
        fixture.vsctl("add-port br0 late0");
        assert_eq!(fixture.done("get Interface late0 ofport"), "-1");
        assert!(show().contains("port 1 late0 (af_packet, down"), "{}", show());
        assert_eq!(fixture.done("get Interface late0 admin_state"), "[]");

        // Later updates leave the port unchanged.
        fixture.done("set Bridge br0 external_ids:a=b");
        assert!(show().contains("port 1 late0 (af_packet, down"), "{}", show());
        let ip = |line: &str| fixture.namespace.run("ip", &line.split(' ').collect::<Vec<_>>());
        ip("link add late0 type veth peer name late1");
        fixture.done("wait-until Interface late0 error=[] ofport=1");
        ip("link del late0");
        fixture.done("wait-until Interface late0 error!=[]");
        assert_eq!(fixture.done("get Interface late0 ofport"), "1");
    }
}

/// A vhost-user port needs the path of its socket, and no hypervisor.
#[test]
fn a_vhost_user_port_waits_for_its_hypervisor() {
    for fixture in DaemonFixture::both("vhost") {
        let daemon = fixture.start();
        fixture.done("add-br br0");
        fixture.vsctl("add-port br0 vm1 -- set Interface vm1 type=dpdkvhostuserclient");
        let error = fixture.done("get Interface vm1 error");
        assert!(error.contains("needs options:vhost-server-path"), "{error}");
        let path = daemon.run_dir().join("vm1.sock");
        fixture.done(&format!("set Interface vm1 options:vhost-server-path={}", path.display()));
        fixture.done("wait-until Interface vm1 error=[]");
        assert_eq!(fixture.done("get Interface vm1 link_state"), "down");
        let shown = show(&daemon);
        assert!(shown.contains("vm1 (vhost_user, down: no hypervisor is connected"), "{shown}");
        fixture.done("set Open_vSwitch . other_config:vhost-sock-dir=../no-such-folder");
        fixture.vsctl("add-port br0 vm2 -- set Interface vm2 type=dpdkvhostuser");
        let error = fixture.done("get Interface vm2 error");
        assert!(error.contains("/var/run/openvswitch/no-such-folder/vm2"), "{error}");
        let shown = text(&daemon.ovs_appctl(&["dpif/show"]));
        assert!(shown.contains("(dpdkvhostuserclient)"), "{shown}");
        assert!(shown.contains("(dpdkvhostuser)"), "{shown}");
    }
}

/// Programs such as Neutron and ovsdbapp use this client.
#[test]
fn the_python_idl_configures_a_bridge() {
    let found = Command::new(PYTHON).args(["-c", "import ovs.db.idl"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        print_skipped("the Python module ovs is missing: apt-get install python3-openvswitch");
        return;
    }
    for fixture in DaemonFixture::both("idl") {
        let _daemon = fixture.start();
        // `ovs-vsctl` adds the row of `Open_vSwitch` to an empty database.
        fixture.done("init");
        let database = format!("unix:{}", fixture.socket().display());
        let mut client = Command::new("ovsdb-client");
        let schema = text(&output(client.args(["get-schema", &database, "Open_vSwitch"])));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("schema.json");
        std::fs::write(&path, schema).expect("a file");
        let tool = root().join("tests/tools/ovs_idl.py");
        let shown = text(&output(Command::new(PYTHON).arg(tool).arg(&database).arg(&path)));
        assert!(shown.contains("40 checks passed, 0 failed"), "{shown}");
    }
}

/// Patch ports have no device, so their names may be longer than 15 bytes.
#[test]
fn patch_ports_have_long_names() {
    let [near, far] = ["patch-br0-to-provnet-1", "patch-provnet-1-to-br0"];
    for fixture in DaemonFixture::both("patch") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-br br1");
        for (bridge, name, peer) in [("br0", near, far), ("br1", far, near)] {
            let kind = format!("type=patch options:peer={peer}");
            fixture.done(&format!("add-port {bridge} {name} -- set Interface {name} {kind}"));
        }
        for name in [near, far] {
            fixture.done(&format!("wait-until Interface {name} error=[] ofport=1 link_state=up"));
        }
        // As in Open vSwitch, a name of OpenFlow ends after 15 bytes.
        let ports = text(&daemon.ovs_ofctl("br0", "show", &[]));
        assert!(ports.contains(" 1(patch-br0-to-pr):"), "{ports}");
    }
}

/// A second name of a device may be longer than the name of a port.
#[test]
fn a_long_device_name_has_its_first_name() {
    for fixture in DaemonFixture::both("altname") {
        let _daemon = fixture.start();
        let long = "a-further-name-of-x0";
        let ip = |line: &str| fixture.namespace.run("ip", &line.split(' ').collect::<Vec<_>>());
        ip("link add x0 type veth peer name y0");
        ip(&format!("link property add dev x0 altname {long}"));
        fixture.done("add-br br0");
        fixture.vsctl(&format!("add-port br0 {long}"));
        let error = fixture.done(&format!("get Interface {long} error"));
        assert!(error.contains("use x0, the first name of the device"), "{error}");
    }
}

/// Two memif ports of one switch are connected with each other.
#[test]
fn memif_ports_connect_by_socket_and_number() {
    for fixture in DaemonFixture::both("memif") {
        let daemon = fixture.start();
        fixture.done("add-br br0");
        fixture.vsctl("add-port br0 m1 -- set Interface m1 type=memif");
        let error = fixture.done("get Interface m1 error");
        assert!(error.contains("a memif port needs options:socket"), "{error}");
        let socket = daemon.run_dir().join("memif.sock");
        let socket = format!("options:socket={} options:id=4", socket.display());
        fixture.done(&format!("set Interface m1 {socket} options:rsize=9"));
        fixture.done("wait-until Interface m1 error=[]");
        assert_eq!(fixture.done("get Interface m1 link_state"), "down");
        fixture.vsctl("add-port br0 m2 -- set Interface m2 type=memif options:role=master");
        fixture.done(&format!("set Interface m2 {socket}"));
        let error = fixture.done("get Interface m2 error");
        assert!(error.contains("options:role master is unknown: use client or server"), "{error}");
        fixture.done("set Interface m2 options:role=server");
        for port in ["m1", "m2"] {
            fixture.done(&format!("wait-until Interface {port} link_state=up"));
        }
        let shown = text(&daemon.ovs_appctl(&["dpif/show"]));
        assert_eq!(shown.matches("(memif)").count(), 2, "{shown}");
        let types = fixture.done("get Open_vSwitch . iface_types");
        assert!(types.contains("memif"), "{types}");
    }
}

/// Requested numbers come first, then the previous numbers, and then free numbers.
#[test]
fn port_numbers_do_not_depend_on_names() {
    for fixture in DaemonFixture::both("numb") {
        let _daemon = fixture.start();
        fixture.done(
            "add-br br0 -- add-port br0 a -- set Interface a type=null \
             -- add-port br0 b -- set Interface b type=null ofport_request=1 \
             -- add-port br0 c -- set Interface c type=null ofport_request=1",
        );
        assert_eq!(fixture.done("get Interface b ofport"), "1");
        assert_eq!(fixture.done("get Interface c ofport error"), "2\n[]");
        assert_eq!(fixture.done("get Interface a ofport"), "3");
        // An interface that cannot be a port temporarily does not lose its number.
        fixture.vsctl("set Interface c type=vxlan");
        assert_eq!(fixture.done("get Interface c ofport"), "2");
        fixture.done("set Interface c type=null ofport_request=[]");
        assert_eq!(fixture.done("get Interface c ofport"), "2");
    }
}

/// The database determines its bridges and ports.
#[test]
fn changes_of_other_clients_are_undone() {
    for fixture in DaemonFixture::both("undo") {
        let daemon = fixture.start();
        let show = || show(&daemon);
        fixture.done("add-br br0 -- add-port br0 p1 -- set Interface p1 type=null");
        assert!(daemon.shuntctl(&["del-port", "p1"]).status.success());
        fixture.done("set Bridge br0 external_ids:a=b");
        assert!(show().contains("port 1 p1 (null, up)"), "{}", show());
        assert!(daemon.shuntctl(&["del-br", "br0"]).status.success());
        fixture.done("set Bridge br0 external_ids:a=c");
        assert!(show().contains("port 1 p1 (null, up)"), "{}", show());
    }
}

/// A controller that cannot be used does not affect other controllers.
#[test]
fn a_bad_controller_blocks_no_other() {
    for fixture in DaemonFixture::both("badc") {
        let daemon = fixture.start();
        fixture.done("add-br br0");
        let status = |target: &str| {
            fixture.done(&format!("--columns=status find Controller target=\"{target}\""))
        };
        let targets =
            ["tcp:localhost", "ptcp:6699:192.0.2.77", "ptcp:6699:127.0.0.1", "tcp:127.0.0.1:0"];
        fixture.done(&format!("set-controller br0 {}", targets.join(" ")));
        fixture.done("set Bridge br0 external_ids:a=b");
        assert!(
            status(targets[0]).contains("tcp:localhost` is not an address"),
            "{}",
            status(targets[0])
        );
        assert!(
            status(targets[1]).contains("listen on ptcp:6699:192.0.2.77"),
            "{}",
            status(targets[1])
        );
        assert!(status(targets[2]).contains("LISTENING"), "{}", status(targets[2]));
        let reason = "`tcp:127.0.0.1:0` has port 0, on which no controller listens";
        assert!(status(targets[3]).contains(reason), "{}", status(targets[3]));
        let logged = format!(" of Controller: {reason}");
        assert_eq!(daemon.log().matches(&logged).count(), 1, "{}", daemon.log());
    }
}

/// A controller reads which features the datapath has before it uses them.
#[test]
fn datapath_row_has_true_capabilities() {
    for fixture in DaemonFixture::both("caps") {
        let _daemon = fixture.start();
        let create = |kind: &str| {
            fixture.done(&format!(
                "-- --id=@d create Datapath datapath_version=1 \
                 -- set Open_vSwitch . datapaths:{kind}=@d"
            ))
        };
        create("netdev");
        let shown = fixture.done("--columns=capabilities list Datapath");
        for entry in ["ct_state=\"false\"", "check_pkt_len=\"true\"", "max_vlan_headers=\"2\""] {
            assert!(shown.contains(entry), "{shown}");
        }
        assert_eq!(shown.matches('=').count(), 27, "{shown}");
        // There is no datapath of this type.
        create("other");
        let shown = fixture.done("--columns=capabilities list Datapath");
        assert_eq!(shown.matches("ct_state=").count(), 1, "{shown}");
        assert!(shown.contains("{}"), "{shown}");
    }
}

/// `fail_mode` adds and removes the rule of the daemon, and no other rules.
#[test]
fn fail_mode_decides_about_the_normal_rule() {
    for fixture in DaemonFixture::both("fail") {
        let daemon = fixture.start();
        let rules = || text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
        fixture.done("add-br br0");
        assert!(rules().contains("actions=NORMAL"), "{}", rules());
        let derived_id = fixture.done("get Bridge br0 datapath_id");
        fixture.done("set Bridge br0 other_config:datapath-id=0000000000000000");
        assert_eq!(fixture.done("get Bridge br0 datapath_id"), derived_id, "0 is no datapath id");
        // A new datapath id removes no rule.
        fixture.done("set Bridge br0 other_config:datapath-id=00000000000000ab");
        assert_eq!(fixture.done("get Bridge br0 datapath_id"), "\"00000000000000ab\"");
        assert!(rules().contains("actions=NORMAL"), "{}", rules());
        fixture.done("set-fail-mode br0 secure");
        assert!(!rules().contains("actions="), "{}", rules());
        fixture.done("del-fail-mode br0");
        assert!(rules().contains("actions=NORMAL"), "{}", rules());
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=0,actions=drop"]));
        fixture.done("set-fail-mode br0 secure");
        assert!(rules().contains("actions=drop"), "{}", rules());
        fixture.done("set-fail-mode br0 standalone");
        assert!(rules().contains("actions=drop"), "{}", rules());
    }
}
