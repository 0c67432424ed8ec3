//! The messages of the daemon to systemd; the test acts as systemd.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};

use crate::{Daemon, evict::capture, shuntd, wait_until};

/// A bridge with a port that has no device.
const BRIDGE: &str =
    "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n";

/// A daemon with a service manager that records its messages.
struct Service {
    daemon: Daemon,
    socket: UnixDatagram,
}

impl Service {
    /// Starts a daemon; `watchdog` is the time limit of the watchdog in microseconds.
    fn start(configuration: &str, watchdog: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("shunt.toml"), configuration).unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = shuntd(folder.path());
        command.arg("--config").arg(folder.path().join("shunt.toml")).stderr(Stdio::from(log));
        command.env("NOTIFY_SOCKET", &path).env_remove("WATCHDOG_PID");
        match watchdog {
            Some(limit) => command.env("WATCHDOG_USEC", limit),
            None => command.env_remove("WATCHDOG_USEC"),
        };
        Self { daemon: Daemon { process: command.spawn().unwrap(), folder }, socket }
    }

    /// Returns the next message of the daemon about its state.
    fn message(&self) -> String {
        let mut bytes = [0; 4096];
        loop {
            let length = self.socket.recv(&mut bytes).unwrap();
            let message = String::from_utf8(bytes[..length].to_vec()).unwrap();
            if !is_about_descriptors(&message) {
                return message;
            }
        }
    }

    /// Returns the next message that contains a line.
    fn message_with(&self, line: &str) -> String {
        loop {
            let message = self.message();
            if message.lines().any(|own| own.starts_with(line)) {
                return message;
            }
        }
    }

    /// Returns messages about the state until none has arrived for the time `silence`.
    fn messages_until(&self, silence: Duration) -> Vec<String> {
        self.socket.set_read_timeout(Some(silence)).unwrap();
        let mut bytes = [0; 4096];
        let next = || self.socket.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec());
        let messages = std::iter::from_fn(next);
        let messages = messages.map(|bytes| String::from_utf8(bytes).unwrap());
        let messages = messages.filter(|message| !is_about_descriptors(message)).collect();
        self.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        messages
    }
}

/// Returns whether a message stores or removes a descriptor.
fn is_about_descriptors(message: &str) -> bool {
    message.starts_with("FDSTORE")
}

#[test]
fn ready_means_that_the_configuration_is_in_force() {
    let mut service = Service::start(BRIDGE, None);
    assert_eq!(service.message(), "READY=1\nSTATUS=1 bridge, 1 port, 1 packet thread\n");
    assert!(service.daemon.answer(&["show"]).contains("p1"));
    service.daemon.answer(&["exit"]);
    assert_eq!(service.message(), "STOPPING=1\nSTATUS=stopping\n");
    assert!(service.daemon.process.wait().unwrap().success());
    assert!(service.messages_until(Duration::from_millis(1)).is_empty());
    // After `exit`, no next process is expected.
    let left =
        fs::read_dir(service.daemon.run_dir()).unwrap().flatten().map(|file| file.file_name());
    let left: Vec<_> = left.filter(|name| name != "notify" && name != "log").collect();
    assert_eq!(left, ["shunt.toml"]);
}

#[test]
fn reload_is_reported_from_begin_to_end() {
    let service = Service::start(BRIDGE, None);
    service.message_with("READY=1");
    let file = service.daemon.run_dir().join("shunt.toml");
    fs::write(&file, format!("{BRIDGE}[[bridge]]\nname = \"br1\"\n")).unwrap();
    let id = service.daemon.process.id().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &id]).status().unwrap().success());
    let begin = service.message();
    assert!(begin.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{begin}");
    assert_eq!(service.message(), "READY=1\nSTATUS=2 bridges, 1 port, 1 packet thread\n");
    // The daemon is also ready again after a reload of an invalid file.
    fs::write(&file, "nonsense").unwrap();
    service.daemon.error_text(&["reload"]);
    assert!(service.message().starts_with("RELOADING=1\n"));
    assert_eq!(service.message(), "READY=1\nSTATUS=2 bridges, 1 port, 1 packet thread\n");
}

