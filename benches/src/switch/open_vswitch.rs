//! Open vSwitch under test: a private database and daemon in a separate folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

use super::{FrontCaches, PortSpec, Setup, Switch, huge_pages::HugePages};
use crate::cpu;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The library that Open vSwitch needs for AF_XDP ports.
const XDP_LIBRARY: &[u8] = b"libxdp.so";

/// Initial limit of cached flows.
/// Open vSwitch needs minutes to raise a lower limit to this limit.
const FLOW_LIMIT: u32 = 200_000;

/// The variant of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// The ports are packet sockets, and the main thread forwards.
    Plain,
    /// The ports are DPDK ports, and a separate thread forwards.
    Dpdk,
}

impl Daemon {
    const fn program(self) -> &'static str {
        match self {
            Self::Plain => "/usr/lib/openvswitch-switch/ovs-vswitchd",
            Self::Dpdk => "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
        }
    }

    /// Returns whether the Debian packages of the variant are installed.
    #[must_use]
    pub fn is_installed(self) -> bool {
        Path::new(self.program()).exists() && Path::new(SCHEMA).exists()
    }

    /// Returns whether the daemon was built with AF_XDP ports.
    pub(super) fn has_xdp(self) -> bool {
        let program = fs::read(self.program()).unwrap_or_default();
        program.windows(XDP_LIBRARY.len()).any(|part| part == XDP_LIBRARY)
    }
}

/// A running `ovs-vswitchd`.
///
/// On drop, the process is stopped and its huge pages are released.
#[derive(Debug)]
pub struct OpenVSwitch {
    daemon: Daemon,
    folder: PathBuf,
    /// Limit of cached flows.
    flow_limit: u32,
    /// Huge pages, released after the process has ended.
    huge_pages: Option<HugePages>,
}

impl OpenVSwitch {
    /// Starts Open vSwitch in the network namespace of this process.
    ///
    /// # Panics
    ///
    /// If the daemon does not start.
    #[must_use]
    pub fn start(daemon: Daemon, folder: &Path, setup: &Setup) -> Self {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let folder = folder.to_path_buf();
        let mut rival = Self { daemon, folder, flow_limit: FLOW_LIMIT, huge_pages: None };
        rival.start_database();
        if daemon == Daemon::Dpdk {
            rival.ask_for_dpdk(setup.cpu.unwrap_or(1));
        }
        let database = format!("unix:{}", rival.path("db.sock"));
        let files = rival.files("ovs-vswitchd");
        let mut arguments = vec![database.as_str(), "--detach", "--no-chdir"];
        arguments.extend(files.iter().map(String::as_str));
        rival.run(daemon.program(), &arguments);
        rival.configure(setup);
        rival
    }

    fn start_database(&self) {
        let database = self.path("conf.db");
        self.run("ovsdb-tool", &["create", &database, SCHEMA]);
        let remote = format!("--remote=punix:{}", self.path("db.sock"));
        let files = self.files("ovsdb-server");
        let mut arguments = vec![database.as_str(), &remote, "--detach", "--no-chdir"];
        arguments.extend(files.iter().map(String::as_str));
        self.run("ovsdb-server", &arguments);
        self.run("ovs-vsctl", &["--no-wait", "init"]);
    }

    fn ask_for_dpdk(&mut self, cpu: usize) {
        let pages = HugePages::ask();
        let enough = pages.are_enough();
        self.huge_pages = Some(pages);
        let extra = if enough {
            "--in-memory --no-pci --iova-mode=va"
        } else {
            "--legacy-mem --no-huge -m 1024 --no-pci --iova-mode=va"
        };
        let mut settings = vec![
            "other_config:dpdk-init=true".to_owned(),
            "other_config:dpdk-lcore-mask=0x1".to_owned(),
            thread_setting(cpu),
            format!("other_config:dpdk-extra=\"{extra}\""),
        ];
        if enough {
            settings.push("other_config:dpdk-socket-mem=1024".to_owned());
        }
        let mut arguments = vec!["--no-wait", "set", "Open_vSwitch", "."];
        arguments.extend(settings.iter().map(String::as_str));
        self.run("ovs-vsctl", &arguments);
    }

