//! The checks of `shuntctl doctor`.

use std::{fs::OpenOptions, io, path::Path};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
    unistd::{AccessFlags, access},
};
use serde_json::Value;
use shunt_datapath::port::is_held_by_open_vswitch;
use shunt_switch::{Config, ControllerEndpoint, config::PortType};

use super::{
    CheckState, HostCheck,
    dpdk::DpdkNeeds,
    system::{BPF, Capability, HostSystem, IPC_LOCK, NET_ADMIN, NET_RAW, ProcessRights, UnitState},
};

/// The requirements that follow from the ports of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortNeeds {
    /// True if a port is a network device by `AF_PACKET`.
    has_af_packet: bool,
    /// True if a port is a network device by `AF_XDP`.
    has_af_xdp: bool,
    /// True if every `af_xdp` port is open.
    is_af_xdp_open: bool,
    /// True if a port is a TAP device.
    has_tap: bool,
    /// The requirements of `dpdk` ports.
    dpdk: DpdkNeeds,
    /// Number of ports of the switch.
    pub(super) ports: u64,
    /// Number of packet threads.
    threads: u64,
    /// Names and devices of ports that use a network device of the host.
    devices: Vec<(String, String)>,
}

impl Default for PortNeeds {
    /// Returns the requirements of the usual port types, for a switch without ports.
    fn default() -> Self {
        Self {
            has_af_packet: true,
            has_af_xdp: false,
            is_af_xdp_open: false,
            has_tap: true,
            dpdk: DpdkNeeds::default(),
            ports: 0,
            threads: 1,
            devices: Vec::new(),
        }
    }
}

/// Least `net.core.rmem_max`, in bytes,
/// with which receive buffers are large enough.
///
/// A process with `CAP_NET_ADMIN` may exceed the limit.
const RMEM_MIN: u64 = 8 << 20;

/// Number of open files for each queue of a busy `af_packet` port.
///
/// The open files are a socket, its ring, and an epoll set of both.
const FILES_PER_QUEUE: u64 = 3;

/// Number of open files of a daemon without ports, with a reserve.
const FILES_OF_DAEMON: u64 = 256;

/// The file that permits AF_XDP ports to the systemd unit,
/// without the leading slash.
const AF_XDP_FILE: &str = "etc/systemd/system/shuntd.service.d/af-xdp.conf";

/// Commands that permit AF_XDP ports to the systemd unit.
const AF_XDP_UNIT: &str = "install -D -m 644 /usr/share/doc/shunt/examples/af-xdp.conf \
                           /etc/systemd/system/shuntd.service.d/af-xdp.conf\n\
                           systemctl daemon-reload && systemctl restart shuntd";

impl PortNeeds {
    /// Returns what the ports of a configuration need from the host.
    pub(super) fn of_config(config: &Config) -> Self {
        let ports = config.bridges.iter().flat_map(|bridge| &bridge.ports);
        let kinds = ports.clone().map(|port| port.kind.name());
        let devices = ports.filter(|port| port.kind.shares_device()).map(|port| {
            let device = if port.device.is_empty() { &port.name } else { &port.device };
            (port.name.clone(), device.clone())
        });
        let threads = config.threads.packet.into();
        let dpdk = DpdkNeeds::of_config(config);
        Self { threads, dpdk, devices: devices.collect(), ..Self::of_kinds(kinds) }
    }

