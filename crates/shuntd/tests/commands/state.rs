//! The state of a daemon is restored after its end.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{Daemon, errors, shuntctl, shuntd, wait_until};

/// A directory with a configuration, and daemons that keep their state in it.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new(configuration: &str) -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap() };
        host.write(configuration);
        host
    }

    fn write(&self, configuration: &str) {
        fs::write(self.folder.path().join("shunt.toml"), configuration).unwrap();
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state.json")
    }

    fn start(&self) -> RunningDaemon {
        let mut command = shuntd(self.folder.path());
        command.arg("--config").arg(self.folder.path().join("shunt.toml"));
        command.arg("--state").arg(self.state());
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let daemon = RunningDaemon(command.stderr(Stdio::from(log)).spawn().unwrap());
        let answers = || shuntctl(self.folder.path(), &["show"]).status.success();
        assert!(wait_until(answers), "shuntd does not answer: {}", self.log());
        daemon
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns the log of all daemons of this host.
    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap()
    }

    /// Returns the rules, groups and meters of a bridge, as saved.
    fn tables(&self) -> Value {
        let saved: Value = serde_json::from_str(&self.answer(&["save"])).unwrap();
        saved["state"]["tables"].clone()
    }

    /// Runs `ovs-ofctl` on `br0`; returns false if `ovs-ofctl` is not installed.
    fn ofctl(&self, request: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new("ovs-ofctl");
        let socket = self.folder.path().join("br0.mgmt");
        command.args(["-O", "OpenFlow13", request]).arg(format!("unix:{}", socket.display()));
        let Ok(output) = command.args(arguments).output() else {
            return false;
        };
        assert!(output.status.success(), "{request} {arguments:?}: {}", errors(&output));
        true
    }

    fn ofctl_is_installed() -> bool {
        Command::new("ovs-ofctl").arg("--version").stdout(Stdio::null()).status().is_ok()
    }

    /// Returns the rules of `br0` as text.
    fn rules(&self) -> String {
        self.tables()[0]["rules"].to_string()
    }

    /// Returns the command that adds the rules in a file to `br0` as a bundle.
    fn bundle_command(&self, file: &Path) -> Command {
        let mut command = Command::new("ovs-ofctl");
        let socket = self.folder.path().join("br0.mgmt");
        command.args(["-O", "OpenFlow13", "--bundle", "add-flows"]);
        command.arg(format!("unix:{}", socket.display())).arg(file).stderr(Stdio::null());
        command
    }

    fn answer(&self, arguments: &[&str]) -> String {
        let output = shuntctl(self.folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn exit(&self, mut daemon: RunningDaemon) {
        self.answer(&["exit"]);
        daemon.0.wait().unwrap();
    }
}

/// A daemon; dropping the value kills it.
struct RunningDaemon(Child);

impl RunningDaemon {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for RunningDaemon {
    fn drop(&mut self) {
        self.kill();
    }
}

const BRIDGE: &str = "[[bridge]]\nname = \"br0\"\n";
const PORT: &str = "[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n";

#[test]
fn bridges_and_ports_survive_a_restart() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    host.answer(&["add-br", "br1"]);
    host.answer(&["add-port", "br1", "q1", "type=null", "number=9"]);
    host.answer(&["set", "caches.idle_ms=7000"]);
    // The bridge is already written with its rules, and only its keys change.
    let is_written = || fs::read_to_string(host.state()).is_ok_and(|text| text.contains("q1"));
    assert!(wait_until(is_written));
    host.answer(&["set-br", "br0", "datapath_id=00000000000000aa"]);
    let is_written = || fs::read_to_string(host.state()).is_ok_and(|text| text.contains("aa\""));
    assert!(wait_until(is_written), "a change of a bridge is written");
    host.exit(daemon);
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("port 9 q1") && shown.contains("00000000000000aa"), "{shown}");
    assert!(host.answer(&["settings"]).contains("7000"));
    host.exit(daemon);
}

#[test]
fn a_killed_daemon_restores_its_last_write() {
    let host = Host::new(BRIDGE);
    let mut daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=null"]);
    let is_written = || fs::read_to_string(host.state()).is_ok_and(|text| text.contains("q1"));
    assert!(wait_until(is_written), "the change is written within seconds");
    daemon.kill();
    let daemon = host.start();
    assert!(host.answer(&["show"]).contains("q1"));
    host.exit(daemon);
}