    fn configure(&mut self, setup: &Setup) {
        let mut settings = caches(setup);
        // AF_XDP ports have a forwarding thread also without DPDK.
        let has_xdp = setup.ports.iter().any(PortSpec::is_xdp);
        settings.extend(setup.cpu.filter(|_| has_xdp).map(thread_setting));
        if !settings.is_empty() {
            let settings = settings.iter().map(String::as_str);
            let words: Vec<&str> =
                ["set", "Open_vSwitch", "."].into_iter().chain(settings).collect();
            self.run("ovs-vsctl", &words);
        }
        let bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"];
        self.run("ovs-vsctl", &[&bridge[..], &["fail_mode=secure"]].concat());
        // One command adds many ports, because each command is a transaction.
        let ports: Vec<Vec<String>> =
            setup.ports.iter().zip(1..).map(|(port, number)| port_words(port, number)).collect();
        for some in ports.chunks(PORTS_PER_COMMAND) {
            let words = some.join(&"--".to_owned());
            self.run("ovs-vsctl", &words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some(controller) = setup.controller {
            self.run("ovs-vsctl", &["set-controller", "br0", controller]);
            self.run("ovs-vsctl", &["set", "controller", "br0", "connection-mode=out-of-band"]);
        }
        self.flow_limit = setup.entries_max.unwrap_or(FLOW_LIMIT);
        self.allow_flows();
        sleep(Duration::from_secs(1));
    }

    /// Returns flags that keep the files of a daemon in the folder.
    fn files(&self, name: &str) -> [String; 5] {
        [
            format!("--pidfile={}", self.path(&format!("{name}.pid"))),
            format!("--log-file={}", self.path(&format!("{name}.log"))),
            format!("--unixctl={}", self.path(&format!("{name}.ctl"))),
            "-vconsole:off".to_owned(),
            "-vsyslog:off".to_owned(),
        ]
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn find_id(&self, name: &str) -> Option<u32> {
        fs::read_to_string(self.folder.join(format!("{name}.pid"))).ok()?.trim().parse().ok()
    }

    fn control(&self, arguments: &[&str]) -> String {
        let control = self.path("ovs-vswitchd.ctl");
        self.run("ovs-appctl", &[&["-t", &control], arguments].concat())
    }

    fn try_run(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(program);
        command.args(arguments);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.folder);
        }
        let output = command.output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        self.try_run(program, arguments)
            .unwrap_or_else(|| panic!("{program} {} failed", arguments.join(" ")))
    }
}

/// Returns the cache settings in the syntax of the database.
fn caches(setup: &Setup) -> Vec<String> {
    let settings = match setup.caches {
        // Open vSwitch always caches.
        FrontCaches::Usual | FrontCaches::Tables => vec![],
        FrontCaches::Signature => {
            vec!["other_config:emc-insert-inv-prob=0", "other_config:smc-enable=true"]
        }
        FrontCaches::Both => vec!["other_config:smc-enable=true"],
        FrontCaches::Nothing => vec!["other_config:emc-insert-inv-prob=0"],
    };
    let mut settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
    if setup.keeps_entries {
        settings.push("other_config:max-idle=600000".to_owned());
    }
    if let Some(room) = setup.entries_max {
        settings.push(format!("other_config:flow-limit={room}"));
    }
    settings
}

/// Returns the setting that binds the forwarding thread to a CPU.
fn thread_setting(cpu: usize) -> String {
    format!("other_config:pmd-cpu-mask={:#x}", 1 << cpu)
}

/// Number of ports that one command adds.
const PORTS_PER_COMMAND: usize = 100;

/// Returns the words of `ovs-vsctl` that add a port.
fn port_words(port: &PortSpec, number: u32) -> Vec<String> {
    let (name, options) = match port {
        PortSpec::Device(name) => (name.clone(), Vec::new()),
        // With the userspace datapath, an internal port is a TAP device.
        PortSpec::Tap(name) => (name.clone(), vec!["type=internal".to_owned()]),
        PortSpec::Xdp(name) | PortSpec::PolledXdp(name) => {
            (name.clone(), vec!["type=afxdp".to_owned()])
        }
        PortSpec::Guest(path) => {
            let path = format!("options:vhost-server-path={}", path.display());
            (format!("port{number}"), vec!["type=dpdkvhostuserclient".to_owned(), path])
        }
        PortSpec::Memif { socket, id } => {
            let socket = socket.display();
            let device = format!("role=client,id={id},socket={socket},socket-abstract=no");
            let mut words = dpdk(number, "net_memif", &device);
            // The same number of queues in both directions (`guest_ports.rs`).
            words.push("options:n_rxq=2".to_owned());
            (format!("port{number}"), words)
        }
        PortSpec::Null => (format!("port{number}"), dpdk(number, "net_null", "no-rx=1")),
        PortSpec::Capture(file) => {
            let file = format!("rx_pcap={},infinite_rx=1", file.display());
            (format!("port{number}"), dpdk(number, "net_pcap", &file))
        }
        PortSpec::Dpdk { driver, arguments } => {
            (format!("port{number}"), dpdk(number, driver, arguments))
        }
    };
    let words = ["add-port", "br0", &name, "--", "set", "interface", &name].map(str::to_owned);
    let request = format!("ofport_request={number}");
    words.into_iter().chain([request]).chain(options).collect()
}

/// Returns the options of a DPDK port.
fn dpdk(number: u32, driver: &str, device: &str) -> Vec<String> {
    let device = format!("options:dpdk-devargs={driver}{number},{device}");
    vec!["type=dpdk".to_owned(), device]
}

impl Switch for OpenVSwitch {
    fn id(&self) -> u32 {
        self.find_id("ovs-vswitchd").unwrap_or_else(|| panic!("ovs-vswitchd is not running"))
    }

