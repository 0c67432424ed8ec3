//! `ovs-ofctl` as the client of a bridge: it loads rules, reads rules, and receives packet-ins.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use shunt_tests::{
    daemon::{output, text, wait_until},
    namespace::print_skipped,
};

use crate::case::Case;

/// Returns whether the programs of Open vSwitch are installed.
///
/// Prints a message if the programs are missing.
pub(crate) fn is_installed() -> bool {
    let found = Command::new("ovs-ofctl").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        print_skipped("ovs-ofctl is not installed (Debian: openvswitch-common)");
    }
    found
}

/// A client of one bridge.
pub(crate) struct Client {
    socket: String,
    folder: PathBuf,
    /// OpenFlow version as in `ovs-ofctl -O`.
    version: String,
}

/// A rule as `ovs-ofctl dump-flows` prints it.
pub(crate) struct DumpedRule {
    pub(crate) cookie: String,
    pub(crate) counts: [u64; 2],
    /// The table, match and actions of the rule.
    pub(crate) text: String,
}

/// The reply of a switch: success, or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Taken,
    /// The switch refused the request, with the name of the error.
    Refused(String),
    /// The client did not send the request.
    NotSent,
}

impl Client {
    /// Creates a client of the switch that listens on `socket`.
    ///
    /// The files of the client are in the folder `folder`.
    pub(crate) fn new(socket: String, folder: &Path) -> Self {
        Self { socket, folder: folder.to_owned(), version: "OpenFlow13".to_owned() }
    }

    /// Returns the client of a case, which may speak another OpenFlow version.
    pub(crate) fn of_case(self, case: &Case) -> Self {
        let version = case.openflow.clone().unwrap_or(self.version);
        Self { version, ..self }
    }

    /// Sends one request, such as `add-flow` with a line.
    pub(crate) fn ask(&self, verb: &str, line: &str) -> Answer {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", &self.version, "--no-names", verb, &self.socket, line]);
        let output = output(&mut command);
        // The error of a bundle comes after the error of the message in the bundle.
        let said = String::from_utf8_lossy(&output.stderr);
        match said.lines().find_map(error_name) {
            Some(name) => Answer::Refused(name.to_owned()),
            None if output.status.success() => Answer::Taken,
            None => Answer::NotSent,
        }
    }

    /// Sends several requests together, such as `add-flows`.
    ///
    /// Returns whether all requests were accepted.
    pub(crate) fn ask_all(&self, verb: &str, lines: &[String]) -> bool {
        let file = self.folder.join("lines");
        fs::write(&file, lines.join("\n") + "\n").expect("the lines can be written");
        self.ask(verb, &file.to_string_lossy()) == Answer::Taken
    }

    /// Returns the output of a command.
    pub(crate) fn show(&self, verb: &str) -> String {
        self.run(verb, &[])
    }

    /// Loads meters, groups and rules of a case, and configures the ports of the case.
    pub(crate) fn load(&self, case: &Case) {
        for (verb, lines) in [("add-meter", &case.meters), ("add-group", &case.groups)] {
            lines.iter().for_each(|line| drop(self.run(verb, &[line])));
        }
        let file = self.folder.join("rules");
        fs::write(&file, case.flows.join("\n") + "\n").expect("the rules can be written");
        self.run("add-flows", &[&file.to_string_lossy()]);
        for [port, change] in &case.port_mods {
            self.set_port(port, change);
        }
    }

    /// Returns all rules of the switch.
    pub(crate) fn dump(&self) -> Vec<DumpedRule> {
        let dump = self.run("dump-flows", &["--no-names"]);
        let rules = dump.lines().filter(|line| line.contains("actions="));
        rules.map(|line| DumpedRule::parse(line).expect("a line is a rule")).collect()
    }

    /// Waits until the packet threads have adopted all changes so far.
    ///
    /// The deletion selects no rule, and ends with a barrier.
    pub(crate) fn wait_for_changes(&self) {
        self.run("del-flows", &["cookie=0xffffffffffffffff/-1"]);
    }

