//! The daemon as a client of `ovsdb-server`: servers that die, lose their database, or have another
//! switch.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use shunt_tests::{
    daemon::{Daemon, binary, error_text, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip},
    open_vswitch::SCHEMA,
    ovsdb_server::OvsdbServer,
    traffic::ping,
};

use crate::{
    tls::Authority,
    vsctl::{DaemonFixture, show},
};

/// Bridges, rules and port numbers remain while the server is unavailable.
#[test]
fn a_killed_server_changes_nothing() {
    let Some(mut fixture) = DaemonFixture::foreign("kill") else { return };
    let daemon = fixture.start();
    fixture.done("add-br br0 -- add-port br0 p1 -- set Interface p1 type=null ofport_request=9");
    text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=7,actions=drop"]));
    fixture.server().kill();
    assert!(wait_until(|| daemon.log().contains("cannot connect, retrying")), "{}", daemon.log());
    assert!(show(&daemon).contains("port 9 p1 (null, up)"), "{}", show(&daemon));

    fixture.server().restart();
    fixture.done("add-port br0 p2 -- set Interface p2 type=null");
    assert_eq!(fixture.done("get Interface p1 ofport"), "9");
    let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
    assert!(rules.contains("priority=7 actions=drop"), "{rules}");
    assert!(!daemon.log().contains("removed by OVSDB"), "{}", daemon.log());
}

/// Bridges that the new database lacks are removed, as in Open vSwitch.
#[test]
fn an_empty_database_removes_the_bridges() {
    let Some(mut fixture) = DaemonFixture::foreign("lost") else { return };
    let daemon = fixture.start();
    fixture.done("add-br br0 -- add-br br1");
    fixture.server().lose_database();
    assert!(wait_until(|| !show(&daemon).contains("bridge br")), "{}", show(&daemon));
    assert!(daemon.log().contains("bridge br1: removed by OVSDB"), "{}", daemon.log());
    fixture.done("add-br br2");
    assert!(show(&daemon).contains("bridge br2"), "{}", show(&daemon));
}

/// The columns of other clients remain,
/// and the columns of the daemon have the daemon's state.
#[test]
fn the_daemon_writes_its_columns_alone() {
    let Some(fixture) = DaemonFixture::foreign("cols") else { return };
    let _daemon = fixture.start();
    fixture.done(
        "add-br br0 -- set Bridge br0 external_ids:a=b -- add-port br0 p1 \
         -- set Interface p1 type=null external_ids:iface-id=x -- set Open_vSwitch . external_ids:c=d \
         ovs_version=3.1",
    );
    assert_eq!(fixture.done("get Bridge br0 external_ids"), "{a=b}");
    assert_eq!(fixture.done("get Interface p1 external_ids:iface-id"), "x");
    assert_eq!(fixture.done("get Open_vSwitch . external_ids"), "{c=d}");
    assert_eq!(fixture.done("get Bridge br0 datapath_id").len(), "\"00000000000000ab\"".len());
    let types = fixture.done("get Open_vSwitch . iface_types datapath_types");
    for name in ["patch", "dpdkvhostuserclient", "netdev"] {
        assert!(types.contains(name), "{types}");
    }
    assert!(fixture.done("get Interface p1 statistics").contains("rx_packets=0"));
    let versions = fixture.done("get Open_vSwitch . ovs_version db_version dpdk_initialized");
    assert_eq!(versions, "\"3.1\"\n[]\nfalse", "the first two belong to others");
}

/// A server of an older version lacks columns,
/// and the daemon works without these columns.
#[test]
fn an_older_schema_is_followed() {
    let missing = [
        ("Open_vSwitch", "datapath_types"),
        ("Open_vSwitch", "dpdk_initialized"),
        ("Open_vSwitch", "iface_types"),
        ("Bridge", "datapath_version"),
        ("Interface", "ifindex"),
        ("Interface", "mtu_request"),
    ];
    let Some(server) = OvsdbServer::start_without(&missing) else { return };
    let Some(fixture) = DaemonFixture::with_server("old", server) else { return };
    let daemon = fixture.start();
    fixture.done("add-br br0 -- add-port br0 p1 -- set Interface p1 type=null");
    assert_eq!(fixture.done("get Interface p1 ofport error"), "1\n[]");
    assert!(!daemon.log().contains("not written"), "{}", daemon.log());
}