#[test]
fn the_log_filter_survives_a_restart() {
    let host = Host::new(BRIDGE);
    let filter = || {
        let settings: Value = serde_json::from_str(&host.answer(&["settings", "--json"])).unwrap();
        settings["logging.filter"].as_str().unwrap().to_owned()
    };
    let daemon = host.start();
    host.answer(&["set", "logging.filter=debug"]);
    host.exit(daemon);
    let daemon = host.start();
    assert_eq!(filter(), "debug");
    // A saved state also restores the log filter.
    host.answer(&["set", "logging.filter=warn"]);
    let saved = host.answer(&["save"]);
    host.answer(&["set", "logging.filter=info"]);
    let file = host.folder.path().join("saved");
    fs::write(&file, saved).unwrap();
    let report = host.answer(&["restore", file.to_str().unwrap()]);
    assert!(report.contains("logging.filter=warn"), "{report}");
    host.exit(daemon);
    // A change of the configuration file has precedence over the saved filter.
    host.write(&format!("[logging]\nfilter = \"error\"\n{BRIDGE}"));
    let daemon = host.start();
    assert_eq!(filter(), "error");
    host.exit(daemon);
}

/// A state file may have a filter that an earlier version accepted.
#[test]
fn a_refused_saved_filter_stops_no_start() {
    let host = Host::new(&format!("[logging]\nfilter = \"warn\"\n{BRIDGE}"));
    let daemon = host.start();
    host.answer(&["set", "logging.filter=debug"]);
    host.exit(daemon);
    let saved = fs::read_to_string(host.state()).unwrap();
    let mut saved: Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved["filter"]["in_force"], "debug");
    saved["filter"]["in_force"] = "shunt_ofproto=debug".into();
    fs::write(host.state(), saved.to_string()).unwrap();
    let daemon = host.start();
    let settings: Value = serde_json::from_str(&host.answer(&["settings", "--json"])).unwrap();
    assert_eq!(settings["logging.filter"], "warn");
    assert!(host.log().contains("the log filter warn of the configuration file stays"));
    host.exit(daemon);
}

/// A start applies all keys of the file, so a later reload names no key.
#[test]
fn a_restart_applies_pending_keys() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    host.exit(daemon);
    host.write(&format!("[threads]\npacket = 2\n{BRIDGE}"));
    let daemon = host.start();
    assert_eq!(host.answer(&["reload"]), "no changes to apply\n");
    host.write(BRIDGE);
    let report = host.answer(&["reload"]);
    assert_eq!(report, "takes effect at the next start: threads.packet\n");
    host.exit(daemon);
}

#[test]
fn a_changed_configuration_file_overrides_the_state() {
    let host = Host::new(&format!("{BRIDGE}{PORT}"));
    let daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=null"]);
    host.exit(daemon);
    host.write(&format!("[caches]\nidle_ms = 8000\n{BRIDGE}{}", PORT.replace("p1", "p2")));
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("q1") && shown.contains("p2"), "{shown}");
    assert!(!shown.contains("p1"), "the file has removed it: {shown}");
    assert!(host.answer(&["settings"]).contains("8000"));
    host.exit(daemon);
}

#[test]
fn file_that_is_not_state_stops_start() {
    let host = Host::new(BRIDGE);
    fs::write(host.state(), "{}").unwrap();
    let mut command = shuntd(host.folder.path());
    let output = command.arg("--state").arg(host.state()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = errors(&output);
    assert!(error.contains("is not a state file of shuntd"), "{error}");
    assert!(error.contains("move the file away"), "{error}");
    assert_eq!(fs::read_to_string(host.state()).unwrap(), "{}");
}

#[test]
fn file_of_later_version_is_kept_aside() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    host.exit(daemon);
    let written = fs::read_to_string(host.state()).unwrap();
    let later = written.replace("\"format\": 5", "\"format\": 99, \"invention\": true");
    assert_ne!(later, written);
    fs::write(host.state(), &later).unwrap();
    let daemon = host.start();
    assert!(host.answer(&["show"]).contains("br0"), "as the configuration file says");
    let log = host.log();
    let words =
        "state.json has format 99 of a newer version, and shuntd 0.1.0 reads formats up to 5";
    assert!(log.contains(words), "{log}");
    let copy = |name: &str| fs::read_to_string(host.folder.path().join(name));
    assert_eq!(copy("state.json.format-99").unwrap(), later);
    host.exit(daemon);
    // The same file gets no second copy, and another file does not replace the first copy.
    let changed = later.replace("true", "false");
    for next in [&later, &changed] {
        fs::write(host.state(), next).unwrap();
        let daemon = host.start();
        host.exit(daemon);
    }
    assert_eq!(copy("state.json.format-99").unwrap(), later);
    assert_eq!(copy("state.json.format-99.2").unwrap(), changed);
    assert!(copy("state.json.format-99.3").is_err());
}

