//! Tests of signals, and of the reload of the configuration file.

use std::{
    fs,
    net::TcpListener,
    os::unix::net::{UnixListener, UnixStream},
    process::Command,
};

use serde_json::{Value, json};

use crate::{Daemon, wait_until};

const BRIDGE: &str = "[[bridge]]\nname = \"br0\"\n";

/// A null port, which needs no device.
fn port(name: &str) -> String {
    format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"null\"\n")
}

pub(crate) fn signal(daemon: &Daemon, name: &str) {
    let id = daemon.process.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
}

fn write(daemon: &Daemon, configuration: &str) {
    fs::write(daemon.run_dir().join("shunt.toml"), configuration).unwrap();
}

#[test]
fn sighup_loads_the_changed_file() {
    let daemon = Daemon::start(&format!("{BRIDGE}{}", port("p1")));
    write(&daemon, &format!("[threads]\npacket = 2\n{BRIDGE}{}", port("p2")));
    signal(&daemon, "HUP");
    assert!(wait_until(|| daemon.log().contains("configuration: reloaded")), "{}", daemon.log());
    let shown = daemon.answer(&["show"]);
    assert!(shown.contains("p2") && !shown.contains("p1"), "{shown}");
    assert!(daemon.log().contains("threads.packet takes effect at the next start"));
}

#[test]
fn an_invalid_file_changes_nothing() {
    let daemon = Daemon::start(&format!("{BRIDGE}{}", port("p1")));
    write(&daemon, &format!("{BRIDGE}naem = 1\n"));
    let error = daemon.error_text(&["reload"]);
    assert!(error.contains("shunt.toml:3: unknown key `naem`"), "{error}");
    assert!(daemon.log().contains("configuration: not reloaded"), "{}", daemon.log());
    assert!(daemon.answer(&["show"]).contains("p1"));
}

#[test]
fn reload_reports_each_change() {
    let daemon = Daemon::start(BRIDGE);
    assert_eq!(daemon.answer(&["reload"]), "no changes to apply\n");
    write(&daemon, &format!("[caches]\nidle_ms = 7000\n{BRIDGE}{}", port("p1")));
    let report = daemon.answer(&["reload"]);
    assert_eq!(report, "port p1: added to br0\ncaches.idle_ms=7000\n");
    assert!(daemon.answer(&["settings"]).contains("7000"));
}

/// The warning of `add-br`, which only the log of the daemon had.
#[test]
fn reload_names_a_shared_datapath_id() {
    let id = "datapath_id = \"00000000000000c1\"\n";
    let daemon = Daemon::start(&format!("{BRIDGE}{id}"));
    let two = format!("{BRIDGE}{id}[[bridge]]\nname = \"br1\"\n");
    write(&daemon, &format!("{two}{id}"));
    let remark = "bridge br1: bridge br0 has the datapath id 00000000000000c1 too, so controllers";
    let report = daemon.answer(&["reload"]);
    assert!(report.starts_with(&format!("bridge br1: added\n{remark}")), "{report}");
    write(&daemon, &format!("{two}datapath_id = \"00000000000000c2\"\n"));
    let report = daemon.answer(&["reload"]);
    assert!(!report.contains("too, so"), "{report}");
    write(&daemon, &format!("{two}{id}"));
    let report = daemon.answer(&["reload"]);
    assert!(report.contains(remark), "{report}");
}

#[test]
fn ingress_policing_changes_at_run_time() {
    let daemon = Daemon::start(&format!("{BRIDGE}{}", port("p1")));
    let limited = format!("{BRIDGE}{}ingress_policing_rate = 800\n", port("p1"));
    write(&daemon, &limited);
    assert_eq!(daemon.answer(&["reload"]), "port p1: ingress policing set\n");
    assert!(daemon.answer(&["show"]).contains("(null, up, ingress_policing_rate=800)"));
    daemon.answer(&["set-policing", "p1", "ingress_policing_kpkts_rate=5"]);
    assert!(daemon.answer(&["show"]).contains("(null, up, ingress_policing_kpkts_rate=5)"));
    let saved = daemon.answer(&["save"]);
    assert!(saved.contains("\"ingress_policing_kpkts_rate\": 5"), "{saved}");
    let error = daemon.error_text(&["set-policing", "p1", "ingress_policing_rat=5"]);
    assert!(error.contains("did you mean `ingress_policing_rate`?"), "{error}");
    let error = daemon.error_text(&["set-policing", "br0", "ingress_policing_rate=5"]);
    assert!(error.contains("a local port has no ingress policing"), "{error}");
    daemon.answer(&["set-policing", "p1"]);
    assert!(daemon.answer(&["show"]).contains("(null, up)"));
}

