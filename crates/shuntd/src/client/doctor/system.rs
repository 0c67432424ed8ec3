//! The facts that `shuntctl doctor` reads from `/proc`, `/sys` and `/etc`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A host, with its file systems under a root directory.
pub(super) struct HostSystem {
    /// The root directory; another one than `/` in tests.
    root: PathBuf,
}

/// The rights and limits of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessRights {
    /// Effective capabilities, as a bit set.
    pub(super) capabilities: u64,
    /// Effective user id of the process.
    pub(super) user: u32,
    /// Hard limit of open files.
    pub(super) open_files: u64,
    /// Soft limit of locked memory in bytes; the daemon does not raise this limit.
    pub(super) locked_memory: u64,
}

/// A capability, with its number in `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capability {
    pub(super) name: &'static str,
    /// The bit of the capability in the sets of a process.
    number: u32,
}

pub(super) const NET_ADMIN: Capability = Capability { name: "CAP_NET_ADMIN", number: 12 };
pub(super) const NET_RAW: Capability = Capability { name: "CAP_NET_RAW", number: 13 };
pub(super) const IPC_LOCK: Capability = Capability { name: "CAP_IPC_LOCK", number: 14 };
pub(super) const BPF: Capability = Capability { name: "CAP_BPF", number: 39 };

/// The state of the systemd unit of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitState {
    /// systemd has no unit of `shuntd`.
    Absent,
    /// The unit is not started when the host boots.
    Disabled,
    /// The unit is started when the host boots, and runs now.
    Enabled,
    /// The unit is started when the host boots, but does not run now.
    Stopped,
}

/// Directories of systemd units.
const UNITS: [&str; 3] = ["etc/systemd/system", "lib/systemd/system", "usr/lib/systemd/system"];
/// Name of the unit of the daemon.
const UNIT: &str = "shuntd.service";
/// The link that exists if the unit is enabled.
const ENABLED_UNIT: &str = "etc/systemd/system/multi-user.target.wants/shuntd.service";

/// Parents of the control group of the unit; the group exists while the unit runs.
///
/// The first path is for cgroup version 2, and the second for version 1.
const GROUPS: [&str; 2] = ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"];

/// Column of soft limits in `/proc/PID/limits`, after the name of a limit.
const SOFT: usize = 0;
/// Column of hard limits.
const HARD: usize = 1;

impl ProcessRights {
    /// Returns whether the process has a capability.
    pub(super) const fn has(&self, capability: Capability) -> bool {
        self.capabilities >> capability.number & 1 == 1
    }

    /// Parses `/proc/PID/status` and `/proc/PID/limits`.
    fn parse(status: &str, limits: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // `Uid:` has the real, the effective, the saved and the file system user id.
        let user = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
        let capabilities = u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?;
        // The line of a limit has a name, a soft value, a hard value, and a unit.
        let limit = |name: &str, column| {
            let limit = limits.lines().find_map(|line| line.strip_prefix(name))?;
            match limit.split_whitespace().nth(column)? {
                "unlimited" => Some(u64::MAX),
                number => number.parse().ok(),
            }
        };
        let open_files = limit("Max open files", HARD)?;
        let locked_memory = limit("Max locked memory", SOFT)?;
        Some(Self { capabilities, user, open_files, locked_memory })
    }
}

impl HostSystem {
    pub(super) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the content of a file; the path is relative to the root directory.
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// Returns whether a file exists on the host.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Returns the path of a file of the host.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the rights of a process, given by its id or by `self`.
    pub(super) fn rights(&self, process: &str) -> Option<ProcessRights> {
        let file = |name| self.read(&format!("proc/{process}/{name}"));
        ProcessRights::parse(&file("status")?, &file("limits")?)
    }

    /// Returns the process id of the daemon that uses a run directory.
    pub(super) fn daemon_of(&self, run_dir: &Path) -> Option<String> {
        let id = fs::read_to_string(run_dir.join("shuntd.pid")).ok()?;
        let id = id.trim();
        self.exists(&format!("proc/{id}/status")).then(|| id.to_owned())
    }

