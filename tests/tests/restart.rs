//! A restart under a service manager that keeps descriptors: no packet is lost.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use shunt_tests::{
    daemon::{binary, output, text},
    namespace::{Namespace, namespace_or_skip},
    repository::root,
};
use tempfile::TempDir;

/// A switch between a TAP in the same namespace and a host behind a packet socket.
///
/// A service manager runs the switch.
struct Service {
    manager: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    folder: TempDir,
    middle: Namespace,
    _host: Namespace,
}

const CONFIGURATION: &str = "\
                             [[bridge]]
name = \"br0\"
listen = [\"ptcp:6653:127.0.0.1\"]
[[bridge.port]]
name = \"t1\"
number = 1
type = \"tap\"
[[bridge.port]]
name = \"p2\"
number = 2
type = \"af_packet\"
[http]
listen = [\"127.0.0.1:8080\"]
";

/// Forwards between both ports, by two tables.
const RULES: [&str; 3] = [
    "in_port=1,actions=goto_table:1",
    "table=1,in_port=1,actions=output:2",
    "in_port=2,actions=output:1",
];

/// Address of the host.
const HOST: &str = "10.67.1.2";

impl Service {
    /// Starts the service with rules; `None` without permission to create namespaces.
    fn start(label: &str) -> Option<Self> {
        Self::start_with(label, CONFIGURATION)
    }

    /// Starts the service with rules, and an AF_XDP port in front of the host.
    ///
    /// `None` if the system does not permit AF_XDP.
    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    fn start_with_xdp(label: &str) -> Option<Self> {
        let configuration = CONFIGURATION.replace("\"af_packet\"", "\"af_xdp\"");
        let service = Self::start_with(label, &configuration)?;
        if service.log().contains("not permitted to attach an XDP program") {
            eprintln!("SKIPPED: needs CAP_BPF: {}", service.log());
            return None;
        }
        Some(service)
    }

    fn start_with(label: &str, configuration: &str) -> Option<Self> {
        let service = Self::launch(label, configuration, &["--state", "state.json"])?;
        service.middle.run("ip", &["addr", "add", "10.67.1.1/24", "dev", "t1"]);
        let socket = format!("unix:{}", service.path("br0.mgmt").display());
        for rule in RULES {
            text(&output(Command::new("ovs-ofctl").args([
                "-O",
                "OpenFlow13",
                "add-flow",
                &socket,
                rule,
            ])));
        }
        Some(service)
    }

    /// Starts the service in a separate folder,
    /// with a configuration and further options.
    fn launch(label: &str, configuration: &str, options: &[&str]) -> Option<Self> {
        let (host, middle) = (namespace_or_skip(label)?, namespace_or_skip(label)?);
        host.connect("eth0", &middle, "p2");
        host.run("ip", &["addr", "add", &format!("{HOST}/24"), "dev", "eth0"]);
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = |name: &str| folder.path().join(name);
        fs::write(path("shunt.toml"), configuration).unwrap_or_else(|error| panic!("{error}"));
        let log = File::create(path("log")).unwrap_or_else(|error| panic!("{error}"));
        let mut command = middle.command("python3");
        command.arg(root().join("tests/tools/service_manager.py")).arg(binary("shuntd"));
        command.arg("--config").arg(path("shunt.toml")).arg("--run-dir").arg(folder.path());
        command.args(options).current_dir(folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut manager = command.spawn().unwrap_or_else(|error| panic!("python3: {error}"));
        let requests =
            manager.stdin.take().unwrap_or_else(|| panic!("standard input and output are piped"));
        let replies =
            manager.stdout.take().unwrap_or_else(|| panic!("standard input and output are piped"));
        let replies = BufReader::new(replies);
        let mut service = Self { manager, requests, replies, folder, middle, _host: host };
        service.lines_until("ready");
        Some(service)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Sends a request to the service manager.
    fn request(&mut self, request: &str) {
        let sent = writeln!(self.requests, "{request}");
        sent.unwrap_or_else(|error| panic!("{request}: {error}"));
    }

    /// Returns the lines of the service manager before the line `last`.
    fn lines_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.replies.read_line(&mut line).unwrap_or(0);
            assert!(read > 0, "no line `{last}` after {lines:?}: {}", self.log());
            if line.trim() == last {
                return lines;
            }
            lines.push(line.trim().to_owned());
        }
    }

    /// Ends the daemon with a signal, and starts the daemon.
    /// Returns the messages of both starts.
    fn restart(&mut self, signal: &str) -> Vec<String> {
        self.request(&format!("restart {signal}"));
        let mut messages = self.lines_until("ended");
        messages.extend(self.lines_until("ready"));
        messages
    }

    /// Restarts the daemon three times while clients connect to its sockets.
    ///
    /// No connection to `sockets` and to the control socket may be refused.
    fn restart_under_clients(&mut self, targets: &[&str]) {
        let control = format!("control:{}", self.folder.path().display());
        let mut command = self.middle.command("python3");
        command.arg(root().join("tests/tools/connect_forever.py")).args(targets).arg(control);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut clients = command.spawn().unwrap_or_else(|error| panic!("python3: {error}"));
        let replies =
            clients.stdout.take().unwrap_or_else(|| panic!("standard input and output are piped"));
        let mut replies = BufReader::new(replies);
        let mut line = String::new();
        let read = replies.read_line(&mut line);
        assert!(read.is_ok() && line == "connecting\n", "{line}: {}", self.log());
        for signal in ["TERM", "KILL", "TERM"] {
            let messages = self.restart(signal);
            assert!(messages.is_empty(), "the next process uses all of them: {messages:?}");
        }
        drop(clients.stdin.take());
        let results: Vec<String> = replies.lines().map_while(Result::ok).collect();
        let _ = clients.wait();
        assert_eq!(results.len(), targets.len() + 1, "{results:?}");
        for result in results {
            let words: Vec<&str> = result.split_whitespace().collect();
            let number = |index: usize| words.get(index).and_then(|word| word.parse::<u32>().ok());
            assert!(number(1).is_some_and(|attempts| attempts > 10), "{result}");
            assert_eq!(number(2), Some(0), "{result}: {}", self.log());
        }
    }

    /// Claims the TAP as another switch does, until the process ends.
    fn claim_tap(&self) -> Child {
        let index = self.tap("ifindex");
        let claim = format!(
            "import socket, sys\n\
             claim = socket.socket(socket.AF_UNIX)\n\
             claim.bind('\\0shunt/tap/{}')\n\
             claim.listen()\n\
             print('claimed', flush=True)\n\
             sys.stdin.read()",
            index.trim()
        );
        let mut command = self.middle.command("python3");
        command.arg("-c").arg(claim).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("python3: {error}"));
        let mut line = String::new();
        let reply = process.stdout.as_mut().map(|reply| BufReader::new(reply).read_line(&mut line));
        assert!(matches!(reply, Some(Ok(_))) && line == "claimed\n", "{line}");
        process
    }

    /// Starts a process that pings the host 100 times in a second.
    fn ping(&self, count: u32) -> Child {
        let mut ping = self.middle.command("ping");
        ping.args(["-q", "-i", "0.01", "-W", "5", "-c", &count.to_string(), HOST]);
        ping.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("ping: {error}"))
    }

    /// Returns a file of the TAP in sysfs.
    fn tap(&self, file: &str) -> String {
        self.middle.run("cat", &[&format!("/sys/class/net/t1/{file}")])
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = writeln!(self.requests, "stop");
        let _ = self.manager.wait();
    }
}