#[test]
fn qos_changes_at_run_time() {
    let daemon = Daemon::start(&format!("{BRIDGE}{}", port("p1")));
    let qos = "qos = { type = \"egress-policer\", cir = 1000, cbs = 500 }";
    write(&daemon, &format!("{BRIDGE}{}{qos}\n", port("p1")));
    assert_eq!(daemon.answer(&["reload"]), "port p1: QoS set\n");
    let shown = daemon.answer(&["show"]);
    assert!(shown.contains("(null, up, qos egress-policer cir=1000 cbs=500)"), "{shown}");
    let error = daemon.error_text(&["set-qos", "p1", "type=egress-policer", "cir=5"]);
    assert!(error.contains("port p1: an egress-policer needs `cir`"), "{error}");
    let error = daemon.error_text(&["set-qos", "br0", "type=linux-noop"]);
    assert!(error.contains("a local port has no ingress policing and no QoS"), "{error}");
    assert!(daemon.answer(&["save"]).contains("\"egress-policer\""));
    daemon.answer(&["set-qos", "p1", "type=linux-noop"]);
    assert!(daemon.answer(&["show"]).contains("(null, up, qos linux-noop)"));
    daemon.answer(&["set-qos", "p1"]);
    assert!(daemon.answer(&["show"]).contains("(null, up)"));
}

/// A reload names a key until the file agrees with the running daemon again.
#[test]
fn a_reload_compares_with_the_running_configuration() {
    let daemon = Daemon::start(BRIDGE);
    write(&daemon, &format!("[threads]\npacket = 2\n{BRIDGE}"));
    for _ in 0..2 {
        let report = daemon.answer(&["reload"]);
        assert_eq!(report, "takes effect at the next start: threads.packet\n");
    }
    write(&daemon, &format!("[ovsdb]\nsocket = \"/nonexistent/db.sock\"\n{BRIDGE}"));
    let report = daemon.answer(&["reload"]);
    assert_eq!(report, "takes effect at the next start: ovsdb.socket\n");
    write(&daemon, BRIDGE);
    assert_eq!(daemon.answer(&["reload"]), "no changes to apply\n");
}

/// Addresses with TLS and the files that they need take effect together.
#[test]
fn a_reload_sets_the_files_of_tls() {
    let daemon = Daemon::start(BRIDGE);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ssl:{}", server.local_addr().unwrap());
    let files = "[tls]\nprivate_key = \"/none/k\"\ncertificate = \"/none/c\"\n\
                 ca_certificate = \"/none/a\"\n";
    let controllers = format!("controllers = [\"{address}\"]\n");
    write(&daemon, &format!("{files}{BRIDGE}{controllers}"));
    let report = daemon.answer(&["reload"]);
    let expected = format!(
        "bridge br0: controllers={address}\ntls.private_key=/none/k\ntls.certificate=/none/c\n\
         tls.ca_certificate=/none/a\ntls: cannot read the CA certificate /none/a: "
    );
    assert!(report.starts_with(&expected), "{report}");
    assert!(!report.contains("next start"), "{report}");
    let shown = || daemon.answer(&["show"]);
    assert!(wait_until(|| shown().contains("CA certificate /none/a: ")), "{}", shown());
    daemon.answer(&["set-br", "br0", "listen=pssl:0:127.0.0.1"]);
    write(&daemon, BRIDGE);
    let report = daemon.answer(&["reload"]);
    assert!(report.contains("tls.private_key: removed\n"), "{report}");
    let warning = "\nbridge br0: `pssl:0:127.0.0.1` needs TLS: add the section [tls] ";
    assert!(report.contains(warning), "{report}");
    daemon.answer(&["set-br", "br0", "listen="]);
    let error = daemon.error_text(&["set-br", "br0", "listen=pssl:0:127.0.0.1"]);
    assert!(error.contains("`pssl:0:127.0.0.1` needs TLS: set private_key"), "{error}");
}

