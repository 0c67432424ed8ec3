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

/// Connects a client; `None` if the daemon did not answer its request.
fn connect_served(socket: &Path) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The daemon may close the connection before the request is written.
    stream.write_all(br#"{"method":"version","params":[],"id":0}"#).ok()?;
    let mut reply = [0; 256];
    let count = stream.read(&mut reply).ok()?;
    String::from_utf8_lossy(&reply[..count]).contains("\"result\"").then_some(stream)
}

/// Connects a client that sends a thousand requests and reads no reply.
fn connect_busy(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let requests = br#"{"method":"list-commands","params":[],"id":0}"#.repeat(1000);
    // The daemon may have closed the connection in favour of another client.
    let _ = stream.write_all(&requests);
    stream
}

/// Returns the bytes that a client has received so far, as text.
fn received(mut client: &UnixStream) -> String {
    client.set_nonblocking(true).unwrap();
    let mut bytes = [0; 512];
    let count = client.read(&mut bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn the_control_socket_serves_64_clients_at_once() {
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    let clients: Vec<_> =
        (0..CLIENTS_MAX).map(|_| connect_served(&socket).expect("a place")).collect();
    assert_eq!(clients.iter().map(received).collect::<String>(), "", "all stay connected");
    let _newcomer = connect_served(&socket).expect("the place of an idle client");
    let mut closed = Vec::new();
    assert!(wait_until(|| {
        closed.extend(clients.iter().map(received).filter(|text| !text.is_empty()));
        !closed.is_empty()
    }));
    let [reason] = &closed[..] else { panic!("one client makes room: {closed:?}") };
    assert!(reason.contains("connection closed: 64 other clients are connected"), "{reason}");
}

/// Clients without a request cannot keep other clients away.
#[test]
fn silent_clients_do_not_lock_out_shuntctl() {
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    let _silent: Vec<_> = (0..300).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    daemon.answer(&["show"]);
    daemon.answer(&["exit"]);
}

/// Clients that do not read their replies cannot keep other clients away.
#[test]
fn unread_replies_do_not_lock_out_shuntctl() {
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    let _busy: Vec<_> = (0..CLIENTS_MAX + 6).map(|_| connect_busy(&socket)).collect();
    assert!(wait_until(|| daemon.shuntctl(&["show"]).status.success()), "{}", daemon.log());
    daemon.answer(&["exit"]);
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
