//! P4Runtime with third-party peers.
//!
//! The peers of the embedded NIC are conformance cases and p4runtime-shell. The peer of the daemon
//! is a device behind the gRPC server of C++, to which bmv2 also belongs.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use shunt_flow::testing::packet::PacketBuilder;
use shunt_tests::{
    capture,
    daemon::{Daemon, SOON, binary, output, text, wait_until},
    namespace::print_skipped,
    repository::root,
};
use tempfile::TempDir;

/// Variable with the Python that has p4runtime-shell; `cargo xtask test` sets it.
const PYTHON: &str = "SHUNT_P4RUNTIME_PYTHON";

/// A standalone NIC, which is stopped on drop.
struct Nic {
    process: Child,
    folder: TempDir,
}

impl Nic {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let log = fs::File::create(folder.path().join("log")).map(Stdio::from);
        let mut command = Command::new(binary("shuntd"));
        command.current_dir(folder.path()).args(["nic", "--listen", "127.0.0.1:0"]);
        command.args(arguments).stderr(log.unwrap_or_else(|error| panic!("{error}")));
        let process = command.spawn().unwrap_or_else(|error| panic!("shuntd: {error}"));
        let nic = Self { process, folder };
        assert!(wait_until(|| nic.find_address().is_some()), "no NIC: {}", nic.log());
        nic
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the listening address of the NIC.
    fn find_address(&self) -> Option<String> {
        let log = self.log();
        let (_, rest) = log.split_once("127.0.0.1:")?;
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(format!("127.0.0.1:{port}"))
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a command that runs a tool.
///
/// Without the Python for the tool, returns `None`.
fn tool_command(tool: &str) -> Option<Command> {
    let Some(python) = env::var_os(PYTHON) else {
        print_skipped(&format!("{PYTHON} is not set; `cargo xtask test p4runtime` sets it"));
        return None;
    };
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(root().join("tests/tools").join(tool));
    Some(command)
}

/// Runs a tool against the NIC and returns its output.
///
/// Without the Python for the tool, returns `None`.
fn run(tool: &str, nic: &Nic) -> Option<String> {
    let mut command = tool_command(tool)?;
    command.arg(nic.find_address().unwrap_or_default());
    command.arg(root().join("p4/gigaflow.p4info.txtpb")).arg(root().join("p4/gigaflow.json"));
    let answer = output(&mut command);
    let [said, error_text] =
        [&answer.stdout, &answer.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(answer.status.success(), "{said}{error_text}\n{}", nic.log());
    Some(said)
}

#[test]
fn conformance_cases_pass() {
    let nic = Nic::start(&["--port", "1=null", "--port", "2=null"]);
    let Some(said) = run("p4runtime_cases.py", &nic) else { return };
    let passed = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(passed, CASES, "cases passed:\n{said}");
    assert!(said.contains(&format!("\n{passed} passed, 0 failed")), "{said}");
}

/// Number of cases, so that a group that ends early does not pass.
const CASES: usize = 265;

#[test]
fn p4runtime_shell_pushes_the_pipeline_and_drives_it() {
    let nic = Nic::start(&["--port", "1=null", "--port", "2=pcap::out.pcap"]);
    let Some(_) = run("p4runtime_shell_client.py", &nic) else { return };
    // The file contains the sent packets: one packet of the controller, and three packets that hit
    // an entry.
    let sent = || fs::read(nic.folder.path().join("out.pcap")).unwrap_or_default();
    let count = |bytes: &[u8], wanted: &[u8]| {
        bytes.windows(wanted.len()).filter(|window| *window == wanted).count()
    };
    assert!(wait_until(|| count(&sent(), b"direct") == 1), "the packet of the controller");
    let hit = [0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, 0x45];
    assert!(wait_until(|| count(&sent(), &hit) == 3), "the packets that hit");
}

/// A P4Runtime device behind the gRPC server of C++, which is stopped on drop.
struct GrpcCoreDevice {
    process: Child,
    folder: TempDir,
}

impl GrpcCoreDevice {
    /// Starts a device at a port of 127.0.0.1; port 0 selects a free port.
    ///
    /// Without the Python for the device, returns `None`.
    fn start(port: u16, options: &[&str]) -> Option<Self> {
        let mut command = tool_command("p4runtime_server.py")?;
        let folder = tempfile::tempdir().unwrap();
        let events = fs::File::create(folder.path().join("events")).unwrap();
        command.arg(root().join("p4/gigaflow.p4info.txtpb"));
        command.args(["--port", &port.to_string()]).args(options);
        command.stdout(events.try_clone().unwrap()).stderr(events);
        let device = Self { process: command.spawn().unwrap(), folder };
        assert!(wait_until(|| device.count("ready") == 1), "no device: {}", device.events());
        Some(device)
    }

    /// Returns the events so far, and the errors.
    fn events(&self) -> String {
        fs::read_to_string(self.folder.path().join("events")).unwrap_or_default()
    }

    /// Returns the number of events of a kind so far.
    fn count(&self, kind: &str) -> usize {
        self.events().lines().filter(|line| line.split(' ').next() == Some(kind)).count()
    }

    fn port(&self) -> u16 {
        let events = self.events();
        let port = events.lines().find_map(|line| line.strip_prefix("ready "));
        port.unwrap().parse().unwrap()
    }

    /// Waits for more events of a kind.
    fn wait_for(&self, more: usize, kind: &str) {
        let before = self.count(kind);
        assert!(wait_until(|| self.count(kind) >= before + more), "{kind}: {}", self.events());
    }
}

impl Drop for GrpcCoreDevice {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Number of entries that [`offload`] causes.
const ENTRIES: u8 = 4;

/// Starts a daemon with the device as its NIC.
fn daemon_behind(device: &GrpcCoreDevice) -> Daemon {
    let daemon = Daemon::start(&format!(
        "[caches]\nidle_ms = 600000\n\
         [caches.gigaflow.offload]\nkind = \"p4runtime\"\naddress = \"127.0.0.1:{}\"\n\
         [foresight]\npredictors = []\n[[bridge]]\nname = \"br0\"\n",
        device.port()
    ));
    assert!(wait_until(|| has(&daemon, 0)), "{}\n{}", device.events(), daemon.log());
    daemon
}

/// Returns whether the device of a daemon is connected and has `entries` entries.
fn has(daemon: &Daemon, entries: u8) -> bool {
    text(&daemon.shuntctl(&["show"])).contains(&format!("(connected, {entries} entries)"))
}

/// Sends packets until the device has their entries, and then stops the packets.
fn offload(daemon: &Daemon) {
    for target in 0..ENTRIES {
        let rule = format!("priority=5,ip,nw_dst=10.9.0.{target},actions=output:2");
        text(&daemon.ovs_ofctl("br0", "add-flow", &[&rule]));
    }
    let frame = |target| PacketBuilder::ipv4([10, 1, 0, 1], [10, 9, 0, target]).udp(7, 1).build();
    let file = daemon.run_dir().join("in");
    fs::write(&file, capture::write_frames((0..ENTRIES).map(frame))).unwrap();
    text(&daemon.shuntctl(&["add-port", "br0", "p2", "type=null", "number=2"]));
    let source = format!("rx={}", file.display());
    let words = ["add-port", "br0", "p1", "type=pcap", "number=1", &source, "repeat=endless"];
    text(&daemon.shuntctl(&words));
    assert!(wait_until(|| has(daemon, ENTRIES)), "{}", daemon.log());
    text(&daemon.shuntctl(&["del-port", "p1"]));
}

/// A slow answer, which is longer than three pings of one second.
///
/// The server counts pings until it sends data. The request timeout of the daemon is longer.
const SLOW: [&str; 2] = ["--answer-seconds", "3.2"];

#[test]
fn an_idle_grpc_core_device_stays_connected() {
    let Some(device) = GrpcCoreDevice::start(0, &SLOW) else { return };
    let daemon = daemon_behind(&device);
    device.wait_for(1, "probe");
    offload(&daemon);
    // While the device has entries, reads of their counters replace the probes. The first read may
    // have begun before the daemon was idle.
    device.wait_for(2, "read");
    let log = daemon.log();
    assert!(!log.contains("NIC: P4Runtime connection lost") && has(&daemon, ENTRIES), "{log}");
    let counts = ["primary", "program", "refused"].map(|kind| device.count(kind));
    assert_eq!(counts, [1, 1, 0], "{}\n{log}", device.events());
}

/// Without this limit of the server, the test of an idle device proves nothing.
#[test]
fn the_grpc_core_device_refuses_a_third_ping() {
    let Some(device) = GrpcCoreDevice::start(0, &[]) else { return };
    let mut stream = TcpStream::connect(("127.0.0.1", device.port())).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // The connection preface, an empty SETTINGS, and PINGs (RFC 9113, 3.4, 6.5 and 6.7).
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    stream.write_all(&[&preface[..], &settings, &ping, &ping, &ping].concat()).unwrap();
    // The server may reset the connection after its last frame.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("too_many_pings"), "{answer:?}\n{}", device.events());
}

#[test]
fn a_restarted_device_gets_its_entries_again() {
    let Some(device) = GrpcCoreDevice::start(0, &[]) else { return };
    let daemon = daemon_behind(&device);
    offload(&daemon);
    let port = device.port();
    drop(device);
    let is_lost = || text(&daemon.shuntctl(&["show"])).contains("(stale for");
    assert!(wait_until(is_lost), "{}", daemon.log());
    assert!(!daemon.log().contains("refused a request"), "{}", daemon.log());

    let Some(device) = GrpcCoreDevice::start(port, &[]) else { return };
    let is_restored = || device.events().contains(&format!("entries {ENTRIES}\n"));
    assert!(wait_until(is_restored), "{}\n{}", device.events(), daemon.log());
    assert!(wait_until(|| has(&daemon, ENTRIES)), "{}", daemon.log());
    let counts = ["program", "refused"].map(|kind| device.count(kind));
    assert_eq!(counts, [1, 0], "{}", device.events());
}

/// The P4Info of the compiler has more actions and a longer default argument.
#[test]
fn a_compiled_program_is_not_replaced() {
    let Some(device) = GrpcCoreDevice::start(0, &["--compiled"]) else { return };
    let daemon = daemon_behind(&device);
    offload(&daemon);
    let counts = ["primary", "program", "refused"].map(|kind| device.count(kind));
    assert_eq!(counts, [1, 0, 0], "{}\n{}", device.events(), daemon.log());
}