    /// Returns whether the kernel has a socket protocol, such as `PACKET` or `XDP`.
    ///
    /// `None` if the kernel does not show its protocols to this process.
    pub(super) fn has_protocol(&self, name: &str) -> Option<bool> {
        let table = self.read("proc/net/protocols")?;
        Some(table.lines().any(|line| line.split_whitespace().next() == Some(name)))
    }

    /// Returns the number in a file of `/proc/sys`.
    pub(super) fn sysctl(&self, path: &str) -> Option<u64> {
        self.read(&format!("proc/sys/{path}"))?.trim().parse().ok()
    }

    /// Returns the kernel driver of a PCI device; empty without a driver.
    ///
    /// `None` if the device does not exist.
    pub(super) fn pci_driver(&self, address: &str) -> Option<String> {
        let folder = self.root.join("sys/bus/pci/devices").join(address);
        if !folder.exists() {
            return None;
        }
        let driver = fs::read_link(folder.join("driver")).unwrap_or_default();
        Some(
            driver.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        )
    }

    /// Returns the number of free huge pages.
    pub(super) fn free_huge_pages(&self) -> Option<u64> {
        let memory = self.read("proc/meminfo")?;
        let line = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:"))?;
        line.trim().parse().ok()
    }

    /// Returns whether the host has a network device.
    pub(super) fn has_device(&self, name: &str) -> bool {
        self.exists(&format!("sys/class/net/{name}"))
    }

    /// Returns the Linux bridge or bond that has a device as a member.
    pub(super) fn master(&self, device: &str) -> Option<String> {
        let link = fs::read_link(self.root.join(format!("sys/class/net/{device}/master"))).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns whether a program with the given name is running.
    pub(super) fn runs(&self, program: &str) -> bool {
        let processes = fs::read_dir(self.root.join("proc")).into_iter().flatten().flatten();
        processes
            .map(|process| process.path().join("comm"))
            .any(|comm| fs::read_to_string(comm).is_ok_and(|name| name.trim_end() == program))
    }

    /// Returns the state of the systemd unit.
    pub(super) fn unit(&self) -> UnitState {
        let is_installed = UNITS.iter().any(|folder| self.exists(&format!("{folder}/{UNIT}")));
        // A link to a unit has no valid target if the root is not `/`, so the link itself is
        // checked.
        let is_enabled = fs::symlink_metadata(self.root.join(ENABLED_UNIT)).is_ok();
        let runs = GROUPS.iter().any(|folder| self.exists(&format!("{folder}/{UNIT}")));
        // If systemd is not the init process, no unit runs.
        let has_systemd = self.exists("run/systemd/system");
        match (is_installed, is_enabled) {
            (false, _) => UnitState::Absent,
            (true, false) => UnitState::Disabled,
            (true, true) if has_systemd && !runs => UnitState::Stopped,
            (true, true) => UnitState::Enabled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_the_effective_capabilities() {
        let status = "Name:\tshuntd\nUid:\t1000\t998\t998\t998\nCapPrm:\tffffffffffffffff\n\
                      CapEff:\t0000008000002000\n";
        let limits = "Limit        Soft Limit  Hard Limit  Units\n\
                      Max open files            1024                 65536                files\n\
                      Max locked memory         8388608              unlimited            bytes\n";
        let rights = ProcessRights::parse(status, limits).unwrap();
        assert_eq!((rights.user, rights.open_files), (998, 65536));
        assert_eq!(rights.locked_memory, 8_388_608);
        let has = [NET_RAW, NET_ADMIN, IPC_LOCK, BPF].map(|own| rights.has(own));
        assert_eq!(has, [true, false, false, true]);
        assert_eq!(ProcessRights::parse("", limits), None);
    }
}
