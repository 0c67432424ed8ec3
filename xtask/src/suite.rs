//! The suites of `cargo xtask test`, in running order.

use crate::install::{
    BROWSER, OS_KEN_APPLICATIONS, OS_KEN_TESTER, P4RUNTIME_SHELL, PythonPackages, Tool,
};

/// The features of the workspace that build on any machine.
///
/// These features are all features except `dpdk`, which needs libdpdk. The suites of DPDK and lint
/// also use `dpdk`.
pub(crate) const FEATURES: &str = "dbsp,serde,testing";

/// [`FEATURES`] and `dpdk`.
pub(crate) const FEATURES_AND_DPDK: &str = "dbsp,serde,testing,dpdk";

/// One suite: a cargo test command and its purpose.
pub(crate) struct Suite {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Purpose in one line.
    pub(crate) what: &'static str,
    /// Arguments of `cargo test`.
    pub(crate) arguments: &'static [&'static str],
    /// True if the suite runs third-party programs.
    pub(crate) needs_tools: bool,
    /// Third-party programs that no other suite needs.
    pub(crate) own_tools: &'static [Tool],
    /// The Python packages that the suite needs, if any.
    pub(crate) python: Option<&'static PythonPackages>,
    /// True if the suite runs a Linux guest in QEMU.
    pub(crate) has_linux_guest: bool,
    /// The parts of DPDK that the suite needs.
    pub(crate) dpdk: DpdkNeed,
    /// True if the suite is the check of the Debian package, and no cargo test.
    pub(crate) is_package: bool,
    /// True if the suite runs only when named,
    /// because it takes minutes or measures rates.
    pub(crate) is_on_request: bool,
}

impl Suite {
    const fn own(
        name: &'static str,
        what: &'static str,
        arguments: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            what,
            arguments,
            needs_tools: false,
            own_tools: &[],
            python: None,
            has_linux_guest: false,
            dpdk: DpdkNeed::Nothing,
            is_package: false,
            is_on_request: false,
        }
    }

    /// Returns the check of the Debian package.
    const fn package(name: &'static str, what: &'static str) -> Self {
        let mut suite = Self::own(name, what, &[]);
        suite.is_package = true;
        suite
    }

    /// Returns the arguments of `cargo test`.
    ///
    /// Cargo builds a dependency once for each set of features that a selection of packages needs.
    /// So a run of all suites selects the whole workspace for each test of `shunt-tests`. Then
    /// almost nothing is built twice. A suite that runs alone selects only its package.
    pub(crate) fn arguments(&self, shares_build: bool) -> Vec<&'static str> {
        match self.arguments {
            _ if shares_build && self.dpdk == DpdkNeed::Daemon => {
                vec!["--workspace", "--features", FEATURES_AND_DPDK, "--test", "dpdk"]
            }
            ["--package", "shunt-tests" | "shunt-benches", ..] if shares_build => {
                // `--package NAME` once or several times, then the names of tests or benches.
                let packages =
                    self.arguments.chunks_exact(2).take_while(|pair| pair[0] == "--package");
                let targets = &self.arguments[2 * packages.count()..];
                ["--workspace", "--features", FEATURES].iter().chain(targets).copied().collect()
            }
            arguments => arguments.to_vec(),
        }
    }

    const fn with_tools(mut self) -> Self {
        self.needs_tools = true;
        self
    }

    const fn with_own_tools(mut self, tools: &'static [Tool]) -> Self {
        self.own_tools = tools;
        self
    }

    const fn with_python(mut self, python: &'static PythonPackages) -> Self {
        self.python = Some(python);
        self
    }

    const fn with_linux_guest(mut self) -> Self {
        self.has_linux_guest = true;
        self
    }

    const fn with_dpdk(mut self, need: DpdkNeed) -> Self {
        self.dpdk = need;
        self
    }

    const fn on_request(mut self) -> Self {
        self.is_on_request = true;
        self
    }
}

/// The parts of DPDK that a suite needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DpdkNeed {
    /// The suite needs no DPDK.
    Nothing,
    /// The library and its drivers.
    Library,
    /// The library and the daemon with DPDK ports.
    Daemon,
}

