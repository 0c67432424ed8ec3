//! Clients of the control socket, up to the limit.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use crate::{Daemon, wait_until};

/// Maximum number of connected clients.
const CLIENTS_MAX: usize = 64;

/// Connects a client; `None` if the daemon closed the connection without a reply.
fn connect_served(socket: &Path) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The daemon may close the connection before the request is written.
    stream.write_all(br#"{"method":"version","params":[],"id":0}"#).ok()?;
    let mut reply = [0; 256];
    stream.read(&mut reply).ok().filter(|count| *count > 0)?;
    Some(stream)
}

#[test]
fn the_control_socket_serves_64_clients_at_once() {
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    // The client that waited for the daemon may still be connected.
    let mut clients: Vec<UnixStream> = Vec::new();
    assert!(wait_until(|| {
        clients.extend(connect_served(&socket));
        clients.len() == CLIENTS_MAX
    }));
    for _ in 0..3 {
        assert!(connect_served(&socket).is_none(), "the bound is {CLIENTS_MAX}");
    }
    assert!(daemon.log().contains("too many clients"), "{}", daemon.log());
    clients.pop();
    assert!(wait_until(|| connect_served(&socket).is_some()), "a place is free");
}

/// Requests that change nothing are not logged.
#[test]
fn the_log_names_the_process_of_a_change() {
    let daemon = Daemon::start("[logging]\nfilter = \"debug\"\n[[bridge]]\nname = \"br0\"\n");
    daemon.answer(&["add-port", "br0", "p1", "type=null"]);
    daemon.answer(&["set", "caches.idle_ms=7000"]);
    daemon.answer(&["show"]);
    let log = daemon.log();
    assert!(log.contains("control socket: shunt/add-port br0 p1 type=null pid="), "{log}");
    assert!(log.contains("port p1: added to br0 number=1"), "{log}");
    assert!(log.contains("settings: caches.idle_ms=7000"), "{log}");
    assert!(!log.contains("control socket: shunt/show"), "`shunt/show` changes nothing: {log}");
}

#[test]
fn a_setting_is_accepted_as_it_is_printed() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    let settings = daemon.answer(&["settings"]);
    for line in settings.lines() {
        daemon.answer(&["set", line]);
    }
    assert_eq!(daemon.answer(&["settings"]), settings);
}
