//! Network namespaces that a test creates and removes.

use std::{
    io::{self, Write},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::daemon::{output, text};

/// A network namespace, which is removed on drop.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace with its loopback up and IPv6 disabled.
    ///
    /// # Errors
    ///
    /// If the process has no permission to create namespaces.
    pub fn new(label: &str) -> io::Result<Self> {
        /// Number of namespaces of this process.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("shunt-{label}-{}-{number}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output()?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        let namespace = Self { name };
        namespace.run("ip", &["link", "set", "lo", "up"]);
        for scope in ["all", "default"] {
            let write = format!("echo 1 > /proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            // A kernel without IPv6 does not need this setting.
            let _ = output(namespace.command("sh").args(["-c", &write]));
        }
        Ok(namespace)
    }

    /// Returns a command that runs in the namespace.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program in the namespace until the program ends; returns the output.
    ///
    /// # Panics
    ///
    /// If the program fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        text(&output(self.command(program).args(arguments)))
    }

    /// Connects `device` in this namespace with `other_device` in the other namespace.
    ///
    /// Both devices are set up.
    pub fn connect(&self, device: &str, other: &Self, other_device: &str) {
        let cable = ["link", "add", device, "type", "veth", "peer", "name", other_device];
        self.run("ip", &[&cable[..], &["netns", &other.name]].concat());
        self.run("ip", &["link", "set", device, "up"]);
        other.run("ip", &["link", "set", other_device, "up"]);
    }

    /// Moves a device to another namespace.
    pub fn move_device(&self, device: &str, other: &Self) {
        self.run("ip", &["link", "set", device, "netns", &other.name]);
    }

    /// Returns the number of ICMP echo requests received in this namespace.
    ///
    /// The number includes pings only, and no ARP packets with which kernels check a neighbour.
    ///
    /// # Panics
    ///
    /// If the kernel does not count echo requests.
    #[must_use]
    pub fn echo_requests(&self) -> u64 {
        self.icmp_count("InEchos")
    }

    /// Returns the number of ICMP echo replies received in this namespace.
    ///
    /// No kernel answers echo replies, requested or not.
    ///
    /// # Panics
    ///
    /// If the kernel does not count echo replies.
    #[must_use]
    pub fn echo_replies(&self) -> u64 {
        self.icmp_count("InEchoReps")
    }

    fn icmp_count(&self, name: &str) -> u64 {
        let text = self.run("cat", &["/proc/net/snmp"]);
        icmp_count_of(&text, name).unwrap_or_else(|| panic!("no count {name} in `{text}`"))
    }
}

/// Parses a counter of the table `Icmp`.
///
/// The table has a line of names, then a line of values.
fn icmp_count_of(snmp: &str, name: &str) -> Option<u64> {
    let mut rows = snmp.lines().filter(|line| line.starts_with("Icmp:"));
    let (names, values) = (rows.next()?, rows.next()?);
    let mut columns = names.split_whitespace().zip(values.split_whitespace());
    columns.find(|(own, _)| *own == name)?.1.parse().ok()
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = output(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

/// Returns a namespace. Without permission, prints a message and returns `None`.
#[must_use]
pub fn namespace_or_skip(label: &str) -> Option<Namespace> {
    match Namespace::new(label) {
        Ok(namespace) => Some(namespace),
        Err(error) => {
            print_skipped(&format!("{label} needs network namespaces: {error}"));
            None
        }
    }
}

/// Prints the name of the part that is not tested. The test passes.
pub fn print_skipped(what: &str) {
    // Without standard error, no message can be printed.
    let _ = writeln!(io::stderr(), "SKIPPED: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_name() {
        let count = |snmp: &str| icmp_count_of(snmp, "InEchos");
        let snmp =
            "Ip: Forwarding InReceives\nIp: 1 9\nIcmp: InMsgs InEchos OutEchos\nIcmp: 7 5 3\n";
        assert_eq!(count(snmp), Some(5));
        assert_eq!(count("Icmp: InMsgs InEchos\nIcmp: 7\n"), None);
        assert_eq!(count(""), None);
    }
}