    fn received(&self) -> u64 {
        let text = self.control(&["dpif-netdev/pmd-stats-show"]);
        let received =
            text.lines().filter_map(|line| line.trim().strip_prefix("packets received:"));
        received.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
    }

    fn forget_flows(&self) {
        self.control(&["revalidator/purge"]);
    }

    fn evicting_threads(&self) -> &'static [&'static str] {
        &["revalidator"]
    }

    fn await_revalidation(&self) {
        // `revalidator/wait` returns when a round ends. The first round may have begun
        // before the change, and the second round before all threads had the change.
        for _ in 0..3 {
            self.await_revalidation_round();
        }
    }

    fn await_revalidation_round(&self) {
        self.control(&["revalidator/wait"]);
    }

    fn allow_flows(&self) {
        self.control(&["upcall/set-flow-limit", &self.flow_limit.to_string()]);
    }

    fn forwarding_thread(&self) -> u32 {
        match self.daemon {
            // Without AF_XDP ports, the main thread forwards.
            Daemon::Plain => cpu::find_thread(self.id(), "pmd-").unwrap_or_else(|| self.id()),
            Daemon::Dpdk => {
                let thread = cpu::find_thread(self.id(), "pmd-");
                thread.unwrap_or_else(|| panic!("ovs-vswitchd has no forwarding thread"))
            }
        }
    }

    fn cached(&self) -> u64 {
        let text = self.control(&["upcall/show"]);
        let current = text.split("(current ").nth(1).and_then(|rest| rest.split(')').next());
        current.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
    }

    fn add_tap(&self, name: &str) {
        let set = ["set", "interface", name, "type=internal"];
        self.run("ovs-vsctl", &[&["add-port", "br0", name, "--"][..], &set].concat());
    }

    fn remove_port(&self, name: &str) {
        self.run("ovs-vsctl", &["del-port", "br0", name]);
    }

    fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for OpenVSwitch {
    fn drop(&mut self) {
        let control = self.path("ovs-vswitchd.ctl");
        let _ = self.try_run("ovs-appctl", &["-t", &control, "exit", "--cleanup"]);
        for name in ["ovs-vswitchd", "ovsdb-server"] {
            if let Some(id) = self.find_id(name) {
                let _ = Command::new("kill").arg(id.to_string()).output();
                for _ in 0..50 {
                    if !Path::new(&format!("/proc/{id}")).exists() {
                        break;
                    }
                    sleep(Duration::from_millis(100));
                }
            }
        }
    }
}