    /// Changes a setting of a port.
    pub(crate) fn set_port(&self, port: &str, change: &str) {
        self.run("mod-port", &[port, change]);
    }

    fn run(&self, verb: &str, arguments: &[&str]) -> String {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", &self.version, verb, &self.socket]).args(arguments);
        text(&output(&mut command))
    }
}

/// Parses the name of an error: `OFPT_ERROR (OF1.3) (xid=0x4): OFPBAC_BAD_TYPE`.
fn error_name(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("OFPT_ERROR")?;
    rest.split_once("): ").map(|(_, name)| name.trim())
}

impl DumpedRule {
    /// Parses a line of `dump-flows`.
    ///
    /// The form of the line is `cookie=.., duration=.., table=.., n_packets=.., n_bytes=.., MATCH
    /// actions=..`.
    fn parse(line: &str) -> Option<Self> {
        let mut items = line.trim().splitn(6, ", ");
        let mut value = |name: &str| items.next()?.strip_prefix(name)?.strip_prefix('=');
        let cookie = value("cookie")?.to_owned();
        value("duration")?;
        let table = value("table")?;
        let counts = [value("n_packets")?.parse().ok()?, value("n_bytes")?.parse().ok()?];
        let text = format!("table={table} {}", items.next()?);
        Some(Self { cookie, counts, text })
    }
}

/// Returns packets and bytes by cookie.
pub(crate) fn counters(rules: &[DumpedRule]) -> BTreeMap<&str, [u64; 2]> {
    rules.iter().map(|rule| (rule.cookie.as_str(), rule.counts)).collect()
}

/// `ovs-ofctl monitor`, which receives packet-ins.
pub(crate) struct Monitor {
    process: Child,
    log: PathBuf,
    control: PathBuf,
}

impl Monitor {
    /// Starts the monitor. After the start, the monitor receives every packet-in.
    pub(crate) fn start(client: &Client) -> Self {
        let log = client.folder.join("packet-ins");
        let control = client.folder.join("monitor.ctl");
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", &client.version, "monitor", &client.socket, "65534"]);
        command.args(["-P", "nxt_packet_in2"]);
        command.arg(format!("--unixctl={}", control.display()));
        let file = File::create(&log).expect("a log can be written");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let process = command.spawn().expect("ovs-ofctl starts");
        assert!(wait_until(|| has_settled(&control)), "the monitor does not reply");
        Self { process, log, control }
    }

    /// Returns all packet-ins, and waits some time for the expected packet-ins.
    pub(crate) fn packet_ins(&self, expected: &[String]) -> Vec<String> {
        wait_until(|| read(&self.log) == expected);
        read(&self.log)
    }
}

impl Monitor {
    /// Returns all packet-ins that the switch has sent so far.
    pub(crate) fn all(&self) -> Vec<String> {
        assert!(has_settled(&self.control), "the monitor does not reply");
        read(&self.log)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns whether the monitor is connected and has all replies of the switch.
fn has_settled(control: &Path) -> bool {
    let mut command = Command::new("ovs-appctl");
    output(command.arg("-t").arg(control).arg("ofctl/barrier")).status.success()
}

/// Returns the packet-ins of a log with joined lines and without transaction ids.
fn read(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut messages: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        if line.contains(" (xid=") {
            messages.push(Vec::new());
        }
        if let Some(message) = messages.last_mut() {
            message.push(line.trim());
        }
    }
    let packet_ins = messages.iter().filter(|lines| lines[0].contains("PACKET_IN"));
    packet_ins.map(|lines| without_xid(&lines.join(" | "))).collect()
}

fn without_xid(text: &str) -> String {
    let Some((head, rest)) = text.split_once(" (xid=") else { return text.to_owned() };
    let tail = rest.split_once(')').map_or("", |(_, tail)| tail);
    format!("{head}{tail}")
}
