//! Third-party programs that tests and the demo need, and the installation of these programs.

use std::process::Command;

use crate::shell::{TaskError, has, is_root, output, root, run};

/// A program, and the Debian package of the program.
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// Programs of the demo.
pub(crate) const DEMO: &[Tool] = &[
    tool("ovs-ofctl", "openvswitch-common"),
    tool("ip", "iproute2"),
    tool("ping", "iputils-ping"),
];

/// Programs of the test suites.
pub(crate) const TESTS: &[Tool] = &[
    tool("ovs-ofctl", "openvswitch-common"),
    tool("ovs-appctl", "openvswitch-common"),
    tool("ip", "iproute2"),
    tool("curl", "curl"),
    tool("ethtool", "ethtool"),
    tool("strace", "strace"),
    tool("faketime", "faketime"),
    tool("ping", "iputils-ping"),
    tool("iperf3", "iperf3"),
    tool("tcpdump", "tcpdump"),
    tool("tcpreplay", "tcpreplay"),
    tool("tshark", "tshark"),
    tool("nfcapd", "nfdump"),
    tool("nfdump", "nfdump"),
    tool("sfcapd", "nfdump-sflow"),
    tool("valgrind", "valgrind"),
    tool("dpdk-testpmd", "dpdk-dev"),
    tool("python3", "python3-venv"),
    tool("/usr/lib/openvswitch-switch/ovs-vswitchd", "openvswitch-switch"),
    tool("/usr/lib/frr/bfdd", "frr"),
];

/// The browser that opens the page of the daemon.
///
/// Chromium is large, so only one suite installs it.
pub(crate) const BROWSER: &[Tool] = &[tool("chromium", "chromium")];

/// Programs of the Linux guest.
pub(crate) const LINUX_GUEST: &[Tool] = &[
    tool("qemu-system-x86_64", "qemu-system-x86"),
    tool("/usr/share/seabios/bios-256k.bin", "seabios"),
    tool("/bin/busybox", "busybox-static"),
    tool("cpio", "cpio"),
    tool("python3", "python3"),
];

/// The programs that compile a program with DPDK.
///
/// `dpdk-dev` depends on the library, the headers and all drivers.
pub(crate) const DPDK: &[Tool] =
    &[tool("pkg-config", "pkg-config"), tool("cc", "gcc"), tool("dpdk-testpmd", "dpdk-dev")];

/// Programs that build the Debian package.
pub(crate) const PACKAGE: &[Tool] =
    &[tool("dpkg-deb", "dpkg"), tool("dpkg-shlibdeps", "dpkg-dev"), tool("strip", "binutils")];

/// Programs that check the Debian package.
pub(crate) const PACKAGE_CHECK: &[Tool] = &[
    tool("lintian", "lintian"),
    tool("mmdebstrap", "mmdebstrap"),
    tool("nsenter", "util-linux"),
    tool("systemd-analyze", "systemd"),
];

/// Programs that build the container image.
pub(crate) const IMAGE: &[Tool] = &[
    tool("dpkg", "dpkg"),
    tool("tar", "tar"),
    tool("gzip", "gzip"),
    tool("strip", "binutils"),
    tool("readelf", "binutils"),
    tool("sha256sum", "coreutils"),
];

/// Programs that run the container image.
pub(crate) const IMAGE_CHECK: &[Tool] = &[
    tool("podman", "podman"),
    tool("runc", "runc"),
    tool("ip", "iproute2"),
    tool("ping", "iputils-ping"),
    tool("ovs-ofctl", "openvswitch-common"),
];

/// Programs of the rival in benchmarks.
pub(crate) const RIVAL: &[Tool] = &[
    tool("ovs-ofctl", "openvswitch-common"),
    tool("ovs-vsctl", "openvswitch-switch"),
    tool("ovsdb-server", "openvswitch-switch"),
    tool("/usr/lib/openvswitch-switch/ovs-vswitchd", "openvswitch-switch"),
    tool("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "openvswitch-switch-dpdk"),
    // A guest at vhost-user ports.
    tool("dpdk-testpmd", "dpdk-dev"),
    tool("ip", "iproute2"),
    // Hosts at a switch.
    tool("iperf3", "iperf3"),
    tool("ethtool", "ethtool"),
    tool("ping", "iputils-ping"),
];

/// Third-party packages in a separate Python environment.
pub(crate) struct PythonPackages {
    packages: &'static [&'static str],
    /// Python code that fails unless the right versions are installed.
    check: &'static str,
    /// Folder of the environment in `target`.
    folder: &'static str,
    /// Environment variable that passes the path of this Python to tests.
    pub(crate) variable: &'static str,
}

/// The os-ken release with the applications that run with the switch.
///
/// This release is the last release that contains the applications.
pub(crate) const OS_KEN_APPLICATIONS: PythonPackages = PythonPackages {
    packages: &["os-ken==1.4.1"],
    check: "import os_ken; assert os_ken.__version__ == '1.4.1'",
    folder: "os-ken",
    variable: "SHUNT_OS_KEN_PYTHON",
};

/// The os-ken release with the switch tester.
pub(crate) const OS_KEN_TESTER: PythonPackages = PythonPackages {
    packages: &["os-ken==3.1.1"],
    check: "import os_ken; assert os_ken.__version__ == '3.1.1'",
    folder: "os-ken-tester",
    variable: "SHUNT_SWITCH_TESTER_PYTHON",
};

/// The P4Runtime shell, with its protobuf and message packages.
pub(crate) const P4RUNTIME_SHELL: PythonPackages = PythonPackages {
    packages: &["p4runtime-shell==0.0.6", "p4runtime==1.4.1", "protobuf==3.20.3"],
    check: "import p4runtime_sh.shell, google.protobuf as p; assert p.__version__ == '3.20.3'",
    folder: "p4runtime-shell",
    variable: "SHUNT_P4RUNTIME_PYTHON",
};

/// Installs missing programs if permitted.
///
/// # Errors
///
/// If the installation is not permitted or fails. The error has the exact command to run.
pub(crate) fn ensure(tools: &[Tool]) -> Result<(), TaskError> {
    let mut packages: Vec<&str> =
        tools.iter().filter(|tool| !has(tool.program)).map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install -y {}", packages.join(" "));
    if !is_root() || !has("apt-get") {
        return Err(TaskError::new(format!("programs are missing. Run as root: {command}")));
    }
    println!("installing {}", packages.join(" "));
    apt(&["update", "-qq"])?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments).map_err(|failure| TaskError::new(format!("{failure}\nrun: {command}")))
}

fn apt(arguments: &[&str]) -> Result<(), TaskError> {
    let mut command = Command::new("apt-get");
    output(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive")).map(|_| ())
}

/// Creates the Python environment with the packages.
///
/// Returns the path of this Python.
pub(crate) fn ensure_python(wanted: &PythonPackages) -> Result<String, TaskError> {
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
