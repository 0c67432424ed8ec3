//! Network namespaces that a test makes, and that are gone when it ends.

use std::{
    io::{self, Write},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::daemon::{output, text};

/// A network namespace; removed when dropped.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace with its loopback up and IPv6 silent.
    ///
    /// # Errors
    ///
    /// When namespaces are not allowed here.
    pub fn new(label: &str) -> io::Result<Self> {
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
            // A kernel without IPv6 has nothing to silence.
            let _ = output(namespace.command("sh").args(["-c", &write]));
        }
        Ok(namespace)
    }

    /// A program that will run inside.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program inside, to its end; answers what it wrote.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        text(&output(self.command(program).args(arguments)))
    }

    /// Lays a cable: `device` in this namespace, `other_device` in the other; both up.
    pub fn connect(&self, device: &str, other: &Self, other_device: &str) {
        let cable = ["link", "add", device, "type", "veth", "peer", "name", other_device];
        self.run("ip", &[&cable[..], &["netns", &other.name]].concat());
        self.run("ip", &["link", "set", device, "up"]);
        other.run("ip", &["link", "set", other_device, "up"]);
    }

    /// ICMP echo requests that have come to this namespace: of a ping, and never the ARP that two
    /// hosts exchange besides, whenever their kernels doubt a neighbour.
    ///
    /// # Panics
    ///
    /// When its kernel does not count them.
    #[must_use]
    pub fn echo_requests(&self) -> u64 {
        let text = self.run("cat", &["/proc/net/snmp"]);
        echo_requests_of(&text).unwrap_or_else(|| panic!("no count of echo requests in `{text}`"))
    }
}

/// The count `InEchos` of the table `Icmp`: a line of names, and a line of their values.
fn echo_requests_of(snmp: &str) -> Option<u64> {
    let mut rows = snmp.lines().filter(|line| line.starts_with("Icmp:"));
    let (names, values) = (rows.next()?, rows.next()?);
    let mut columns = names.split_whitespace().zip(values.split_whitespace());
    columns.find(|(name, _)| *name == "InEchos")?.1.parse().ok()
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = output(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

/// A namespace, or `None` and a loud line where namespaces are not allowed.
#[must_use]
pub fn namespace_or_skip(label: &str) -> Option<Namespace> {
    match Namespace::new(label) {
        Ok(namespace) => Some(namespace),
        Err(error) => {
            skipped(&format!("{label} needs network namespaces: {error}"));
            None
        }
    }
}

/// Says what is not tested here; the harness swallows only what passing tests *print*.
pub fn skipped(what: &str) {
    // Without standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "SKIPPED: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_requests_are_read_by_their_name() {
        let snmp =
            "Ip: Forwarding InReceives\nIp: 1 9\nIcmp: InMsgs InEchos OutEchos\nIcmp: 7 5 3\n";
        assert_eq!(echo_requests_of(snmp), Some(5));
        assert_eq!(echo_requests_of("Icmp: InMsgs InEchos\nIcmp: 7\n"), None);
        assert_eq!(echo_requests_of(""), None);
    }
}
