//! Managers of the embedded server: remotes over TCP and TLS, with `ovs-vsctl` as the client.

use std::{
    io::{BufRead as _, BufReader},
    process::{Output, Stdio},
};

use shunt_tests::daemon::{Daemon, wait_until};

use crate::{
    tls::Authority,
    vsctl::{DaemonFixture, Database},
};

/// Returns a fixture with the embedded server.
///
/// `ovsdb-server` handles its managers itself, so there is no fixture with that server.
fn start_embedded(label: &str) -> Option<(DaemonFixture, Daemon)> {
    let mut fixtures = DaemonFixture::both(label).into_iter();
    let fixture = fixtures.find(|fixture| matches!(fixture.database, Database::Embedded(_)))?;
    let daemon = fixture.start();
    fixture.namespace.run("ip", &["link", "set", "lo", "up"]);
    Some((fixture, daemon))
}

fn managers(fixture: &DaemonFixture) -> String {
    fixture.done("--columns=status,is_connected list Manager")
}

/// Clients such as `OpenStack` Neutron connect over TCP.
#[test]
fn a_manager_lets_clients_connect_over_tcp() {
    let Some((fixture, daemon)) = start_embedded("manager") else { return };
    fixture.done("add-br br0 -- set-manager ptcp:6640:127.0.0.1");
    let names = fixture.namespace.run("ovs-vsctl", &["--db=tcp:127.0.0.1:6640", "list-br"]);
    assert_eq!(names.trim(), "br0");
    assert!(managers(&fixture).contains("bound_port=\"6640\""), "{}", managers(&fixture));
    // Another address can use the same port immediately.
    for target in ["ptcp:6640", "ptcp:6640:127.0.0.1", "ptcp:6640"] {
        fixture.done(&format!("set-manager {target}"));
        assert!(managers(&fixture).contains("bound_port=\"6640\""), "{}", managers(&fixture));
    }
    assert!(!daemon.log().contains("cannot listen"), "{}", daemon.log());
    fixture.done("set-manager punix:/tmp/db.sock");
    let reason = "is not an address that the embedded server supports";
    assert!(managers(&fixture).contains(reason), "{}", managers(&fixture));
}

#[test]
fn a_manager_with_tls_trusts_its_authority() {
    let Some((fixture, daemon)) = start_embedded("mgr-tls") else { return };
    let [ours, theirs] = [Authority::new(), Authority::new()];
    let files = ["switch.key", "switch.pem", "ca.pem"].map(|name| ours.path(name));
    let files = files.map(|file| file.display().to_string()).join(" ");
    fixture.done(&format!("set-ssl {files} -- add-br br0 -- set-manager pssl:6640:127.0.0.1"));
    let listed = tls_list(&fixture, &ours, "ssl:127.0.0.1:6640");
    assert_eq!(listed.stdout, b"br0\n", "{listed:?}");
    assert!(!tls_list(&fixture, &theirs, "ssl:127.0.0.1:6640").status.success());
    let failed = "pssl:6640:127.0.0.1: TLS with ssl:127.0.0.1:";
    assert!(wait_until(|| daemon.log().contains(failed)), "{}", daemon.log());
    // The server connects to a client that listens.
    fixture.done("set-manager ssl:127.0.0.1:6641");
    fixture.done("set Manager ssl:127.0.0.1:6641 max_backoff=1000");
    assert!(wait_until(|| managers(&fixture).contains("state=BACKOFF")), "{}", managers(&fixture));
    let listed = tls_list(&fixture, &ours, "pssl:6641:127.0.0.1");
    assert_eq!(listed.stdout, b"br0\n", "{listed:?}");
    let has_times = || managers(&fixture).contains("sec_since_connect");
    assert!(wait_until(has_times), "{}", managers(&fixture));
    // Without a key, no client can connect, although the server listens.
    fixture.done("del-ssl -- set-manager pssl:6640:127.0.0.1");
    let has_reason = || managers(&fixture).contains("last_error=\"TLS has no private key");
    assert!(wait_until(has_reason), "{}", managers(&fixture));
}

/// Settings of managers and controllers without effect are shown with their state.
#[test]
fn status_lists_settings_without_effect() {
    let Some((fixture, daemon)) = start_embedded("mgr-set") else { return };
    fixture.done("add-br br0 -- set-controller br0 tcp:127.0.0.1:6699 -- set-manager ptcp:6640");
    fixture.done("set Controller br0 inactivity_probe=60000 connection_mode=out-of-band");
    fixture.done("set Manager ptcp:6640 connection_mode=in-band");
    let status = fixture.done("get Controller br0 status");
    assert!(status.contains("inactivity_probe=\"no effect"), "{status}");
    assert!(status.contains("state=") && !status.contains("connection_mode"), "{status}");
    let has_reason = || managers(&fixture).contains("connection_mode=\"no effect");
    assert!(wait_until(has_reason), "{}", managers(&fixture));
    let line = "controller tcp:127.0.0.1:6699: the setting inactivity_probe has no effect";
    assert_eq!(daemon.log().matches(line).count(), 1, "{}", daemon.log());
}

/// Peers without a certificate take no place of clients that have one.
#[test]
fn silent_peers_leave_a_manager_with_tls_free() {
    let Some((fixture, daemon)) = start_embedded("mgr-full") else { return };
    let authority = Authority::new();
    let files = ["switch.key", "switch.pem", "ca.pem"].map(|name| authority.path(name));
    let files = files.map(|file| file.display().to_string()).join(" ");
    fixture.done(&format!("set-ssl {files} -- add-br br0 -- set-manager pssl:6640:127.0.0.1"));
    let mut peers = fixture.namespace.command("bash");
    let connect = "for i in {1..950}; do exec {fd}<>/dev/tcp/127.0.0.1/6640; done; echo; read";
    peers.args(["-c", connect]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut peers = peers.spawn().expect("bash runs");
    let mut line = String::new();
    let output = peers.stdout.take().expect("standard output is piped");
    BufReader::new(output).read_line(&mut line).expect("all are connected");
    assert_eq!(line, "\n");
    let listed = tls_list(&fixture, &authority, "ssl:127.0.0.1:6640");
    assert_eq!(listed.stdout, b"br0\n", "{listed:?}");
    let lines = daemon.log().matches("TLS with ssl:").count();
    assert!((1..=20).contains(&lines), "{}", daemon.log());
    peers.kill().expect("the peers run");
    peers.wait().expect("the peers have ended");
}

/// Lists the bridges as a controller of an authority.
fn tls_list(fixture: &DaemonFixture, authority: &Authority, database: &str) -> Output {
    let option = |name: &str, file: &str| format!("--{name}={}", authority.path(file).display());
    let mut command = fixture.namespace.command("ovs-vsctl");
    command.arg(option("private-key", "controller.key"));
    command.arg(option("certificate", "controller.pem"));
    command.arg(option("ca-cert", "ca.pem"));
    command.args([&format!("--db={database}"), "--timeout=10", "list-br"]);
    command.output().expect("ovs-vsctl runs")
}