/// The daemon is killed while it adds bundles of two rules and writes its state.
///
/// `SHUNT_KILLS` is the number of kills.
#[test]
fn a_killed_daemon_has_whole_bundles() {
    let kills = std::env::var("SHUNT_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills: usize = kills.unwrap_or(10);
    let host = Host::new(BRIDGE);
    if !Host::ofctl_is_installed() {
        return;
    }
    let bundle = host.folder.path().join("bundle");
    for round in 1..=kills {
        let mut daemon = host.start();
        let rules = host.rules();
        for pair in 1..round {
            let cookie = format!("cookie={pair:#x},");
            let count = rules.matches(&cookie).count();
            assert!(count == 0 || count == 2, "{count} rules of bundle {pair}: {rules}");
        }
        let of =
            |table: u8| format!("table={table},cookie={round:#x},in_port={round},actions=drop\n");
        fs::write(&bundle, of(0) + &of(1)).unwrap();
        let mut adding = host.bundle_command(&bundle).spawn().unwrap();
        if round % 2 == 0 {
            // In these rounds the daemon is killed after a write; in the other rounds, at any
            // moment.
            assert!(adding.wait().unwrap().success());
            let cookie = format!("cookie={round:#x},");
            let is_written =
                || fs::read_to_string(host.state()).is_ok_and(|text| text.contains(&cookie));
            assert!(wait_until(is_written), "{}", host.log());
        }
        daemon.kill();
        let _ = adding.wait();
    }
    let daemon = host.start();
    let last = format!("cookie={:#x},", kills / 2 * 2);
    assert_eq!(host.rules().matches(&last).count(), 2, "the last one was written");
    host.exit(daemon);
}

/// A capture file without packets.
fn write_capture(path: &Path) {
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1];
    fs::write(path, header.map(u32::to_le_bytes).concat()).unwrap();
}

#[test]
fn unopened_port_stays_in_state() {
    let host = Host::new(BRIDGE);
    let capture = host.folder.path().join("in.pcap");
    write_capture(&capture);
    let daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=pcap", "number=9", &rx_setting(&capture)]);
    host.exit(daemon);
    fs::remove_file(&capture).unwrap();
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("port 9 q1") && shown.contains("No such file"), "{shown}");
    host.exit(daemon);
    write_capture(&capture);
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("port 9 q1") && !shown.contains("No such file"), "{shown}");
    host.answer(&["del-port", "q1"]);
    host.exit(daemon);
    assert!(!fs::read_to_string(host.state()).unwrap().contains("q1"));
}

fn rx_setting(path: &Path) -> String {
    format!("rx={}", path.display())
}

/// A patch port may lose its peer, and then it forwards nothing.
#[test]
fn a_patch_port_without_peer_comes_back() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=patch", "peer=q2"]);
    host.exit(daemon);
    let daemon = host.start();
    assert!(host.answer(&["show"]).contains("q1"));
    host.exit(daemon);
}

#[test]
fn address_in_use_does_not_cost_bridge() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let listen = format!("listen = [\"ptcp:{port}:127.0.0.1\"]\n");
    let host = Host::new(&format!("{BRIDGE}{listen}"));
    let daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=null"]);
    host.exit(daemon);
    let other = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("q1") && shown.contains("Address already in use"), "{shown}");
    drop(other);
    assert!(
        wait_until(|| host.answer(&["show"]).contains("listening")),
        "{}",
        host.answer(&["show"])
    );
    host.exit(daemon);
}

/// Keys of a bridge that cannot change at run time are also applied at the start.
#[test]
fn changed_bridge_keys_apply_at_the_start() {
    let host = Host::new(&format!("{BRIDGE}mac = \"02:00:00:00:00:01\"\n"));
    let daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=null"]);
    host.exit(daemon);
    host.write(&format!("{BRIDGE}mac = \"02:00:00:00:00:02\"\n"));
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("0000020000000002") && shown.contains("q1"), "{shown}");
    host.exit(daemon);
}