#[test]
fn the_watchdog_is_fed_while_packet_threads_sleep() {
    let service = Service::start(BRIDGE, Some("2000000"));
    service.message_with("READY=1");
    for _ in 0..3 {
        assert_eq!(service.message(), "WATCHDOG=1\n");
    }
    service.daemon.answer(&["del-br", "br0"]);
    let changed = service.message_with("STATUS=");
    assert_eq!(changed, "WATCHDOG=1\nSTATUS=0 bridges, 0 ports, 1 packet thread\n");
}

#[test]
fn a_daemon_without_watchdog_sends_no_feed() {
    let service = Service::start(BRIDGE, None);
    service.message_with("READY=1");
    assert!(service.messages_until(Duration::from_millis(300)).is_empty());
}

/// The packet thread writes to a pipe that no process reads.
///
/// The thread blocks in the system call.
#[test]
fn a_packet_thread_that_hangs_starves_the_watchdog() {
    let service = Service::start("[[bridge]]\nname = \"br0\"\n", Some("800000"));
    service.message_with("WATCHDOG=1");
    let (reader, mut restoring) = hang(&service.daemon);
    let starved = service.message_with("STATUS=packet threads");
    assert_eq!(starved, "STATUS=packet threads that hang: 0\n");
    let silence = service.messages_until(Duration::from_millis(800));
    assert!(silence.is_empty(), "{silence:?}");
    assert!(service.daemon.log().contains("packet thread 0: no iteration ended in time"));
    continue_after_hang(reader);
    service.message_with("WATCHDOG=1");
    assert!(restoring.wait().unwrap().success());
}

/// A service manager without a watchdog does not restart the daemon.
#[test]
fn hanging_packet_thread_is_logged_without_watchdog() {
    let service = Service::start("[[bridge]]\nname = \"br0\"\n", None);
    service.message_with("READY=1");
    let (reader, mut restoring) = hang(&service.daemon);
    let log = || service.daemon.log();
    let named = "packet thread 0: no iteration ended in time, so its packets wait";
    assert!(wait_until(|| log().contains(named)), "{}", log());
    continue_after_hang(reader);
    assert!(wait_until(|| log().contains("no packet thread hangs any more")), "{}", log());
    assert!(restoring.wait().unwrap().success());
}

/// Makes the packet thread of a daemon block in the write to a pipe.
///
/// Returns the other end of the pipe, and the running command of [`send_to`].
fn hang(daemon: &Daemon) -> (File, Child) {
    let pipe = daemon.run_dir().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let reader = File::options().read(true).write(true).open(&pipe).unwrap();
    let restoring = send_to(daemon, &pipe);
    (reader, restoring)
}

/// Reads the pipe, so that the packet thread continues.
fn continue_after_hang(mut reader: File) {
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while reader.read(&mut bytes).is_ok() {}
    });
}

/// Starts to forward packets to a capture file without end.
///
/// Returns the running command that adds the rule.
fn send_to(daemon: &Daemon, file: &Path) -> Child {
    let folder = daemon.run_dir();
    fs::write(folder.join("in.pcap"), capture()).unwrap();
    let rx = format!("rx={}", folder.join("in.pcap").display());
    let tx = format!("tx={}", file.display());
    daemon.answer(&["add-port", "br0", "out", "type=pcap", "number=2", &tx]);
    daemon.answer(&["add-port", "br0", "in", "type=pcap", "number=1", &rx, "repeat=endless"]);
    let mut saved: Value = serde_json::from_str(&daemon.answer(&["save"])).unwrap();
    saved["state"]["tables"][0]["rules"] = json!(["priority=0,actions=output:2"]);
    fs::write(folder.join("saved.json"), saved.to_string()).unwrap();
    // The command waits for the packet thread, which then hangs.
    let mut command = Command::new(env!("CARGO_BIN_EXE_shuntctl"));
    command.arg("--run-dir").arg(folder).arg("restore").arg(folder.join("saved.json"));
    command.stdout(Stdio::null()).spawn().unwrap()
}
