//! The check of the package, in a fresh Debian root with systemd.
//!
//! The check does the work of an operator: install, add ports, send packets, upgrade, remove,
//! purge. At the end, the root has the same files as before.

use std::{fs, path::Path, process::Command};

use super::{booted_root::BootedRoot, dpdk};
use crate::shell::{TaskError, is_root, output, root, run, step};

/// Packages of the root, in addition to the essential packages.
const INCLUDED: &str = "adduser,init-system-helpers,iperf3,iproute2,iputils-ping,man-db,\
                        openvswitch-common,procps,systemd,systemd-sysv";
/// The Debian release of the root.
const SUITE: &str = "bookworm";

/// Maximum exposure of the unit in `systemd-analyze security`, in tenths.
const EXPOSURE_MAX: &str = "20";

/// Lists the files of a root, without files that the package manager writes.
const FILES: &str = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \
                     -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /mnt \
                     -o -path /var/lib/systemd -o -path /var/tmp \\) -prune -o -print | sort";

/// The paths of the packages that a check installs.
pub(super) struct Packages<'a> {
    pub(super) first: &'a Path,
    /// The package of the next revision.
    pub(super) next: &'a Path,
    /// The package of the daemon with DPDK ports, if it was built.
    pub(super) with_dpdk: Option<&'a Path>,
}

/// Checks a package, a number of upgrades,
/// and the package with DPDK ports.
pub(super) fn check(
    folder: &Path,
    packages: &Packages<'_>,
    upgrades: u32,
) -> Result<(), TaskError> {
    let &Packages { first: package, next, with_dpdk } = packages;
    let packages = [Some(package), with_dpdk].into_iter().flatten();
    step("lintian", || run(Command::new("lintian").args(["--fail-on", "error"]).args(packages)))?;
    step("unit", unit)?;
    let installed = folder.join("root");
    let booted = if is_root() {
        step("fresh root", || fresh_root(folder, &installed, with_dpdk.is_some()))
            .and_then(|()| step("systemd", || BootedRoot::start(&installed)))
    } else {
        Err(TaskError::new("not root"))
    };
    let booted = match booted {
        Ok(booted) => booted,
        Err(error) => {
            println!("SKIPPED: installation in a fresh root: {error}");
            return Ok(());
        }
    };
    let packages =
        [(Some(package), "first.deb"), (Some(next), "next.deb"), (with_dpdk, "dpdk.deb")];
    for (from, name) in packages {
        from.map(|from| fs::copy(from, installed.join(name))).transpose()?;
    }
    let before = booted.shell(FILES)?;
    step("install", || install(&booted))?;
    step("forward packets", || forward(&booted))?;
    step("watchdog", || watchdog(&booted))?;
    step("eviction engines", || engines(&booted))?;
    if with_dpdk.is_some() {
        step("DPDK ports", || dpdk_ports(&booted))?;
    }
    let name = if upgrades == 1 { "upgrade" } else { "upgrades" };
    step(name, || upgrade(&booted, upgrades))?;
    step("remove", || remove(&booted))?;
    step("purge", || purge(&booted, &before))
}

/// Checks the sandbox of the unit.
fn unit() -> Result<(), TaskError> {
    let mut tool = Command::new("systemd-analyze");
    tool.args(["security", "--offline=true", "--threshold", EXPOSURE_MAX]);
    let text = output(tool.arg(root().join("docs/shuntd.service")))?;
    text.lines().filter(|line| line.contains("exposure level")).for_each(|line| println!("{line}"));
    Ok(())
}

/// Creates a fresh root. The packages of the distribution are downloaded once.
fn fresh_root(folder: &Path, installed: &Path, has_dpdk: bool) -> Result<(), TaskError> {
    let base = folder.join(if has_dpdk { "base-dpdk" } else { "base" });
    if !base.join("etc/debian_version").exists() {
        let part = base.with_extension("part");
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        let libraries =
            if has_dpdk { ",librte-meta-net,librte-meta-bus,librte-meta-mempool" } else { "" };
        let include = format!("--include={INCLUDED}{libraries}");
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", &include, SUITE]).arg(&part);
        run(&mut make)?;
        fs::rename(&part, &base)?;
    }
    if installed.exists() {
        fs::remove_dir_all(installed)?;
    }
    run(Command::new("cp").arg("-a").arg(&base).arg(installed))
}