#[test]
fn killed_daemon_restores_rules_groups_meters() {
    let host = Host::new(&format!("{BRIDGE}{PORT}"));
    let mut daemon = host.start();
    let meter = "meter=3,kbps,bands=type=drop,rate=1000";
    if !host.ofctl("add-meter", &[meter]) {
        host.exit(daemon);
        return;
    }
    host.ofctl("add-group", &["group_id=9,type=all,bucket=output:1"]);
    host.ofctl("add-flow", &["priority=5,ip,nw_dst=10.0.0.0/8,actions=meter:3,group:9"]);
    host.ofctl("add-flow", &["table=1,cookie=0x12,idle_timeout=300,tcp,actions=output:1"]);
    let before = host.tables();
    assert_eq!(before[0]["rules"].as_array().unwrap().len(), 2);
    let is_written = || fs::read_to_string(host.state()).is_ok_and(|text| text.contains("0x12"));
    assert!(wait_until(is_written), "the change is written within seconds");
    daemon.kill();
    let daemon = host.start();
    assert_eq!(host.tables(), before);
    let ready = "bridges=1 ports=1";
    assert_eq!(host.log().matches(ready).count(), 2, "{}", host.log());
    host.exit(daemon);
}

#[test]
fn a_nic_comes_back_with_its_bridge() {
    let nic = "[caches.gigaflow.offload]\nkind = \"embedded\"\n";
    let host = Host::new(&format!("{nic}{BRIDGE}{PORT}"));
    let is_connected = || {
        let caches: Value = serde_json::from_str(&host.answer(&["caches", "--json"])).unwrap();
        caches["nic"]["state"] == "connected"
    };
    let daemon = host.start();
    assert!(wait_until(is_connected), "{}", host.log());
    host.answer(&["add-port", "br0", "q1", "type=null"]);
    host.ofctl("add-flow", &["actions=output:1"]);
    let before = host.tables();
    host.exit(daemon);
    let daemon = host.start();
    assert!(wait_until(is_connected), "{}", host.log());
    assert!(host.answer(&["show"]).contains("q1"));
    assert_eq!(host.tables(), before);
    // The NIC stays configured while its bridge does not exist.
    host.answer(&["del-br", "br0"]);
    host.answer(&["add-br", "br1"]);
    host.exit(daemon);
    let daemon = host.start();
    assert!(host.answer(&["show"]).contains("br1"));
    host.exit(daemon);
}

/// Without the key `bridge`, the NIC is in front of the first bridge of the file.
#[test]
fn a_nic_follows_its_renamed_bridge() {
    let nic = "[caches.gigaflow.offload]\nkind = \"embedded\"\n";
    let host = Host::new(&format!("{nic}{BRIDGE}{PORT}"));
    let is_connected = |bridge: &str| {
        let caches: Value = serde_json::from_str(&host.answer(&["caches", "--json"])).unwrap();
        caches["nic"]["state"] == "connected" && caches["nic"]["bridge"] == bridge
    };
    let daemon = host.start();
    assert!(wait_until(|| is_connected("br0")), "{}", host.log());
    host.exit(daemon);
    host.write(&format!("{nic}{BRIDGE}{PORT}").replace("br0", "br1"));
    let daemon = host.start();
    assert!(wait_until(|| is_connected("br1")), "{}", host.answer(&["caches", "--json"]));
    host.exit(daemon);
}

#[test]
fn refused_rule_stays_in_copy_of_file() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    if !host.ofctl("add-flow", &["priority=1,actions=drop"]) {
        host.exit(daemon);
        return;
    }
    host.ofctl("add-flow", &["priority=2,actions=drop"]);
    host.exit(daemon);
    host.write(&format!("{BRIDGE}table_rules = 1\n"));
    let daemon = host.start();
    let log = host.log();
    assert!(log.contains("bridge br0: rule `priority="), "{log}");
    assert_eq!(host.tables()[0]["rules"].as_array().unwrap().len(), 1);
    let files = fs::read_dir(host.folder.path()).unwrap();
    let is_copy = |path: &PathBuf| path.to_string_lossy().contains("state.json.refused-");
    let copies: Vec<_> = files.map(|file| file.unwrap().path()).filter(is_copy).collect();
    let [copy] = copies.as_slice() else { panic!("{copies:?}") };
    assert!(log.contains(copy.to_str().unwrap()), "{log}");
    let saved: Value = serde_json::from_slice(&fs::read(copy).unwrap()).unwrap();
    assert_eq!(saved["state"]["tables"][0]["rules"].as_array().unwrap().len(), 2);
    host.exit(daemon);
}

