//! OVS-DPDK under test: a private database and daemon in a folder and a namespace of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

use shunt_benches::cpu;

use crate::{FORWARDING_CPU, RULE, Switch};

const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages of 2 MiB that OVS-DPDK is given.
const HUGEPAGES_COUNT: u32 = 768;

/// Whether Debian's packages of it are here.
pub(crate) fn installed() -> bool {
    Path::new(DAEMON).exists() && Path::new(SCHEMA).exists()
}

/// A running `ovs-vswitchd-dpdk`; stopped, its pages and namespace given back, when dropped.
pub(crate) struct OvsDpdk {
    folder: PathBuf,
    namespace: String,
    hugepages_before: String,
}

impl OvsDpdk {
    /// Starts it with a capture port, a null port and the rule.
    pub(crate) fn start(folder: &Path, capture: &Path) -> Self {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let namespace = format!("shunt-rival-{}", std::process::id());
        let hugepages_before = fs::read_to_string(HUGEPAGES).unwrap_or_default();
        let rival = Self { folder: folder.to_path_buf(), namespace, hugepages_before };
        let made = Command::new("ip").args(["netns", "add", &rival.namespace]).status();
        assert!(made.is_ok_and(|status| status.success()), "OVS-DPDK needs a namespace");
        rival.start_database();
        rival.start_daemon();
        rival.configure(capture);
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

    fn start_daemon(&self) {
        let _ = fs::write(HUGEPAGES, HUGEPAGES_COUNT.to_string());
        let pages = fs::read_to_string(HUGEPAGES).unwrap_or_default();
        let enough = pages.trim().parse::<u32>().is_ok_and(|count| count >= HUGEPAGES_COUNT);
        let extra = if enough {
            "--in-memory --no-pci --iova-mode=va"
        } else {
            println!("too few huge pages: OVS-DPDK runs without, which is slower");
            "--legacy-mem --no-huge -m 1024 --no-pci --iova-mode=va"
        };
        let mut settings = vec![
            "other_config:dpdk-init=true".to_owned(),
            "other_config:dpdk-lcore-mask=0x1".to_owned(),
            format!("other_config:pmd-cpu-mask={:#x}", 1 << FORWARDING_CPU),
            format!("other_config:dpdk-extra=\"{extra}\""),
        ];
        if enough {
            settings.push("other_config:dpdk-socket-mem=1024".to_owned());
        }
        let mut arguments = vec!["--no-wait", "set", "Open_vSwitch", "."];
        arguments.extend(settings.iter().map(String::as_str));
        self.run("ovs-vsctl", &arguments);
        let database = format!("unix:{}", self.path("db.sock"));
        let files = self.files("ovs-vswitchd");
        let mut arguments = vec![database.as_str(), "--detach", "--no-chdir"];
        arguments.extend(files.iter().map(String::as_str));
        self.run(DAEMON, &arguments);
    }

    fn configure(&self, capture: &Path) {
        let bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"];
        self.run("ovs-vsctl", &bridge);
        self.run("ovs-ofctl", &["del-flows", "br0"]);
        self.run("ovs-ofctl", &["add-flow", "br0", RULE]);
        let input = format!("eth_pcap0,rx_pcap={},infinite_rx=1", capture.display());
        for (name, number, device) in [("out", "2", "net_null0,no-rx=1"), ("in", "1", &input)] {
            let request = format!("ofport_request={number}");
            let device = format!("options:dpdk-devargs={device}");
            let port = ["add-port", "br0", name, "--", "set", "interface", name, "type=dpdk"];
            self.run("ovs-vsctl", &[&port[..], &[&request, &device]].concat());
        }
        sleep(Duration::from_secs(1));
    }

    /// Flags that keep a daemon's files in the folder.
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

    fn id(&self, name: &str) -> Option<u32> {
        fs::read_to_string(self.folder.join(format!("{name}.pid"))).ok()?.trim().parse().ok()
    }

    fn try_run(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]).args(arguments);
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

impl Switch for OvsDpdk {
    fn received(&self) -> u64 {
        let control = self.path("ovs-vswitchd.ctl");
        let text = self.run("ovs-appctl", &["-t", &control, "dpif-netdev/pmd-stats-show"]);
        let received =
            text.lines().filter_map(|line| line.trim().strip_prefix("packets received:"));
        received.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
    }

    fn thread(&self) -> (u32, u32) {
        let id = self.id("ovs-vswitchd").unwrap_or_else(|| panic!("ovs-vswitchd does not run"));
        let thread = cpu::find_thread(id, "pmd-");
        (id, thread.unwrap_or_else(|| panic!("ovs-vswitchd has no forwarding thread")))
    }
}

impl Drop for OvsDpdk {
    fn drop(&mut self) {
        let control = self.path("ovs-vswitchd.ctl");
        let _ = self.try_run("ovs-appctl", &["-t", &control, "exit", "--cleanup"]);
        for name in ["ovs-vswitchd", "ovsdb-server"] {
            if let Some(id) = self.id(name) {
                let _ = Command::new("kill").arg(id.to_string()).output();
                for _ in 0..50 {
                    if !Path::new(&format!("/proc/{id}")).exists() {
                        break;
                    }
                    sleep(Duration::from_millis(100));
                }
            }
        }
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
        let _ = fs::write(HUGEPAGES, self.hugepages_before.trim());
    }
}
