//! Real controllers with the daemon: os-ken's learning switches for OpenFlow 1.0 and 1.3.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use shunt_tests::{
    daemon::{Daemon, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
    repository::root,
};

/// Variable with the Python that has os-ken; `cargo xtask test` sets it.
const PYTHON: &str = "SHUNT_OS_KEN_PYTHON";

/// An os-ken application; stopped on drop.
struct App {
    process: Child,
}

impl App {
    /// Starts an application that os-ken ships inside a namespace, listening on `port`.
    fn start(namespace: &Namespace, python: &Path, app: &str, port: u16, log: &Path) -> Self {
        let log = fs::File::create(log).unwrap_or_else(|error| panic!("{error}"));
        let manager = root().join("tests/tools/os_ken_manager.py");
        let port = port.to_string();
        let mut command = namespace.command(&python.to_string_lossy());
        command.arg(manager);
        command.args(["--ofp-tcp-listen-port", &port, "--ofp-listen-host", "127.0.0.1", app]);
        command.stdout(Stdio::null()).stderr(log);
        Self { process: command.spawn().unwrap_or_else(|error| panic!("{app}: {error}")) }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn python_or_skip() -> Option<PathBuf> {
    let python = env::var_os(PYTHON).map(PathBuf::from);
    if python.is_none() {
        print_skipped(&format!("{PYTHON} is not set; `cargo xtask test controllers` sets it"));
    }
    python
}

/// Returns a TCP port without a listener.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn os_ken_switch_connects_three_hosts() {
    check("os_ken.app.simple_switch_13", Some("CONTROLLER:65535"));
}

/// The application adds no rule for misses: the switch sends misses without a rule.
#[test]
fn openflow_10_switch_connects_three_hosts() {
    check("os_ken.app.simple_switch", None);
}

/// Pings between three hosts at a switch that an os-ken application controls.
///
/// `miss_rule` is the action of the rule that the application adds first.
fn check(app: &str, miss_rule: Option<&str>) {
    let Some(python) = python_or_skip() else { return };
    let Some(middle) = namespace_or_skip("osken") else { return };
    let mut hosts = Vec::new();
    for number in 1..=3 {
        let Some(host) = namespace_or_skip("osken") else { return };
        host.connect("eth0", &middle, &format!("p{number}"));
        host.run("ip", &["addr", "add", &format!("10.66.9.{number}/24"), "dev", "eth0"]);
        hosts.push(host);
    }
    let port = free_port();
    let mut configuration = format!(
        "[[bridge]]\nname = \"br0\"\ndatapath_id = \"0000000000000001\"\n\
         controllers = [\"tcp:127.0.0.1:{port}\"]\n"
    );
    for number in 1..=3 {
        configuration += &format!(
            "[[bridge.port]]\nname = \"p{number}\"\nnumber = {number}\ntype = \"af_packet\"\n"
        );
    }
    let daemon = Daemon::start_with(&configuration, |program: &Path| {
        middle.command(&program.to_string_lossy())
    });
    let log = daemon.run_dir().join("os-ken.log");
    let _app = App::start(&middle, &python, app, port, &log);
    let rules = || text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let has_rule = || miss_rule.is_none_or(|rule| rules().contains(rule));
    assert!(wait_until(has_rule), "{}\n{}", said(), daemon.log());
    for (from, to) in [(0, 2), (1, 3), (2, 1)] {
        let address = format!("10.66.9.{to}");
        let ping = ["-q", "-c", "3", "-i", "0.2", "-W", "5", &address];
        let answered = || output(hosts[from].command("ping").args(ping)).status.success();
        assert!(
            wait_until(answered),
            "no reply from {address}: {}\n{}\n{}",
            rules(),
            said(),
            daemon.log()
        );
    }
    // The application installs a rule for each pair of hosts, and these rules carry the traffic.
    let learned = rules().lines().filter(|rule| rule.contains("dl_dst=")).count();
    assert!(learned >= 6, "{}", rules());
}