    /// Returns what ports of some types need from the host.
    fn of_kinds<'a>(kinds: impl Iterator<Item = &'a str>) -> Self {
        let kinds: Vec<&str> = kinds.collect();
        if kinds.is_empty() {
            return Self::default();
        }
        Self {
            has_af_packet: kinds.contains(&PortType::AfPacket.name()),
            has_af_xdp: kinds.contains(&PortType::AfXdp.name()),
            has_tap: kinds.contains(&PortType::Tap.name()),
            dpdk: DpdkNeeds::of_kinds(&kinds),
            ports: kinds.len() as u64,
            ..Self::default()
        }
    }

    /// Checks the rights that a daemon started by this user would have.
    pub(super) fn checks_of_user(&self, system: &HostSystem) -> Vec<HostCheck> {
        let mut checks = Vec::new();
        match system.rights("self") {
            Some(rights) => checks.extend(self.checks_of_process(system, &rights)),
            None => checks.push(HostCheck::note("/proc", "not mounted, so rights are not checked")),
        }
        if self.has_af_packet {
            checks.extend(packet_socket());
        }
        if self.has_tap {
            checks.push(tun_of_user(&system.path("dev/net/tun")));
        }
        checks.extend(self.kernel(system));
        checks.extend(self.devices.iter().map(|(port, device)| check_device(system, port, device)));
        if self.devices.is_empty() && system.runs("ovs-vswitchd") {
            let detail = "ovs-vswitchd runs; a device can be in one switch at a time";
            checks.push(HostCheck::note("Open vSwitch", detail));
        }
        checks
    }

    /// Checks the rights and limits of a running process.
    fn checks_of_process(&self, system: &HostSystem, rights: &ProcessRights) -> Vec<HostCheck> {
        let mut checks = Vec::new();
        if self.has_af_packet || self.has_af_xdp {
            checks.push(capability(rights, NET_RAW, "af_packet and af_xdp ports"));
        }
        if self.has_tap || self.has_af_xdp {
            checks.push(capability(rights, NET_ADMIN, "tap and af_xdp ports"));
        }
        if self.has_af_packet && !rights.has(NET_ADMIN) {
            checks.extend(system.sysctl("net/core/rmem_max").map(receive_memory));
        }
        if self.has_af_xdp {
            checks.push(capability(rights, BPF, "af_xdp ports"));
            checks.push(locked_memory(rights, self.is_af_xdp_open, system.exists(AF_XDP_FILE)));
        }
        checks.push(self.open_files(rights));
        checks
    }

    /// Checks the features of the running kernel.
    fn kernel(&self, system: &HostSystem) -> Vec<HostCheck> {
        let mut checks = self.dpdk.checks(system);
        let protocol = |name, mend: &str| {
            let subject = format!("kernel protocol {name}");
            Some(match system.has_protocol(name)? {
                true => HostCheck::ok(subject, "present"),
                false => HostCheck::missing(subject, "not in /proc/net/protocols", mend),
            })
        };
        if self.has_af_packet || self.has_af_xdp {
            checks.extend(protocol("PACKET", "modprobe af_packet"));
        }
        if self.has_af_xdp {
            let mend = "boot a kernel with CONFIG_XDP_SOCKETS=y, or set type = \"af_packet\"";
            checks.extend(protocol("XDP", mend));
            if system.sysctl("net/core/bpf_jit_enable") == Some(0) {
                checks.push(HostCheck::missing(
                    "net.core.bpf_jit_enable",
                    "0, so the program of af_xdp ports is interpreted",
                    "sysctl -w net.core.bpf_jit_enable=1",
                ));
            }
            if system.free_huge_pages() == Some(0) {
                let detail = "none is free, so the frames of af_xdp ports are in small pages";
                checks.push(HostCheck {
                    mend: Some("sysctl -w vm.nr_hugepages=64".to_owned()),
                    ..HostCheck::note("huge pages", detail)
                });
            }
        }
        checks
    }

    /// Checks the limit of open files.
    ///
    /// Each packet thread opens its own queues of each port.
    fn open_files(&self, rights: &ProcessRights) -> HostCheck {
        let queues = self.ports.saturating_mul(self.threads);
        let needed = queues.saturating_mul(FILES_PER_QUEUE).saturating_add(FILES_OF_DAEMON);
        let have = rights.open_files;
        if have >= needed {
            return HostCheck::ok("open files", format!("the limit is {have}"));
        }
        let detail = format!("the hard limit is {have}, and these ports need {needed}");
        let mend = format!(
            "systemctl edit shuntd    # [Service] LimitNOFILE={needed}, or `ulimit -n {needed}`"
        );
        HostCheck::missing("open files", detail, mend)
    }
}

/// Checks a capability of the process.
fn capability(rights: &ProcessRights, capability: Capability, users: &str) -> HostCheck {
    let name = capability.name;
    if rights.has(capability) {
        return HostCheck::ok(name, format!("granted, for {users}"));
    }
    let detail = format!("user {} does not have it, and {users} need it", rights.user);
    let mend = if capability == BPF {
        AF_XDP_UNIT
    } else {
        "systemctl enable --now shuntd    # the unit grants it; or run shuntd as root"
    };
    HostCheck::missing(name, detail, mend)
}

/// Checks the limit of receive buffers of sockets.
fn receive_memory(limit: u64) -> HostCheck {
    let subject = "net.core.rmem_max";
    if limit >= RMEM_MIN {
        return HostCheck::ok(subject, format!("{limit} bytes"));
    }
    let detail = format!(
        "{limit} bytes; without CAP_NET_ADMIN an af_packet port takes 16 MiB for each packet thread"
    );
    let mend = Some(format!("sysctl -w net.core.rmem_max={RMEM_MIN}"));
    HostCheck { mend, ..HostCheck::note(subject, detail) }
}