fn install(booted: &BootedRoot) -> Result<(), TaskError> {
    booted.shell("dpkg --install /first.deb")?;
    booted.repeat_until_ok("test $(systemctl is-active shuntd) = active")?;
    booted.shell("test $(systemctl is-enabled shuntd) = enabled")?;
    booted.shell("test $(ps -o user= -p $(cat /run/shunt/shuntd.pid)) = shunt")?;
    booted.shell("test -z \"$(shuntctl show | grep bridge)\"")?;
    booted.shell("shuntd --config /etc/shunt/shunt.toml --check")?;
    booted.shell("systemd-analyze verify /lib/systemd/system/shuntd.service")?;
    booted.shell("systemctl reload shuntd && test $(systemctl is-active shuntd) = active")?;
    print!("{}", booted.shell("shuntctl doctor")?);
    Ok(())
}

/// Pings a host on a veth pair from the TAP device of the root, through the switch.
const PING: &str = "ping -c 2 -i 0.2 -W 5 10.99.0.2 > /dev/null";

fn forward(booted: &BootedRoot) -> Result<(), TaskError> {
    booted.shell(
        "ip netns add host2
         ip link add port2 type veth peer name eth0 netns host2
         ip link set port2 up
         ip -n host2 address add 10.99.0.2/24 dev eth0
         ip -n host2 link set eth0 up
         shuntctl add-br br0
         shuntctl add-port br0 tap1 type=tap
         shuntctl add-port br0 port2
         ovs-ofctl -O OpenFlow13 add-flow unix:/run/shunt/br0.mgmt priority=0,actions=NORMAL
         ip address add 10.99.0.1/24 dev tap1
         ip link set tap1 up",
    )?;
    booted.repeat_until_ok(PING)?;
    print!("{}", booted.shell("shuntctl show && shuntctl doctor")?);
    Ok(())
}

/// Stops the daemon with a signal.
/// systemd misses the watchdog message, and restarts the daemon.
fn watchdog(booted: &BootedRoot) -> Result<(), TaskError> {
    // The state file is written soon after a change.
    booted.repeat_until_ok("grep --quiet NORMAL /var/lib/shunt/state.json")?;
    booted.shell("cat /run/shunt/shuntd.pid > /stopped && kill -STOP $(cat /stopped)")?;
    booted.repeat_until_ok("test $(cat /run/shunt/shuntd.pid) != $(cat /stopped)")?;
    booted.repeat_until_ok("test $(systemctl is-active shuntd) = active")?;
    // The state file has the bridge, the ports and the rule, and systemd has the queues of the TAP.
    booted.repeat_until_ok(PING)?;
    booted.shell("rm /stopped").map(|_| ())
}

/// Runs the engines in the sandbox of the unit.
fn engines(booted: &BootedRoot) -> Result<(), TaskError> {
    let ping = format!("ip address replace 10.99.0.1/24 dev tap1; ip link set tap1 up; {PING}");
    booted.shell("cp /etc/shunt/shunt.toml /packaged.toml")?;
    for engine in ["visits", "relational", "direct"] {
        let line = format!("engine = \"{engine}\"");
        booted.shell(&format!(
            "sed 's/^engine = .*/{line}/' /packaged.toml > /etc/shunt/shunt.toml"
        ))?;
        booted.shell(&format!("grep --quiet '^{line}' /etc/shunt/shunt.toml"))?;
        if booted.shell("shuntd --config /etc/shunt/shunt.toml --check").is_err() {
            println!(
                "SKIPPED: engine {engine}: these programs were built without the feature dbsp"
            );
            continue;
        }
        booted.shell("systemctl restart shuntd")?;
        booted.repeat_until_ok(&ping)?;
        booted.shell(&format!("shuntctl evict | grep --quiet 'engine {engine},'"))?;
        // When the rules change, the engine evicts entries.
        booted.shell(
            "ovs-ofctl -O OpenFlow13 add-flow unix:/run/shunt/br0.mgmt priority=9,icmp,actions=NORMAL",
        )?;
        booted.repeat_until_ok(&ping)?;
    }
    booted.shell("cp /packaged.toml /etc/shunt/shunt.toml; rm /packaged.toml")?;
    booted.shell("systemctl restart shuntd").map(|_| ())
}

