//! The compared switches.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{Daemon, OpenVSwitch, Setup, Shunt, Switch, huge_pages::HugePages, shunt::has_dpdk};

/// A switch that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Shunt, with the binaries in the given folder.
    Shunt(PathBuf),
    /// Open vSwitch with its userspace datapath.
    OpenVSwitch,
    /// Open vSwitch with DPDK.
    OpenVSwitchDpdk,
}

impl Contender {
    /// Returns Shunt with the binaries beside this program.
    #[must_use]
    pub fn ours() -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        Self::Shunt(program.parent().unwrap_or_else(|| Path::new(".")).to_path_buf())
    }

    /// Returns Shunt, and the userspace datapath of Open vSwitch if it can be started.
    #[must_use]
    pub fn both() -> Vec<Self> {
        [Some(Self::ours()), Self::OpenVSwitch.if_installed()].into_iter().flatten().collect()
    }

    /// Returns [`Self::both`] with virtual devices.
    /// Without root, prints a message and returns none.
    #[must_use]
    pub fn both_on_devices() -> Vec<Self> {
        if is_root() {
            return Self::both();
        }
        println!("complete switches need virtual devices, and these need root: SKIPPED");
        Vec::new()
    }

    /// Returns whether the switch was built with AF_XDP ports.
    #[must_use]
    pub fn has_xdp(&self) -> bool {
        match self {
            Self::Shunt(_) => true,
            Self::OpenVSwitch => Daemon::Plain.has_xdp(),
            Self::OpenVSwitchDpdk => Daemon::Dpdk.has_xdp(),
        }
    }

    /// Returns whether the switch was built with DPDK. The folder gets a file.
    #[must_use]
    pub fn has_dpdk(&self, folder: &Path) -> bool {
        match self {
            Self::Shunt(binaries) => has_dpdk(binaries, folder),
            Self::OpenVSwitch => false,
            Self::OpenVSwitchDpdk => true,
        }
    }

    /// Returns the contender if it can be started here. Otherwise prints a message.
    #[must_use]
    pub fn if_installed(self) -> Option<Self> {
        let (daemon, package) = match self {
            Self::Shunt(_) => return Some(self),
            Self::OpenVSwitch => (Daemon::Plain, "openvswitch-switch"),
            Self::OpenVSwitchDpdk => (Daemon::Dpdk, "openvswitch-switch-dpdk"),
        };
        if !is_root() || !daemon.is_installed() {
            println!("without Open vSwitch: it needs root and the Debian package {package}");
            return None;
        }
        Some(self)
    }

    /// Returns the name of the contender in tables and plots.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Shunt(_) if *self == Self::ours() => "Shunt".to_owned(),
            Self::Shunt(_) => "Shunt, the other build".to_owned(),
            Self::OpenVSwitch => format!("Open vSwitch {}", version()),
            // OVS-DPDK is slower without huge pages, so the name mentions the missing huge pages.
            Self::OpenVSwitchDpdk if !HugePages::are_here() => {
                format!("OVS-DPDK {} without huge pages", version())
            }
            Self::OpenVSwitchDpdk => format!("OVS-DPDK {}", version()),
        }
    }

    /// Starts the switch with a folder for its files.
    #[must_use]
    pub fn start(&self, folder: &Path, setup: &Setup) -> Box<dyn Switch> {
        match self {
            Self::Shunt(binaries) => Box::new(Shunt::start(binaries, &folder.join("shunt"), setup)),
            Self::OpenVSwitch => {
                Box::new(OpenVSwitch::start(Daemon::Plain, &folder.join("ovs"), setup))
            }
            Self::OpenVSwitchDpdk => {
                Box::new(OpenVSwitch::start(Daemon::Dpdk, &folder.join("ovs"), setup))
            }
        }
    }
}

/// Returns the installed version of Open vSwitch.
fn version() -> String {
    let text = Command::new("ovs-ofctl").arg("--version").output();
    let text = text.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    text.split_whitespace().nth(3).unwrap_or("of unknown version").to_owned()
}

/// Returns whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    output("id", &["-u"]).trim() == "0"
}

/// Runs a program until the program ends; returns the output.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {complaint}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
