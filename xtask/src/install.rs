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
    tool("tcpreplay", "tcpreplay"),
    tool("tshark", "tshark"),
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
];

/// Packages of others in a Python environment of their own.
pub(crate) struct PythonPackages {
    packages: &'static [&'static str],
    /// What fails if they are not there, or others are.
    check: &'static str,
    /// The environment's folder in `target`.
    folder: &'static str,
    /// The variable that tells the tests where its Python is.
    pub(crate) variable: &'static str,
}

/// The release of os-ken whose applications run against the switch: the last whose package has them.
pub(crate) const OS_KEN_APPLICATIONS: PythonPackages = PythonPackages {
    packages: &["os-ken==1.4.1"],
    check: "import os_ken; assert os_ken.__version__ == '1.4.1'",
    folder: "os-ken",
    variable: "SHUNT_OS_KEN_PYTHON",
};

/// The release of os-ken whose switch tester judges the switch.
pub(crate) const OS_KEN_TESTER: PythonPackages = PythonPackages {
    packages: &["os-ken==3.1.1"],
    check: "import os_ken; assert os_ken.__version__ == '3.1.1'",
    folder: "os-ken-tester",
    variable: "SHUNT_SWITCH_TESTER_PYTHON",
};

/// The P4Runtime shell, with the messages and the protocol buffers that it works with.
pub(crate) const P4RUNTIME_SHELL: PythonPackages = PythonPackages {
    packages: &["p4runtime-shell==0.0.6", "p4runtime==1.4.1", "protobuf==3.20.3"],
    check: "import p4runtime_sh.shell, google.protobuf as p; assert p.__version__ == '3.20.3'",
    folder: "p4runtime-shell",
    variable: "SHUNT_P4RUNTIME_PYTHON",
};

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

/// Makes the Python environment that has the packages, and answers with the path of its Python.
pub(crate) fn ensure_python(wanted: &PythonPackages) -> Result<String, Failure> {
    let folder = root().join("target").join(wanted.folder);
    let python = folder.join("bin/python").to_string_lossy().into_owned();
    let check = ["-c", wanted.check];
    if output(Command::new(&python).args(check)).is_ok() {
        return Ok(python);
    }
    println!("installing {} into {}", wanted.packages.join(" "), folder.display());
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let install = ["-m", "pip", "install", "--quiet"];
    run(Command::new(&python).args(install).args(wanted.packages))?;
    output(Command::new(&python).args(check))?;
    Ok(python)
}