/// Checks the limit of locked memory, which the frames of `af_xdp` ports need.
fn locked_memory(rights: &ProcessRights, is_open: bool, has_file: bool) -> HostCheck {
    if rights.has(IPC_LOCK) || rights.locked_memory == u64::MAX {
        return HostCheck::ok("locked memory", "not limited");
    }
    let limit = rights.locked_memory;
    if is_open {
        let detail = format!("the limit is {limit} bytes, and all af_xdp ports are open");
        return HostCheck::note("locked memory", detail);
    }
    if has_file {
        let detail = format!(
            "the limit is {limit} bytes although /{AF_XDP_FILE} exists: the host or its container \
             allows no more"
        );
        let mend = "systemctl daemon-reload && systemctl restart shuntd    # if the file is newer than \
                    the daemon; else raise the limit of the container";
        return HostCheck::missing("locked memory", detail, mend);
    }
    let detail = format!("the limit is {limit} bytes, and the frames of af_xdp ports need more");
    HostCheck::missing("locked memory", detail, AF_XDP_UNIT)
}

/// Tries to open a packet socket.
///
/// A user namespace or a seccomp filter may refuse the socket despite the capability.
fn packet_socket() -> Option<HostCheck> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let detail = match socket(AddressFamily::Packet, SockType::Raw, flags, None) {
        Ok(_) => return Some(HostCheck::ok("packet socket", "this user can open a packet socket")),
        Err(Errno::EPERM) => {
            "this user may not open a packet socket: it needs CAP_NET_RAW in the user namespace \
             that owns this network namespace"
        }
        Err(Errno::EAFNOSUPPORT) => {
            "the kernel has no packet sockets, or a filter of system calls forbids them"
        }
        Err(_) => return None,
    };
    let mend = "systemctl enable --now shuntd    # or run shuntd as root of the host";
    Some(HostCheck::missing("packet socket", detail, mend))
}

/// Checks that this user can open the TUN device file.
fn tun_of_user(path: &Path) -> HostCheck {
    let subject = "/dev/net/tun";
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => HostCheck::ok(subject, "this user can open it"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => HostCheck::missing(
            subject,
            "this user may not open this file, which tap ports need",
            "chmod 0666 /dev/net/tun",
        ),
        Err(_) => no_tun(),
    }
}

/// Returns the failed check of the TUN device file.
fn no_tun() -> HostCheck {
    HostCheck::missing("/dev/net/tun", "does not exist, and tap ports need it", "modprobe tun")
}

/// Checks that a device exists, and that no other program forwards its packets.
fn check_device(system: &HostSystem, port: &str, device: &str) -> HostCheck {
    let subject = format!("device {device} of port {port}");
    if !system.has_device(device) {
        let detail = "does not exist; the port stays down until it appears";
        return HostCheck::missing(subject, detail, "ip link show    # the devices of this host");
    }
    if system.master(device).as_deref() == Some("ovs-system") || is_held_by_open_vswitch(device) {
        let detail = "is a port of Open vSwitch, and can be in one switch at a time";
        return HostCheck::missing(subject, detail, format!("ovs-vsctl del-port {device}"));
    }
    match system.master(device) {
        Some(master) => {
            let mend = format!("ip link set {device} nomaster");
            HostCheck::missing(subject, format!("is a member of {master}"), mend)
        }
        None => HostCheck::ok(subject, "exists, and is free"),
    }
}

/// Checks that this user can create the run directory, or write to it.
pub(super) fn run_dir(folder: &Path) -> HostCheck {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    let subject = format!("run directory {}", folder.display());
    if access(existing, AccessFlags::W_OK | AccessFlags::X_OK).is_ok() {
        return HostCheck::ok(subject, "this user can write to it");
    }
    let detail = format!("this user may not write to {}", existing.display());
    HostCheck::missing(subject, detail, "systemctl enable --now shuntd    # or use --run-dir DIR")
}

/// Checks the systemd unit, if it is installed.
pub(super) fn service(system: &HostSystem) -> Option<HostCheck> {
    match system.unit() {
        UnitState::Absent => None,
        UnitState::Enabled => Some(HostCheck::ok("unit shuntd.service", "starts with the host")),
        UnitState::Stopped => Some(HostCheck::wrong(
            "unit shuntd.service",
            "does not run",
            "systemctl start shuntd    # `journalctl -u shuntd` explains a failure",
        )),
        UnitState::Disabled => Some(HostCheck::missing(
            "unit shuntd.service",
            "is installed, and does not start with the host",
            "systemctl enable --now shuntd",
        )),
    }
}

/// A running daemon that answers, with its status.
pub(super) struct RunningDaemon {
    /// Process id of the daemon.
    pub(super) process: String,
    /// Answer of the daemon to `shunt/show`.
    pub(super) bridges: Value,
    /// Answer of the daemon to `shunt/threads`.
    pub(super) threads: Value,
}