/// Returns the number of pings without an answer.
fn count_lost(ping: Child) -> u32 {
    let output = ping.wait_with_output().unwrap_or_else(|error| panic!("ping: {error}"));
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |word: &str| {
        let before = summary.split(word).next().unwrap_or_default();
        let number = before.split_whitespace().last().unwrap_or_default();
        number.parse::<u32>().unwrap_or_else(|_| panic!("ping: {summary}"))
    };
    count(" packets transmitted") - count(" received")
}

/// The system keeps the packets until the next process reads them.
#[test]
fn no_packet_is_lost_in_a_restart() {
    let Some(mut service) = Service::start("restart") else { return };
    assert_eq!(count_lost(service.ping(5)), 0, "{}", service.log());
    let before = (service.tap("ifindex"), service.tap("carrier_changes"));
    let ping = service.ping(200);
    for _ in 0..2 {
        let messages = service.restart("TERM");
        assert!(messages.is_empty(), "the next process uses all of them: {messages:?}");
    }
    assert_eq!(count_lost(ping), 0, "{}", service.log());
    assert_eq!((service.tap("ifindex"), service.tap("carrier_changes")), before);
}

/// The system keeps the connections until the next process accepts them.
#[test]
fn no_client_is_refused_in_a_restart() {
    let Some(mut service) = Service::start("clients") else { return };
    let management = format!("unix:{}", service.path("br0.mgmt").display());
    service.restart_under_clients(&["tcp:127.0.0.1:6653", "tcp:127.0.0.1:8080", &management]);
    // The last process serves them.
    let rules =
        service.middle.run("ovs-ofctl", &["-O", "OpenFlow13", "dump-flows", "tcp:127.0.0.1:6653"]);
    assert!(rules.contains("output:2"), "{rules}");
}

