//! Programs of others that tests and the demo drive, and how to get them.

use std::process::Command;

use crate::shell::{Failure, has, is_root, output, root, run};

/// A program, and the Debian package that has it.
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// What the demo drives.
pub(crate) const DEMO: &[Tool] = &[
    tool("ovs-ofctl", "openvswitch-common"),
    tool("ip", "iproute2"),
    tool("ping", "iputils-ping"),
];

/// What the test suites drive.
pub(crate) const TESTS: &[Tool] = &[
    tool("ovs-ofctl", "openvswitch-common"),
    tool("ovs-appctl", "openvswitch-common"),
    tool("ip", "iproute2"),
    tool("ethtool", "ethtool"),
    tool("ping", "iputils-ping"),
    tool("iperf3", "iperf3"),
    tool("tcpdump", "tcpdump"),
    tool("valgrind", "valgrind"),
    tool("python3", "python3-venv"),
    tool("/usr/lib/openvswitch-switch/ovs-vswitchd", "openvswitch-switch"),
];

/// What benches compare with.
pub(crate) const RIVAL: &[Tool] = &[
    tool("ovs-ofctl", "openvswitch-common"),
    tool("ovs-vsctl", "openvswitch-switch"),
    tool("ovsdb-server", "openvswitch-switch"),
    tool("/usr/lib/openvswitch-switch/ovs-vswitchd", "openvswitch-switch"),
    tool("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "openvswitch-switch-dpdk"),
    tool("ip", "iproute2"),
    tool("rsvg-convert", "librsvg2-bin"),
];

/// A release of os-ken, in a Python environment of its own.
pub(crate) struct OsKen {
    version: &'static str,
    /// The environment's folder in `target`.
    folder: &'static str,
    /// The variable that tells the tests where its Python is.
    pub(crate) variable: &'static str,
}

/// The release whose applications run against the switch: the last whose package has them.
pub(crate) const OS_KEN_APPLICATIONS: OsKen =
    OsKen { version: "1.4.1", folder: "os-ken", variable: "SHUNT_OS_KEN_PYTHON" };

/// The release whose switch tester judges the switch.
pub(crate) const OS_KEN_TESTER: OsKen =
    OsKen { version: "3.1.1", folder: "os-ken-tester", variable: "SHUNT_SWITCH_TESTER_PYTHON" };

/// Makes sure that every program is there: installs what is missing where that is allowed.
///
/// # Errors
///
/// Where it is not allowed, or fails, names the exact command that would mend it.
pub(crate) fn ensure(tools: &[Tool]) -> Result<(), Failure> {
    let mut packages: Vec<&str> =
        tools.iter().filter(|tool| !has(tool.program)).map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install -y {}", packages.join(" "));
    if !is_root() || !has("apt-get") {
        return Err(Failure::new(format!("programs are missing. As root, run: {command}")));
    }
    println!("installing {}", packages.join(" "));
    apt(&["update", "-qq"])?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments).map_err(|failure| Failure::new(format!("{failure}\nrun: {command}")))
}

fn apt(arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("apt-get");
    output(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive")).map(|_| ())
}

/// Makes the Python environment that has os-ken, and answers with the path of its Python.
pub(crate) fn ensure_os_ken(os_ken: &OsKen) -> Result<String, Failure> {
    let folder = root().join("target").join(os_ken.folder);
    let python = folder.join("bin/python").to_string_lossy().into_owned();
    let version = os_ken.version;
    let check = format!("import os_ken; assert os_ken.__version__ == '{version}'");
    let check = ["-c", check.as_str()];
    if output(Command::new(&python).args(check)).is_ok() {
        return Ok(python);
    }
    let package = format!("os-ken=={version}");
    println!("installing {package} into {}", folder.display());
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", &package]))?;
    output(Command::new(&python).args(check))?;
    Ok(python)
}