/// Another program has the address, which only `show` and the log reported.
#[test]
fn a_reload_names_a_closed_listener() {
    let daemon = Daemon::start(BRIDGE);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ptcp:{}:127.0.0.1", taken.local_addr().unwrap().port());
    write(&daemon, &format!("{BRIDGE}listen = [\"{address}\"]\n"));
    let report = daemon.answer(&["reload"]);
    let problem = format!("\nbridge br0: cannot listen on {address}: ");
    assert!(report.contains(&problem), "{report}");
    assert!(report.ends_with("; the switch tries again every second\n"), "{report}");
    let output = daemon.shuntctl(&["doctor"]);
    let checked = String::from_utf8_lossy(&output.stdout);
    let problem = format!("wrong    bridge br0: cannot listen on {address}: ");
    assert!(checked.contains(&problem), "{checked}");
    assert_eq!(output.status.code(), Some(1));
}

/// The directory has the name of a management socket, which only the log reported.
#[test]
fn a_bridge_without_management_socket_is_named() {
    let daemon = Daemon::start(BRIDGE);
    let path = daemon.run_dir().join("br1.mgmt");
    fs::create_dir(&path).unwrap();
    write(&daemon, &format!("{BRIDGE}[[bridge]]\nname = \"br1\"\n"));
    let report = daemon.answer(&["reload"]);
    let problem = format!(
        "no management socket, so ovs-ofctl cannot connect: cannot listen on {}: ",
        path.display()
    );
    let added = format!("bridge br1: added\nbridge br1: {problem}");
    assert!(report.starts_with(&added), "{report}");
    let remedy = "; move this directory away; the switch tries again every second\n";
    assert!(report.ends_with(remedy), "{report}");
    let shown = daemon.answer(&["show"]);
    assert!(shown.contains(&format!("    {problem}")), "{shown}");
    let output = daemon.shuntctl(&["doctor"]);
    let checked = String::from_utf8_lossy(&output.stdout);
    assert!(checked.contains(&format!("wrong    bridge br1: {problem}")), "{checked}");
    assert_eq!(output.status.code(), Some(1));
    fs::create_dir(daemon.run_dir().join("br2.mgmt")).unwrap();
    let error = daemon.error_text(&["add-br", "br2"]);
    assert!(error.contains("; move this directory away"), "{error}");
    fs::remove_dir(&path).unwrap();
    let shown = || daemon.answer(&["show"]);
    assert!(wait_until(|| !shown().contains("no management socket")), "{}", shown());
    assert!(path.exists());
}