/// After a restart, the log of the database has the manager.
#[test]
fn restart_refuses_no_database_client() {
    let configuration = "[ovsdb]\nsocket = \"db.sock\"\nlog = \"shunt.db\"\n";
    let Some(mut service) = Service::launch("database", configuration, &[]) else { return };
    let socket = format!("unix:{}", service.path("db.sock").display());
    let database = format!("--db={socket}");
    let set = [database.as_str(), "set-manager", "ptcp:6640:127.0.0.1"];
    text(&output(Command::new("ovs-vsctl").args(set)));
    service.lines_until("store listen/tcp/127.0.0.1_6640/");
    service.restart_under_clients(&["tcp:127.0.0.1:6640", &socket]);
    let manager = service.middle.run("ovs-vsctl", &["--db=tcp:127.0.0.1:6640", "get-manager"]);
    assert_eq!(manager.trim(), "ptcp:6640:127.0.0.1");
}

/// A killed process loses at most the packets of its last iteration.
///
/// The socket queue has space for all of these pings.
#[test]
fn a_killed_daemon_leaves_its_queues() {
    let Some(mut service) = Service::start("killed") else { return };
    // The state file has the rules.
    service.restart("TERM");
    let before = (service.tap("ifindex"), service.tap("carrier_changes"));
    let ping = service.ping(100);
    let messages = service.restart("KILL");
    assert!(messages.is_empty(), "{messages:?}");
    let lost = count_lost(ping);
    assert!(lost <= 3, "{lost} lost: {}", service.log());
    assert_eq!((service.tap("ifindex"), service.tap("carrier_changes")), before);
}

/// The XDP program and the rings of its sockets outlive each process.
#[test]
fn no_packet_of_an_xdp_port_is_lost() {
    let Some(mut service) = Service::start_with_xdp("xdp") else { return };
    assert_eq!(count_lost(service.ping(5)), 0, "{}", service.log());
    let ping = service.ping(200);
    for _ in 0..2 {
        let messages = service.restart("TERM");
        assert!(messages.is_empty(), "the next process uses all of them: {messages:?}");
    }
    assert_eq!(count_lost(ping), 0, "{}", service.log());
    let ping = service.ping(100);
    let messages = service.restart("KILL");
    assert!(messages.is_empty(), "{messages:?}");
    let lost = count_lost(ping);
    assert!(lost <= 3, "{lost} lost by a kill: {}", service.log());
}