impl RunningDaemon {
    /// Checks a running daemon: its rights, ports and threads.
    pub(super) fn checks(&self, system: &HostSystem) -> Vec<HostCheck> {
        let rights = system.rights(&self.process);
        let owner = rights.map_or_else(String::new, |rights| format!(" of user {}", rights.user));
        let mut checks =
            vec![HostCheck::ok("daemon", format!("process {}{owner} answers", self.process))];
        let needs = self.needs();
        match rights {
            Some(rights) => checks.extend(needs.checks_of_process(system, &rights)),
            None => {
                let detail = "this user may not read the rights of the daemon";
                checks.push(HostCheck::note("rights", detail));
            }
        }
        if needs.has_tap && !system.exists("dev/net/tun") {
            checks.push(no_tun());
        }
        checks.extend(needs.kernel(system));
        checks.extend(list(&self.bridges).iter().filter_map(check_bridge));
        checks.extend(list(&self.bridges).iter().flat_map(check_listeners));
        checks.extend(self.ports().filter_map(check_port));
        checks.extend(list(&self.threads).iter().filter_map(check_thread));
        checks
    }

    /// Returns the ports that the daemon reports.
    fn ports(&self) -> impl Iterator<Item = &Value> {
        list(&self.bridges).iter().flat_map(|bridge| list(&bridge["ports"]))
    }

    /// Returns what the open ports of the daemon need from the host.
    fn needs(&self) -> PortNeeds {
        let kinds = self.ports().map(|port| word(&port["type"]));
        let is_packet = |thread: &&Value| word(&thread["name"]).starts_with("packet thread");
        let threads = list(&self.threads).iter().filter(is_packet).count() as u64;
        let is_af_xdp = |port: &&Value| word(&port["type"]) == PortType::AfXdp.name();
        let is_open = |port: &Value| {
            check_port(port).is_none_or(|problem| problem.state != CheckState::Missing)
        };
        let is_af_xdp_open = self.ports().filter(is_af_xdp).all(is_open);
        let needs = PortNeeds::of_kinds(kinds.filter(|kind| *kind != "unbound"));
        PortNeeds { threads, is_af_xdp_open, ..needs }
    }
}

/// Returns a problem if a bridge has no management socket.
///
/// The reason has the remedy, which is not always a command.
fn check_bridge(bridge: &Value) -> Option<HostCheck> {
    let problem = bridge["management_problem"].as_str()?;
    let name = format!("bridge {}", word(&bridge["name"]));
    Some(HostCheck { state: CheckState::Wrong, ..HostCheck::ok(name, problem) })
}

/// Returns the listeners of a bridge to which no controller can connect.
///
/// `show` has the same reasons.
fn check_listeners(bridge: &Value) -> Vec<HostCheck> {
    let name = format!("bridge {}", word(&bridge["name"]));
    let problem = |own: &Value| {
        let (target, state) = (word(&own["target"]), word(&own["state"]));
        let endpoint = target.parse::<ControllerEndpoint>();
        match endpoint {
            Ok(ControllerEndpoint::Listen(..)) if state == "waiting" => {
                Some(format!("{}; the switch tries again every second", word(&own["reason"])))
            }
            Ok(ControllerEndpoint::Listen(..)) => {
                Some(format!("{target}: {}", own["problem"].as_str()?))
            }
            Ok(ControllerEndpoint::Connect(..)) | Err(_) => None,
        }
    };
    let problems = list(&bridge["controllers"]).iter().filter_map(problem);
    let check =
        |detail: String| HostCheck { state: CheckState::Wrong, ..HostCheck::ok(&*name, detail) };
    problems.map(check).collect()
}

/// The link text of a port that a controller has set down, which is no problem.
const DOWN_BY_CONTROLLER: &str = "down: by a controller";

/// The end of the link text of a port, if an operator has set its device down.
///
/// The text names the command that sets the device up.
const SET_DOWN: &str = " is set down";

/// The text before the name of a missing device in the reason why a port is down.
const NO_DEVICE: &str = "there is no device ";

/// Returns a problem if a port is not open.
fn check_port(port: &Value) -> Option<HostCheck> {
    let link = word(&port["link"]);
    if ["up", "down", ""].contains(&link) {
        return None;
    }
    let port = word(&port["name"]);
    let name = format!("port {port}");
    if link == DOWN_BY_CONTROLLER || link.contains(SET_DOWN) {
        return Some(HostCheck::note(name, link));
    }
    if let Some((_, device)) = link.split_once(NO_DEVICE) {
        let mend = format!(
            "ip link show    # create the device {device}, or remove the port: shuntctl del-port {port}"
        );
        return Some(HostCheck::missing(name, format!("{NO_DEVICE}{device}"), mend));
    }
    let mend = "journalctl -u shuntd    # the log explains it";
    Some(HostCheck::missing(name, link, mend))
}

/// Returns a problem if a thread has ended.
fn check_thread(thread: &Value) -> Option<HostCheck> {
    let state = word(&thread["state"]);
    if state == "running" {
        return None;
    }
    Some(HostCheck::missing(word(&thread["name"]), state, "systemctl restart shuntd"))
}

/// Returns the elements of an array; no elements for another value.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a string; an empty one for another value.
fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
