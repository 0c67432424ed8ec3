//! Invalid peers and files: the switch keeps running, reports the error, and loses nothing.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::Command,
    time::Duration,
};

use shunt_tests::daemon::{Daemon, binary, error_text, output, text};

use crate::daemon;

fn connect(daemon: &Daemon) -> UnixStream {
    let socket = daemon.run_dir().join("br0.mgmt");
    let stream = UnixStream::connect(socket).expect("the management socket exists");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("ten seconds are a timeout");
    stream
}

fn read_message(stream: &mut UnixStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 8];
    stream.read_exact(&mut header).ok()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let mut body = vec![0; length.checked_sub(8)?];
    stream.read_exact(&mut body).ok()?;
    Some((header[1], body))
}

/// A hello message of OpenFlow 1.3.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];
/// An echo request of OpenFlow 1.3.
const ECHO: [u8; 8] = [4, 2, 0, 8, 0, 0, 0, 9];

#[test]
fn garbage_closes_only_its_own_connection() {
    let daemon = daemon();
    text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,ip,actions=output:1"]));
    let mut quiet = connect(&daemon);
    assert_eq!(
        read_message(&mut quiet).map(|(kind, _)| kind),
        Some(0),
        "the first message is \
                                         HELLO"
    );
    for garbage in [&[0xff_u8; 64][..], &[4, 0, 0, 3, 0, 0, 0, 0], b"GET / HTTP/1.0\r\n\r\n"] {
        let mut stream = connect(&daemon);
        // The switch may close the connection before everything is written.
        let _ = stream.write_all(garbage);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    quiet.write_all(&HELLO).unwrap();
    quiet.write_all(&ECHO).unwrap();
    assert_eq!(
        read_message(&mut quiet).map(|(kind, _)| kind),
        Some(3),
        "the other connection \
                                         stays open"
    );
    let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
    assert!(rules.contains("priority=5,ip"), "{rules}");
}

#[test]
fn invalid_messages_get_an_error_reply() {
    let daemon = daemon();
    let mut stream = connect(&daemon);
    stream.write_all(&HELLO).unwrap();
    assert_eq!(read_message(&mut stream).map(|(kind, _)| kind), Some(0));
    let wrong: [(&[u8], [u8; 4]); 4] = [
        (&[4, 99, 0, 8, 0, 0, 0, 2], [0, 1, 0, 1]),
        (&[4, 14, 0, 16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 6]),
        (&[4, 18, 0, 16, 0, 0, 0, 4, 0x77, 0x77, 0, 0, 0, 0, 0, 0], [0, 1, 0, 2]),
        (&[1, 10, 0, 8, 0, 0, 0, 5], [0, 1, 0, 0]),
    ];
    for (message, code) in wrong {
        stream.write_all(message).unwrap();
        let (kind, body) = read_message(&mut stream).unwrap();
        assert_eq!((kind, &body[..4]), (1, &code[..]), "{message:?}");
        stream.write_all(&ECHO).unwrap();
        assert_eq!(read_message(&mut stream).map(|(kind, _)| kind), Some(3));
    }
}

#[test]
fn a_silent_controller_blocks_nobody() {
    let daemon = daemon();
    let silent: Vec<UnixStream> = (0..50).map(|_| connect(&daemon)).collect();
    text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,ip,actions=output:1"]));
    assert!(text(&daemon.ovs_ofctl("br0", "dump-flows", &[])).contains("priority=5,ip"));
    drop(silent);
}

#[test]
fn a_configuration_typo_has_position_and_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shunt.toml");
    for (text, expected) in [
        ("[[bridge]]\nnaem = \"br0\"\n", "did you mean `name`?"),
        ("[caches]\nexact_entires = 3\n", "did you mean `exact_entries`?"),
        ("[[bridge]]\nname = \"br0\"\ncontrollers = [\"tpc:1.2.3.4\"]\n", "tcp:"),
        ("[[bridge]]\nname = \"br0\"\n[[bridge]]\nname = \"br0\"\n", "br0"),
        ("[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"x\"\ntype = \"patch\"\n", "peer"),
        ("[threads]\npacket = 0\n", "packet"),
        ("[caches]\nexact_entries = 1000\n", "power of two"),
    ] {
        fs::write(&file, text).unwrap();
        let mut command = Command::new(binary("shuntd"));
        command.arg("--config").arg(&file).arg("--run-dir").arg(folder.path());
        let words = error_text(&output(&mut command));
        assert!(words.contains(expected), "{text}: {words}");
    }
}

#[test]
fn database_clients_do_not_fill_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("db.sock");
    let daemon = Daemon::start(&format!("[ovsdb]\nsocket = {socket:?}\n"));
    for _ in 0..60 {
        let mut client = UnixStream::connect(&socket).expect("the server listens");
        client.write_all(br#"{"method":1,"params":[],"id":0}"#).expect("the server reads");
        // The server closes the connection after it has logged the reason.
        client.read_to_end(&mut Vec::new()).expect("the end of the connection");
    }
    let log = daemon.log();
    let lines =
        log.matches("disconnected: the client sent a message that is not JSON-RPC 1.0").count();
    assert!((1..=20).contains(&lines), "{lines} lines: {log}");
}

#[test]
fn half_request_blocks_no_control_client() {
    let daemon = daemon();
    let socket = daemon.run_dir().join(format!("shuntd.{}.ctl", daemon.id()));
    let mut half = UnixStream::connect(socket).unwrap();
    half.write_all(br#"{"method":"ver"#).unwrap();
    assert!(text(&daemon.ovs_appctl(&["version"])).contains("Shunt"));
}