/// The service manager closes its copies before the port binds new sockets.
#[test]
fn wrong_descriptors_of_an_xdp_port_are_replaced() {
    let Some(mut service) = Service::start_with_xdp("wrong-xdp") else { return };
    service.restart("TERM");
    service.request("put af_xdp/p2/0000/socket");
    let messages = service.restart("TERM");
    for part in ["link/best-effort", "promiscuous", "0000/socket", "0000/2048x2048"] {
        for step in ["remove", "store"] {
            let message = format!("{step} af_xdp/p2/{part}");
            assert!(messages.contains(&message), "{message}: {messages:?}: {}", service.log());
        }
    }
    assert_eq!(count_lost(service.ping(5)), 0, "{}", service.log());
    let log = service.log();
    let refused = "AF_XDP is refused: the stored descriptor is not an AF_XDP socket";
    assert!(log.contains(refused), "{log}");
}

/// A removed port leaves no program on its device.
#[test]
fn a_removed_xdp_port_frees_its_device() {
    let Some(mut service) = Service::start_with_xdp("removed-xdp") else { return };
    service.restart("TERM");
    let run_dir = service.folder.path().display().to_string();
    let shuntctl = |arguments: &[&str]| {
        let mut command = Command::new(binary("shuntctl"));
        text(&output(command.arg("--run-dir").arg(&run_dir).args(arguments)))
    };
    for _ in 0..3 {
        shuntctl(&["del-port", "p2"]);
        let link = service.middle.run("ip", &["link", "show", "p2"]);
        assert!(!link.contains("prog/xdp"), "{link}");
        shuntctl(&["add-port", "br0", "p2", "type=af_xdp", "number=2"]);
        let link = service.middle.run("ip", &["link", "show", "p2"]);
        assert!(link.contains("prog/xdp"), "{link}: {}", service.log());
    }
    assert_eq!(count_lost(service.ping(5)), 0, "{}", service.log());
}

/// The ports are opened as in a first start.
#[test]
fn wrong_descriptors_are_refused_and_replaced() {
    let Some(mut service) = Service::start("wrong") else { return };
    service.restart("TERM");
    let packet = "af_packet/p2/0000/socket";
    for name in ["tap/t1/0000", packet, "tap/t9/0000"] {
        service.request(&format!("put {name}"));
    }
    let messages = service.restart("TERM");
    for name in ["tap/t1/0000", packet] {
        assert!(messages.contains(&format!("remove {name}")), "{messages:?}");
        assert!(messages.contains(&format!("store {name}")), "{messages:?}");
    }
    // The device was created again.
    service.middle.run("ip", &["addr", "add", "10.67.1.1/24", "dev", "t1"]);
    assert_eq!(count_lost(service.ping(5)), 0, "{}", service.log());
    let log = service.log();
    let refused = "descriptor tap/t1/0000 is refused: the stored descriptor is not a queue of a \
                   TAP";
    assert!(log.contains(refused), "{log}");
    assert!(log.contains("is refused: the stored descriptor is not a packet socket"), "{log}");
    assert!(log.contains("descriptor tap/t9/0000 is not used any more, so it is closed"), "{log}");
}

/// With such descriptors, the service manager keeps the device in use.
#[test]
fn descriptors_of_a_failed_port_are_discarded() {
    let Some(mut service) = Service::start("failed") else { return };
    service.request("end TERM");
    service.lines_until("ended");
    let mut claim = service.claim_tap();
    service.request("start");
    let mut messages = service.lines_until("ready");
    let [removed, stored] = ["remove tap/t1/0000", "store tap/t1/0000"];
    assert!(messages.iter().any(|message| message == removed), "{messages:?}: {}", service.log());
    // The claim was on the device that has disappeared with its last queue.
    if !messages.iter().any(|message| message == stored) {
        messages = service.lines_until(stored);
    }
    drop(claim.stdin.take());
    let _ = claim.wait();
    service.middle.run("ip", &["addr", "add", "10.67.1.1/24", "dev", "t1"]);
    assert_eq!(count_lost(service.ping(5)), 0, "{messages:?}: {}", service.log());
}