#[test]
fn removed_management_socket_is_opened_again() {
    let daemon = Daemon::start(BRIDGE);
    let path = daemon.run_dir().join("br0.mgmt");
    fs::remove_file(&path).unwrap();
    assert!(wait_until(|| UnixStream::connect(&path).is_ok()), "{}", daemon.log());
    let logged =
        format!("management socket {}: the file of the socket was deleted", path.display());
    assert_eq!(daemon.log().matches(&logged).count(), 1, "{}", daemon.log());
    // Another process takes the name, and ends.
    let moved = daemon.run_dir().join("other.sock");
    let other = UnixListener::bind(&moved).unwrap();
    fs::rename(&moved, &path).unwrap();
    let shown = || daemon.answer(&["show"]);
    let remedy = "end the process that listens there";
    assert!(wait_until(|| shown().contains(remedy)), "{}", shown());
    drop(other);
    assert!(wait_until(|| !shown().contains("no management socket")), "{}", shown());
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn other_signals_change_nothing() {
    let daemon = Daemon::start(BRIDGE);
    for name in ["USR1", "USR2"] {
        signal(&daemon, name);
        assert!(
            wait_until(|| daemon.log().contains(&format!("the signal SIG{name} is ignored"))),
            "{}",
            daemon.log()
        );
    }
    assert!(daemon.answer(&["show"]).contains("br0"));
}

#[test]
fn exit_returns_when_the_daemon_has_ended() {
    let mut daemon = Daemon::start(BRIDGE);
    let mut exit = Command::new(env!("CARGO_BIN_EXE_shuntctl"))
        .arg("--run-dir")
        .arg(daemon.run_dir())
        .arg("exit")
        .spawn()
        .unwrap();
    // A SIGHUP during the end of the daemon must not interrupt the end.
    signal(&daemon, "HUP");
    assert!(exit.wait().unwrap().success());
    let left: Vec<_> = fs::read_dir(daemon.run_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("shuntd") || name.ends_with(".mgmt"))
        .collect();
    assert_eq!(left, [""; 0]);
    assert!(daemon.process.wait().unwrap().success());
}

#[test]
fn stale_management_socket_is_removed_at_start() {
    let mut daemon = Daemon::start(BRIDGE);
    assert!(daemon.run_dir().join("br0.mgmt").exists());
    write(&daemon, "[[bridge]]\nname = \"br1\"\n");
    daemon.kill_and_start_again().wait().unwrap();
    assert!(!daemon.run_dir().join("br0.mgmt").exists());
    assert!(daemon.run_dir().join("br1.mgmt").exists());
}

#[test]
fn top_needs_an_interval() {
    let daemon = Daemon::start(BRIDGE);
    let error = daemon.error_text(&["top", "--interval", "0", "--count", "1"]);
    assert!(error.contains("use a whole number from 1 to 86400"), "{error}");
}

/// `restore` has the rule of the configuration file and of `add-br`.
#[test]
fn a_restored_address_with_tls_needs_its_files() {
    let files = "[tls]\nprivate_key = \"/none/k\"\ncertificate = \"/none/c\"\n";
    let one = Daemon::start(&format!("{files}ca_certificate = \"/none/a\"\n{BRIDGE}"));
    one.answer(&["add-br", "br1", "controllers=ssl:127.0.0.1:1"]);
    let file = one.run_dir().join("saved.json");
    let file = file.to_str().unwrap();
    one.answer(&["save", file]);
    let two = Daemon::start("");
    let refused = two.error_text(&["restore", file]);
    let reason = "bridge br1: `ssl:127.0.0.1:1` needs TLS: set private_key";
    assert!(refused.contains(reason), "{refused}");
    let shown = two.answer(&["show"]);
    assert!(!shown.contains("br0") && !shown.contains("br1"), "nothing changed: {shown}");
    // The first daemon has the files.
    one.answer(&["restore", file]);
}

/// A refused rule is no success, and empty tables are not left without a word.
#[test]
fn restore_fails_if_a_rule_is_refused() {
    let daemon = Daemon::start(BRIDGE);
    let good = "priority=1,actions=drop";
    let wrong = "priority=0,actions=NORML";
    let file = daemon.run_dir().join("saved.json");
    let restore = |rules: &[&str]| {
        let mut saved: Value = serde_json::from_str(&daemon.answer(&["save"])).unwrap();
        saved["state"]["tables"][0]["rules"] = json!(rules);
        fs::write(&file, saved.to_string()).unwrap();
        let output = daemon.shuntctl(&["restore", file.to_str().unwrap()]);
        let texts = [output.stdout, output.stderr];
        let [report, error] = texts.map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), report, error)
    };
    let (code, report, _) = restore(&[good]);
    assert_eq!(code, Some(0), "{report}");
    let (code, report, error) = restore(&[good, wrong]);
    assert_eq!((code, error.as_str()), (Some(1), "shuntctl: 1 change refused\n"));
    let partly = "bridge br0: 1 of 2 rules, groups and meters restored: correct the refused lines";
    assert!(report.contains(partly), "{report}");
    let refused = format!("\nrefused: bridge br0: rule `{wrong}`: ");
    assert!(report.contains(&refused), "{report}");
    let (code, report, _) = restore(&[wrong]);
    let empty = "0 of 1 rules, groups and meters restored, so its tables are empty: correct";
    assert!(code == Some(1) && report.contains(empty), "{report}");
    let (code, report, _) = restore(&[good]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("bridge br0: 1 rules, groups and meters restored\n"), "{report}");
}