/// Adds a virtual device of DPDK, and removes the package again.
fn dpdk_ports(booted: &BootedRoot) -> Result<(), TaskError> {
    let runs = |program: &str| {
        booted.repeat_until_ok("test $(systemctl is-active shuntd) = active")?;
        booted.repeat_until_ok(&format!(
            "test $(readlink /proc/$(cat /run/shunt/shuntd.pid)/exe) = /{program}"
        ))
    };
    let add = "shuntctl add-port br0 null0 type=dpdk devargs=net_null0";
    booted.shell(&format!("! {add} 2> /dev/null"))?;
    booted.shell("dpkg --install /dpdk.deb")?;
    runs(dpdk::PROGRAM)?;
    booted.repeat_until_ok(PING)?;
    booted.shell(&format!("{add} && shuntctl ports | grep --quiet null0"))?;
    booted.shell("shuntctl del-port null0")?;
    booted.shell("dpkg --purge shunt-dpdk")?;
    runs("usr/sbin/shuntd")?;
    booted.repeat_until_ok(PING).map(|_| ())
}

/// Installs the next package and the first one in turns.
///
/// Packets and a TCP connection pass meanwhile. No packet may be lost, and the connection must
/// last. The longest answer time of a ping is the longest pause of forwarding.
fn upgrade(booted: &BootedRoot, upgrades: u32) -> Result<(), TaskError> {
    booted.shell("echo '# a change of the operator' >> /etc/shunt/shunt.toml")?;
    booted.shell("cat /sys/class/net/tap1/ifindex > /index")?;
    let background = "> /dev/null 2>&1 & echo $! >";
    booted.shell(&format!("ip netns exec host2 iperf3 -s {background} /server"))?;
    booted.repeat_until_ok("ip netns exec host2 ss -Hltn | grep --quiet :5201")?;
    booted.shell(&format!("iperf3 -c 10.99.0.2 -b 20M -t 3600 {background} /client"))?;
    booted.shell("(ping -q -i 0.01 10.99.0.2 > /pings) > /dev/null 2>&1 &")?;
    for number in 0..upgrades {
        let package = if number % 2 == 0 { "/next.deb" } else { "/first.deb" };
        let id = booted.shell("cat /run/shunt/shuntd.pid")?;
        booted.shell(&format!("dpkg --force-confdef --force-downgrade --install {package}"))?;
        booted.repeat_until_ok("test $(systemctl is-active shuntd) = active")?;
        booted.shell(&format!("test $(cat /run/shunt/shuntd.pid) != {}", id.trim()))?;
        booted.repeat_until_ok(PING)?;
    }
    // The client ends by itself when its connection is lost.
    booted.shell("kill $(cat /client) && kill $(cat /server) && pkill -INT -x ping")?;
    booted.repeat_until_ok("grep --quiet '^rtt' /pings")?;
    print!("{upgrades} times, with a TCP stream: {}", booted.shell("tail -n 2 /pings")?);
    booted.shell("grep --quiet ' 0% packet loss' /pings || (cat /pings; false)")?;
    booted.shell("test $(cat /sys/class/net/tap1/ifindex) = $(cat /index)")?;
    booted.shell("rm /pings /client /server /index")?;
    booted.shell("grep --quiet 'a change of the operator' /etc/shunt/shunt.toml")?;
    booted.repeat_until_ok(PING).map(|_| ())
}

fn remove(booted: &BootedRoot) -> Result<(), TaskError> {
    booted.shell("dpkg --remove shunt")?;
    booted.shell("! pgrep shuntd && ! test -e /usr/sbin/shuntd && ! test -e /run/shunt")?;
    booted.shell("test -e /etc/shunt/shunt.toml && test -e /var/lib/shunt/state.json")?;
    booted.shell("! ip link show tap1 2> /dev/null").map(|_| ())
}

fn purge(booted: &BootedRoot, before: &str) -> Result<(), TaskError> {
    booted.shell("dpkg --purge shunt")?;
    booted.shell("test -z \"$(find /var/lib/systemd -name '*shunt*')\"")?;
    booted.shell("! getent passwd shunt && ! getent group shunt")?;
    booted.shell("ip link del port2; ip netns del host2")?;
    let after = booted.shell(FILES)?;
    let left: Vec<&str> =
        after.lines().filter(|file| !before.lines().any(|old| old == *file)).collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(TaskError::new(format!("the purge left files: {}", left.join(" "))))
}
