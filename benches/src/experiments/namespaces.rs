//! Hosts of an experiment: network namespaces, each with one device at the switch.

use std::{
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use crate::switch::output;

/// Seconds after which a namespace ends without its experiment.
const LIFETIME_SECONDS: &str = "600";

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Pause between two looks at a state.
const LOOK: Duration = Duration::from_millis(10);
/// Looks at a state until the experiment fails.
const LOOKS_MAX: u32 = 500;

/// A host, which is removed on drop.
///
/// The namespace has no name, so that experiments leave the names of the machine alone.
pub(super) struct HostNamespace {
    /// The process that keeps the namespace.
    keeper: Child,
    device: String,
}

impl HostNamespace {
    /// Creates a host, and moves a device with an address to the host.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    pub(super) fn new(device: String, address: Ipv4Addr) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sleep", LIFETIME_SECONDS]);
        let keeper = command.spawn().unwrap_or_else(|error| panic!("unshare: {error}"));
        let host = Self { keeper, device };
        let own = fs::read_link("/proc/self/ns/net").ok();
        await_state("a network namespace", || {
            fs::read_link(host.namespace()).is_ok_and(|namespace| Some(namespace) != own)
        });
        for scope in ["all", "default"] {
            // Only packets of the experiment may be sent. A kernel without IPv6 has no such file.
            let write = format!("echo 1 > /proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            let _ = host.command("sh").args(["-c", &write]).output();
        }
        let id = host.keeper.id().to_string();
        output("ip", &["link", "set", &host.device, "netns", &id]);
        let address = format!("{address}/24");
        host.run("ip", &["address", "add", &address, "dev", &host.device]);
        host.run("ip", &["link", "set", &host.device, "up"]);
        host
    }

    /// Turns off the offloads of the device.
    pub(super) fn disable_offloads(&self) {
        let features = ["tx", "rx", "tso", "gso", "gro"].map(|feature| [feature, "off"]);
        let device = ["-K", self.device.as_str()];
        self.run("ethtool", &[&device[..], features.as_flattened()].concat());
    }

    /// Returns a command that runs on the host.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).arg(program);
        command
    }

    /// Waits until a program on the host listens at a TCP port.
    pub(super) fn await_listener(&self, port: u16) {
        let file = format!("/proc/{}/net/tcp", self.keeper.id());
        await_state("a listening program", || {
            fs::read_to_string(&file).is_ok_and(|sockets| has_listener(&sockets, port))
        });
    }

    /// Returns the UDP packets that reached a socket of the host.
    ///
    /// Packets that found a full buffer have reached the socket.
    pub(super) fn udp_arrivals(&self) -> f64 {
        let file = format!("/proc/{}/net/snmp", self.keeper.id());
        udp_arrivals(&fs::read_to_string(file).unwrap_or_default())
    }

    /// Runs a program on the host until the program ends.
    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("nsenter: {error}"));
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {}: {complaint}", arguments.join(" "));
    }

    fn namespace(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.keeper.id()))
    }
}

impl Drop for HostNamespace {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Waits for a state.
fn await_state(what: &str, is_reached: impl Fn() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_reached() {
            return;
        }
        sleep(LOOK);
    }
    panic!("waited in vain for {what}");
}

/// Returns whether the sockets of `/proc/net/tcp` include a listener at a port.
fn has_listener(sockets: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let is_at_port = columns.next().is_some_and(|address| address.ends_with(&port));
        is_at_port && columns.nth(1) == Some(LISTENING)
    })
}

/// Returns the UDP packets that programs read, or that full buffers dropped.
///
/// The table `Udp` has a line of names, then a line of values.
fn udp_arrivals(snmp: &str) -> f64 {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let columns = names.split_whitespace().zip(values.split_whitespace());
    let arrivals = columns.filter(|(name, _)| ["InDatagrams", "RcvbufErrors"].contains(name));
    arrivals.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listening_socket_is_a_listener() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                       0: 00000000:1451 00000000:0000 0A 00000000:00000000\n   \
                       1: 02004D0A:1452 01004D0A:BB84 06 00000000:00000000\n";
        assert!(has_listener(sockets, 0x1451));
        assert!(!has_listener(sockets, 0x1452), "the socket is closing");
        assert!(!has_listener(sockets, 0x451), "another port with the same last digits");
        assert!(!has_listener("", 0x1451));
    }

    #[test]
    fn packets_in_full_buffers_have_arrived() {
        let snmp = "Ip: Forwarding InReceives\nIp: 1 500\n\
                    Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\n\
                    Udp: 300 7 40 1 40\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(udp_arrivals(snmp), 340.0);
        assert_eq!(udp_arrivals(""), 0.0);
    }
}