/// The file has a port that the operator has added with another number.
#[test]
fn refused_change_of_file_is_tried_again() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    host.answer(&["add-port", "br0", "p1", "type=null", "number=7"]);
    host.exit(daemon);
    host.write(&format!("{BRIDGE}{PORT}number = 8\n"));
    for starts in 1..=2 {
        let daemon = host.start();
        let refused = "refused: port p1: not added to br0: port p1 exists already";
        let at_start = format!("state.json: {refused}");
        assert_eq!(host.log().matches(&at_start).count(), starts, "{}", host.log());
        let reload = shuntctl(host.folder.path(), &["reload"]);
        let answer = String::from_utf8_lossy(&reload.stdout);
        assert!(reload.status.code() == Some(1) && answer.contains(refused), "{answer}");
        host.exit(daemon);
    }
    let daemon = host.start();
    host.answer(&["del-port", "p1"]);
    host.exit(daemon);
    let daemon = host.start();
    assert!(host.answer(&["show"]).contains("port 8 p1"));
    host.exit(daemon);
}

#[test]
fn save_and_restore_carry_rules_to_another_daemon() {
    let one = Daemon::start(BRIDGE);
    one.answer(&["add-port", "br0", "q1", "type=null"]);
    let file = one.run_dir().join("saved.json");
    one.answer(&["save", file.to_str().unwrap()]);
    let two = Daemon::start("");
    let report = two.answer(&["restore", file.to_str().unwrap()]);
    assert!(report.contains("bridge br0: added\nport q1: added to br0\n"), "{report}");
    assert!(two.answer(&["show"]).contains("q1"));
    let missing = two.error_text(&["restore", "/nowhere/saved.json"]);
    assert!(missing.contains("there is no file /nowhere/saved.json"), "{missing}");
}

/// A start must not fail because of a controller.
#[test]
fn resumed_address_with_tls_is_a_warning() {
    let tls = "[tls]\nprivate_key = \"/none/k\"\ncertificate = \"/none/c\"\n";
    let host = Host::new(&format!("{tls}ca_certificate = \"/none/a\"\n{BRIDGE}"));
    let daemon = host.start();
    host.answer(&["add-br", "br1", "controllers=ssl:127.0.0.1:1"]);
    host.exit(daemon);
    host.write(BRIDGE);
    let daemon = host.start();
    let warning = "bridge br1: `ssl:127.0.0.1:1` needs TLS: add the section [tls]";
    assert!(host.log().contains(warning), "{}", host.log());
    assert!(host.answer(&["show"]).contains("br1"));
    host.exit(daemon);
}

/// A missing socket must not cost the bridge its rules.
#[test]
fn resumed_bridge_waits_for_its_management_socket() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    host.exit(daemon);
    let socket = host.folder.path().join("br0.mgmt");
    // While there is a directory, no socket can have this path.
    fs::create_dir(&socket).unwrap();
    let daemon = host.start();
    assert!(host.answer(&["show"]).contains("br0"), "{}", host.log());
    let waits = || host.log().contains("bridge br0: cannot open the management socket, retrying");
    assert!(wait_until(waits), "{}", host.log());
    fs::remove_dir(&socket).unwrap();
    assert!(wait_until(|| UnixStream::connect(&socket).is_ok()), "{}", host.log());
    host.exit(daemon);
}

#[test]
fn a_state_file_has_one_daemon() {
    let host = Host::new("[[bridge]]\nname = \"br0\"\n");
    let daemon = host.start();
    // The state file is the same when another path leads to it.
    let link = host.folder.path().join("link");
    std::os::unix::fs::symlink("state.json", &link).unwrap();
    for state in [host.state(), link] {
        let other = tempfile::tempdir().unwrap();
        let refused = shuntd(other.path()).arg("--state").arg(&state).output().unwrap();
        assert_eq!(refused.status.code(), Some(3));
        let message = errors(&refused);
        let process = format!("(process {})", daemon.0.id());
        assert!(message.contains("another shuntd") && message.contains(&process), "{message}");
    }
    host.exit(daemon);
    assert!(!host.folder.path().join("state.json.lock").exists());
    host.exit(host.start());
}

#[test]
fn a_state_file_without_a_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("none").join("state.json");
    let refused = shuntd(folder.path()).arg("--state").arg(&state).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let message = errors(&refused);
    assert!(message.contains("cannot keep the state in"), "{message}");
    assert_eq!(message.matches("os error").count(), 1, "{message}");
}
