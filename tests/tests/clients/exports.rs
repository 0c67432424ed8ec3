//! Hosts that ping each other through a switch, and collectors of the switch's exports.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use shunt_tests::{
    capture,
    daemon::{Daemon, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
};
use tempfile::TempDir;

/// Number of pings in a round.
pub(crate) const PINGS: usize = 5;

/// Bytes of the frame of a ping: Ethernet, IPv4, ICMP and 56 bytes of data.
pub(crate) const PING_BYTES: u32 = 14 + 20 + 8 + 56;

/// Bytes before the datagram in a captured frame.
const UDP_PAYLOAD: usize = 14 + 20 + 8;

/// Two hosts at the ports `p1` and `p2` of a switch.
pub(crate) struct Hosts {
    pub(crate) a: Namespace,
    _b: Namespace,
}

/// Connects the hosts with a switch in `middle`.
///
/// The hosts send only the pings of the test.
pub(crate) fn hosts(middle: &Namespace, label: &str) -> Option<Hosts> {
    let (a, b) = (namespace_or_skip(label)?, namespace_or_skip(label)?);
    for (host, port, own, other) in [(&a, "p1", 1, 2), (&b, "p2", 2, 1)] {
        host.connect("eth0", middle, port);
        let [mac, of_other] = [own, other].map(|number| format!("02:00:00:00:00:0{number}"));
        host.run("ip", &["link", "set", "eth0", "address", &mac]);
        host.run("ip", &["addr", "add", &format!("10.68.1.{own}/24"), "dev", "eth0"]);
        let address = format!("10.68.1.{other}");
        host.run("ip", &["neigh", "replace", &address, "lladdr", &of_other, "dev", "eth0"]);
    }
    Some(Hosts { a, _b: b })
}

impl Hosts {
    /// Pings b from a: each ping is two frames.
    pub(crate) fn ping(&self, count: usize, interval: &str) {
        let count = count.to_string();
        let arguments = ["-q", "-i", interval, "-c", &count, "-W", "2", "10.68.1.2"];
        text(&output(self.a.command("ping").args(arguments)));
    }

    /// Sends pings from `a` that nobody answers.
    pub(crate) fn ping_in_vain(&self, count: usize) {
        let count = count.to_string();
        let arguments = ["-q", "-i", "0.02", "-c", &count, "-W", "1", "10.68.1.2"];
        output(self.a.command("ping").args(arguments));
    }
}

/// A program that runs until drop.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().expect("the program starts"))
    }

    /// Ends the program with a signal that the program handles.
    fn end(mut self) {
        text(&output(Command::new("kill").args(["-TERM", &self.0.id().to_string()])));
        self.0.wait().expect("the program ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The collector of a protocol.
pub(crate) struct CollectorProgram {
    /// Name of the program in nfdump.
    pub(crate) name: &'static str,
    /// UDP port on which the collector listens.
    pub(crate) port: u16,
    /// Name of the protocol in tshark.
    pub(crate) dissector: &'static str,
}

/// `tcpdump` and a collector in a namespace, which both get the datagrams.
pub(crate) struct Collectors {
    program: &'static CollectorProgram,
    folder: TempDir,
    capture: Running,
    collector: Running,
}

impl Collectors {
    /// Starts both programs, or prints the name of a missing program.
    pub(crate) fn start_or_skip(
        namespace: &Namespace,
        program: &'static CollectorProgram,
    ) -> Option<Self> {
        for name in ["tcpdump", "tshark", "nfdump", program.name] {
            if output(Command::new("which").arg(name)).stdout.is_empty() {
                let install = "apt-get install tcpdump tshark nfdump nfdump-sflow";
                print_skipped(&format!("{name} is missing: {install}"));
                return None;
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let flows = folder.path().join("flows");
        fs::create_dir(&flows).expect("a folder");
        let file = folder.path().join("datagrams.pcap");
        let port = program.port.to_string();
        let capture = Running::start(
            namespace
                .command("tcpdump")
                .args(["-i", "lo", "-U", "--immediate-mode", "-Z", "root", "-w"])
                .arg(&file)
                .args(["udp", "and", "dst", "port", &port]),
        );
        let collector = Running::start(
            namespace
                .command(program.name)
                .args(["-b", "127.0.0.1", "-p", &port, "-l"])
                .arg(&flows),
        );
        let socket = format!(":{:04X} ", program.port);
        let listens = || namespace.run("cat", &["/proc/net/udp"]).contains(&socket);
        let captures = || fs::metadata(&file).is_ok_and(|file| file.len() > 0);
        assert!(wait_until(|| listens() && captures()), "the collectors start");
        Some(Self { program, folder, capture, collector })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("datagrams.pcap")
    }

    /// Returns the bytes of the captured datagrams.
    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        let file = fs::read(self.file()).unwrap_or_default();
        let payload = |frame: Vec<u8>| frame.get(UDP_PAYLOAD..).expect("a UDP datagram").to_vec();
        capture::read(&file).into_iter().map(payload).collect()
    }

    /// Returns fields of the datagrams that a filter selects, as tshark decodes them.
    pub(crate) fn by_tshark(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let CollectorProgram { port, dissector, .. } = self.program;
        let mut command = Command::new("tshark");
        command.arg("-r").arg(self.file());
        command.args(["-d", &format!("udp.port=={port},{dissector}"), "-T", "fields"]);
        command.args(["-Y", filter]);
        for field in fields {
            command.args(["-e", field]);
        }
        let lines = text(&output(&mut command));
        let mut columns = vec![Vec::new(); fields.len()];
        for line in lines.lines() {
            for (column, values) in columns.iter_mut().zip(line.split('\t')) {
                column.extend(values.split(',').map(str::to_owned));
            }
        }
        columns
    }

    /// Ends the collectors, and returns the flows that the collector has stored.
    ///
    /// Each flow has addresses, packets, bytes and ports, between single spaces.
    pub(crate) fn end(self) -> Vec<String> {
        let Self { folder, capture, collector, .. } = self;
        capture.end();
        collector.end();
        let mut command = Command::new("nfdump");
        command.arg("-R").arg(folder.path().join("flows"));
        let flows = text(&output(command.args(["-q", "-o", "fmt:%sa %da %pkt %byt %in %out"])));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        flows.lines().map(words).collect()
    }
}

pub(crate) fn index_of(namespace: &Namespace, device: &str) -> u32 {
    let index = namespace.run("cat", &[&format!("/sys/class/net/{device}/ifindex")]);
    index.trim().parse().expect("a number")
}

/// Sends pings of p1 to p2 and back.
pub(crate) fn connect_ports(daemon: &Daemon) {
    for rule in ["in_port=p1,actions=output:p2", "in_port=p2,actions=output:p1"] {
        text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
    }
}
