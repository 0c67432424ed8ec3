//! The suites of `cargo xtask test`, in the order in which they run.

/// One suite: a cargo test command and what it proves.
pub(crate) struct Suite {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it proves, in a line.
    pub(crate) what: &'static str,
    /// Arguments of `cargo test`.
    pub(crate) arguments: &'static [&'static str],
    /// Whether it drives programs of others.
    pub(crate) needs_tools: bool,
    /// Whether it drives os-ken.
    pub(crate) needs_os_ken: bool,
}

impl Suite {
    const fn own(
        name: &'static str,
        what: &'static str,
        arguments: &'static [&'static str],
    ) -> Self {
        Self { name, what, arguments, needs_tools: false, needs_os_ken: false }
    }

    const fn with_tools(mut self) -> Self {
        self.needs_tools = true;
        self
    }

    const fn with_os_ken(mut self) -> Self {
        self.needs_os_ken = true;
        self
    }
}

/// All suites.
pub(crate) const SUITES: &[Suite] = &[
    Suite::own(
        "tidy",
        "the repository is what ARCHITECTURE.md says it is",
        &["--package", "shunt-tests", "--test", "tidy"],
    ),
    Suite::own(
        "crates",
        "every crate by itself: units, properties against oracles, models, examples",
        &[
            "--workspace",
            "--all-features",
            "--exclude",
            "shunt-tests",
            "--exclude",
            "shunt-benches",
        ],
    ),
    Suite::own(
        "benches",
        "every bench runs once, small",
        &["--package", "shunt-benches", "--package", "shunt-classifier", "--benches"],
    ),
    Suite::own(
        "cases",
        "recorded cases: frames, counters and rules as Open vSwitch answers them",
        &["--package", "shunt-tests", "--test", "trace_cases"],
    )
    .with_tools(),
    Suite::own(
        "clients",
        "ovs-ofctl, ovs-appctl and shuntctl against the daemon; bad input of every kind",
        &["--package", "shunt-tests", "--test", "clients"],
    )
    .with_tools(),
    Suite::own(
        "hosts",
        "hosts in namespaces: ping, TCP with offloads, TAP, ports that vanish",
        &["--package", "shunt-tests", "--test", "hosts"],
    )
    .with_tools(),
    Suite::own(
        "controllers",
        "os-ken's learning switch drives the daemon",
        &["--package", "shunt-tests", "--test", "controllers"],
    )
    .with_tools()
    .with_os_ken(),
];