/// All suites.
pub(crate) const SUITES: &[Suite] = &[
    Suite::own(
        "tidy",
        "repository rules: layout, dependencies, documentation",
        &["--package", "shunt-tests", "--test", "tidy"],
    ),
    Suite::own(
        "crates",
        "unit tests, properties, models and examples of every crate",
        &[
            "--workspace",
            "--features",
            FEATURES,
            // Each further exclusion selects other features, and builds dbsp twice.
            "--exclude",
            "shunt-tests",
        ],
    ),
    Suite::own(
        "benches",
        "a short run of every bench",
        &[
            "--package",
            "shunt-benches",
            "--package",
            "shunt-classifier",
            "--package",
            "shunt-datapath",
            "--package",
            "shunt-gigaflow",
            "--package",
            "shunt-kairo",
            "--package",
            "shunt-nuevomatch",
            "--bench",
            "*",
        ],
    ),
    Suite::own(
        "icount",
        "instruction counts of the kernels, by callgrind; --bless writes the counts",
        &["--release", "--package", "shunt-kernels", "--test", "icount"],
    )
    .with_tools(),
    Suite::own(
        "cases",
        "recorded cases: frames, counters and rules compared with Open vSwitch",
        &["--package", "shunt-tests", "--test", "trace_cases"],
    )
    .with_tools(),
    Suite::own(
        "soak",
        "a whole switch under continuous rule changes: caches, counters, memory",
        &["--package", "shunt-tests", "--test", "soak"],
    ),
    Suite::own(
        "clients",
        "ovs-ofctl, ovs-appctl and shuntctl with the daemon; invalid input of every kind",
        &["--package", "shunt-tests", "--test", "clients"],
    )
    .with_tools(),
    Suite::own(
        "openflow10",
        "ovs-ofctl with OpenFlow 1.0: rules, ports, misses, versions of a bridge",
        &["--package", "shunt-tests", "--test", "openflow10"],
    )
    .with_tools(),
    Suite::own(
        "gigaflow",
        "the daemon with a Gigaflow chain: frames, rule changes, cache replacement",
        &["--package", "shunt-tests", "--test", "gigaflow"],
    )
    .with_tools(),
    Suite::own(
        "hosts",
        "hosts in namespaces: ping, TCP with offloads, TAP, ports that disappear",
        &["--package", "shunt-tests", "--test", "hosts"],
    )
    .with_tools(),
    Suite::own(
        "guests",
        "virtual machines at vhost-user ports: counted frames, restarts of both sides",
        &["--package", "shunt-tests", "--test", "guests"],
    )
    .with_tools(),
    Suite::own(
        "memif",
        "memif ports with DPDK's net_memif in both roles: counted frames, restarts of both sides",
        &["--package", "shunt-tests", "--test", "memif"],
    )
    .with_tools(),
    Suite::own(
        "linux_guest",
        "a Linux guest in QEMU at a vhost-user port: TCP with offloads, a killed switch",
        &["--package", "shunt-tests", "--test", "linux_guest"],
    )
    .with_tools()
    .with_linux_guest(),
    Suite::own(
        "dpdk",
        "the crate of DPDK devices, built with the feature `dpdk`",
        &["--package", "shunt-dpdk", "--features", "dpdk"],
    )
    .with_dpdk(DpdkNeed::Library),
    Suite::own(
        "dpdk_ports",
        "DPDK ports and the daemon with them: capture files, rings, TAP, virtual machines",
        &[
            "--package",
            "shunt-datapath",
            "--package",
            "shunt-tests",
            "--features",
            "shunt-datapath/dpdk",
            "--test",
            "dpdk",
        ],
    )
    .with_tools()
    .with_dpdk(DpdkNeed::Daemon),
    Suite::own(
        "restart",
        "restarts under a service manager that keeps descriptors: no packet is lost, no client refused",
        &["--package", "shunt-tests", "--test", "restart"],
    )
    .with_tools(),
    Suite::own(
        "nic",
        "the daemon with a NIC in front of a bridge: embedded, external, barriers, restarts",
        &["--package", "shunt-tests", "--test", "nic_daemon"],
    )
    .with_tools(),
    Suite::own(
        "controllers",
        "os-ken's learning switch with the daemon",
        &["--package", "shunt-tests", "--test", "controllers"],
    )
    .with_tools()
    .with_python(&OS_KEN_APPLICATIONS),
    Suite::own(
        "p4runtime",
        "P4Runtime with third parties: clients of the embedded NIC, a device behind C++ gRPC",
        &["--package", "shunt-tests", "--test", "p4runtime"],
    )
    .with_tools()
    .with_python(&P4RUNTIME_SHELL),
    Suite::own(
        "tester",
        "os-ken's switch tester: 226 tests of actions, 714 of matches",
        &["--package", "shunt-tests", "--test", "switch_tester", "--", "actions", "matches"],
    )
    .with_tools()
    .with_python(&OS_KEN_TESTER),
    Suite::package(
        "package",
        "the Debian package of the built programs, in a fresh root with systemd: install to purge",
    ),
    Suite::own(
        "faults",
        "the daemon while system calls, disks, limits and clocks fail, and its memory under churn",
        &[
            "--package",
            "shunt-tests",
            "--test",
            "faults",
            "--",
            "--nocapture",
            "--test-threads=1",
            "--skip",
            "the_window",
        ],
    )
    .with_tools()
    .on_request(),
    Suite::own(
        "window",
        "the page of the daemon in headless Chromium: figures, layout, keys, a stopped daemon",
        &["--package", "shunt-tests", "--test", "faults", "--", "--nocapture", "the_window"],
    )
    .with_tools()
    .with_own_tools(BROWSER)
    .on_request(),
    Suite::own(
        "rates",
        "os-ken's switch tester: groups and meters, by measured packet rates",
        &[
            "--package",
            "shunt-tests",
            "--test",
            "switch_tester",
            "--",
            "--test-threads=1",
            "groups",
            "meters",
        ],
    )
    .with_tools()
    .with_python(&OS_KEN_TESTER)
    .on_request(),
];