/// After `emer-reset`, bridges and ports remain without controllers.
#[test]
fn vsctl_emer_reset_removes_the_controllers() {
    let Some(fixture) = DaemonFixture::foreign("emer") else { return };
    let daemon = fixture.start();
    fixture.done("add-br br0 -- set-controller br0 tcp:127.0.0.1:1 -- set-fail-mode br0 secure");
    assert!(show(&daemon).contains("tcp:127.0.0.1:1"), "{}", show(&daemon));
    fixture.done("emer-reset");
    assert!(!show(&daemon).contains("tcp:127.0.0.1:1"), "{}", show(&daemon));
    assert!(show(&daemon).contains("bridge br0"), "{}", show(&daemon));
}

/// Adds the bridge `br0` with the port `t1`, which is the device of a host.
fn connect(fixture: &DaemonFixture, host: &Namespace) {
    fixture
        .done("add-br br0 -- add-port br0 t1 -- set Interface t1 type=internal ofport_request=9");
    fixture.namespace.run("ip", &["addr", "add", "10.69.8.1/24", "dev", "br0"]);
    fixture.namespace.move_device("t1", host);
    host.run("ip", &["addr", "add", "10.69.8.2/24", "dev", "t1"]);
    host.run("ip", &["link", "set", "t1", "up"]);
}

/// Packets pass while a fault of the database lasts, and the state is right after
/// it.
///
/// A bridge that is deleted while packets pass can be added again.
#[test]
fn forwarding_continues_through_database_faults() {
    let Some(mut fixture) = DaemonFixture::foreign("faults") else { return };
    let Some(host) = namespace_or_skip("fault-host") else { return };
    let daemon = fixture.start();
    let passes = |after: &str| {
        assert!(ping(&host, "10.69.8.1"), "{after}: {}", daemon.log());
        let shown = show(&daemon);
        assert!(shown.contains("port 9 t1 (tap"), "{after}: {shown}");
    };
    connect(&fixture, &host);
    passes("start");
    fixture.server().kill();
    assert!(wait_until(|| daemon.log().contains("cannot connect, retrying")), "{}", daemon.log());
    passes("without a server");
    fixture.server().restart();
    fixture.done("set Bridge br0 external_ids:a=b");
    passes("with the server again");
    fixture.done("emer-reset");
    passes("after emer-reset");
    assert_eq!(fixture.done("get Interface t1 ofport"), "9");

    let mut load = host.command("ping");
    load.args(["-q", "-i", "0.002", "-w", "30", "10.69.8.1"]);
    let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut load = load.expect("ping starts");
    fixture.done("del-br br0");
    assert!(!show(&daemon).contains("bridge br0"), "{}", show(&daemon));
    connect(&fixture, &host);
    passes("after the bridge was deleted under load");
    load.kill().expect("ping runs");
    let _ = load.wait();
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

/// A client that owns a lock until drop.
struct LockOwner(Child);

impl LockOwner {
    /// Returns when the server has granted the lock.
    fn new(fixture: &mut DaemonFixture, verb: &str) -> Self {
        let socket = format!("unix:{}", fixture.server().socket().display());
        let mut command = Command::new("ovsdb-client");
        command.args([verb, &socket, "ovs_vswitchd"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut owner = Self(command.spawn().expect("ovsdb-client starts"));
        let replies = owner.0.stdout.as_mut().expect("its output is a pipe");
        let mut reply = String::new();
        BufReader::new(replies).read_line(&mut reply).expect("a reply of the server");
        assert!(reply.contains("true"), "{verb}: {reply}");
        owner
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// While another client owns the lock, the daemon only reads.
#[test]
fn only_the_lock_owner_writes() {
    let Some(mut fixture) = DaemonFixture::foreign("lock") else { return };
    let first = LockOwner::new(&mut fixture, "lock");
    let daemon = fixture.start();
    let waits = || daemon.log().contains("another switch owns the lock ovs_vswitchd");
    assert!(wait_until(waits), "{}", daemon.log());
    // The daemon does not follow the database, and does not write that it has followed.
    let times_out = |fixture: &DaemonFixture, line: &str| {
        let error = fixture.vsctl(&format!("--timeout=3 {line}")).stderr;
        let error = String::from_utf8_lossy(&error).into_owned();
        assert!(error.contains("Alarm clock") || error.contains("timed out"), "{line}: {error}");
    };
    times_out(&fixture, "add-br br0");
    assert!(!show(&daemon).contains("bridge br0"), "{}", show(&daemon));
    drop(first);
    assert!(wait_until(|| show(&daemon).contains("bridge br0")), "{}", daemon.log());

    // Bridges remain when the lock is taken away, and follow the database when the lock is back.
    let second = LockOwner::new(&mut fixture, "steal");
    let stolen = || daemon.log().contains("another client has taken the lock ovs_vswitchd");
    assert!(wait_until(stolen), "{}", daemon.log());
    times_out(&fixture, "del-br br0 -- add-br br1");
    let shown = show(&daemon);
    assert!(shown.contains("bridge br0") && !shown.contains("bridge br1"), "{shown}");
    drop(second);
    assert!(wait_until(|| show(&daemon).contains("bridge br1")), "{}", daemon.log());
    assert!(!show(&daemon).contains("bridge br0"), "{}", show(&daemon));
}

/// Each further port needs a transaction of the same size.
#[test]
fn transactions_contain_only_the_change() {
    let Some(mut fixture) = DaemonFixture::foreign("many") else { return };
    let _daemon = fixture.start();
    fixture.done("add-br br0");
    let before = fixture.server().transaction_lengths("shuntd").len();
    for number in 1..=PORTS {
        fixture.done(&format!("add-port br0 n{number} -- set Interface n{number} type=null"));
    }
    let lengths = fixture.server().transaction_lengths("shuntd").split_off(before);
    assert!(lengths.len() >= PORTS, "{}", lengths.len());
    let longest = lengths.iter().max().expect("there are some");
    assert!(*longest < 500, "{lengths:?}");
}

/// Number of ports that are added one after another.
const PORTS: usize = 200;

/// A daemon that starts before the server gets its bridges when the server starts.
#[test]
fn the_daemon_starts_without_its_server() {
    let Some(mut fixture) = DaemonFixture::foreign("late") else { return };
    {
        let _daemon = fixture.start();
        fixture.done("add-br br0");
    }
    fixture.server().kill();
    let daemon = fixture.start();
    assert!(daemon.log().contains("no rows have arrived yet"), "{}", daemon.log());
    fixture.server().restart();
    assert!(wait_until(|| show(&daemon).contains("bridge br0")), "{}", daemon.log());
}

/// Two databases are refused with both names, and TLS without its files.
#[test]
fn contradictory_database_options_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shunt.toml");
    let check = |text: &str, arguments: &[&str]| {
        fs::write(&file, text).expect("a file");
        let mut command = Command::new(binary("shuntd"));
        let result = output(command.arg("--check").arg("--config").arg(&file).args(arguments));
        (result.status.code(), String::from_utf8_lossy(&result.stderr).into_owned())
    };
    let both = "[ovsdb]\nsocket = '/run/s.sock'\nremote = 'unix:/run/r.sock'\n";
    let embedded = "[ovsdb]\nsocket = '/run/s.sock'\n";
    let foreign = "[ovsdb]\nremote = 'unix:/run/r.sock'\n";
    assert_eq!(check(foreign, &["--db", "unix:/run/r.sock"]).0, Some(0));
    for (text, arguments) in [
        (both, [].as_slice()),
        (embedded, ["--db", "unix:/run/r.sock"].as_slice()),
        (foreign, ["--db", "tcp:192.0.2.1"].as_slice()),
    ] {
        let (code, message) = check(text, arguments);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("two databases are configured"), "{message}");
    }
    let (code, message) = check("", &["--db", "pssl:6640"]);
    assert!(code == Some(2) && message.contains("an address to listen on"), "{message}");
    let files = "[tls]\nprivate_key = 'k'\ncertificate = 'c'\nca_certificate = 'a'\n";
    assert_eq!(check(files, &["--db", "ssl:192.0.2.1"]).0, Some(0));
    for (text, arguments) in
        [("", &["--db", "ssl:192.0.2.1"][..]), ("[ovsdb]\nremote = 'ssl:192.0.2.1'\n", &[])]
    {
        let (code, message) = check(text, arguments);
        assert!(code == Some(2) && message.contains("needs TLS: set private_key"), "{message}");
    }
}

/// The daemon shows the certificate of `[tls]`,
/// and trusts the authority of that section.
#[test]
fn database_of_server_is_followed_over_tls() {
    let Some(fixture) = DaemonFixture::foreign("db-tls") else { return };
    fixture.namespace.run("ip", &["link", "set", "lo", "up"]);
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("conf.db");
    text(&output(Command::new("ovsdb-tool").arg("create").arg(&database).arg(SCHEMA)));
    let option = |name: &str, file: &str| format!("--{name}={}", authority.path(file).display());
    let socket = folder.path().join("db.sock");
    let mut server = fixture.namespace.command("ovsdb-server");
    server.arg(&database).args(["--remote=pssl:6640:127.0.0.1", "-vconsole:off", "-vsyslog:off"]);
    server.arg(format!("--remote=punix:{}", socket.display()));
    server.arg(format!("--unixctl={}", folder.path().join("ctl").display()));
    server.args([option("private-key", "controller.key"), option("ca-cert", "ca.pem")]);
    server.arg(option("certificate", "controller.pem"));
    let mut server = server.spawn().expect("ovsdb-server is installed");
    let daemon = Daemon::start_with(&authority.section(), |program| {
        let mut command = fixture.namespace.command(program.to_str().expect("a path in UTF-8"));
        command.arg("--db=ssl:127.0.0.1:6640");
        command
    });
    let remote = format!("--db=unix:{}", socket.display());
    assert!(wait_until(|| daemon.log().contains("database ssl:127.0.0.1:6640: connected")));
    let mut command = Command::new("ovs-vsctl");
    text(&output(command.args([&remote, "--timeout=10", "add-br", "br0"])));
    assert!(show(&daemon).contains("bridge br0"), "{}", show(&daemon));
    // The running connection needs the files, also if the file no longer has them.
    fs::write(daemon.run_dir().join("shunt.toml"), "").expect("the file of the daemon");
    let refused = error_text(&daemon.shuntctl(&["reload"]));
    assert!(refused.contains("`ssl:127.0.0.1:6640` needs TLS: set private_key"), "{refused}");
    server.kill().expect("the server runs");
    server.wait().expect("the server has ended");
    // The log has no text of the TLS library for programmers.
    assert!(wait_until(|| daemon.log().contains("cannot connect, retrying")), "{}", daemon.log());
    assert!(!daemon.log().contains("docs.rs"), "{}", daemon.log());
}

/// A server that sends garbage causes log lines and nothing else.
#[test]
fn garbage_from_a_database_harms_no_bridge() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("db.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let garbage = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().expect("the daemon connects");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").expect("the daemon listens");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
        // Reads until the daemon closes the connection: the daemon must close first.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let text = format!("[ovsdb]\nremote = 'unix:{}'\n[[bridge]]\nname = 'br0'\n", socket.display());
    let daemon = Daemon::start(&text);
    garbage.join().expect("the server ends");
    let is_logged = || {
        daemon.log().contains(
            "the server does not speak OVSDB: the peer sent a message that starts with byte 0x48",
        )
    };
    assert!(wait_until(is_logged), "{}", daemon.log());
    assert!(show(&daemon).contains("bridge br0"), "{}", show(&daemon));
}
