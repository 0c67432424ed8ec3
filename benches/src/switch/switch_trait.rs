//! The interface of every switch under test.

use std::path::{Path, PathBuf};

use super::ShuntCtl;
use crate::cpu;

/// The setup of a switch.
///
/// The switch has one bridge `br0` without rules, and ports with numbers from 1.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The ports of the bridge, with numbers from 1.
    pub ports: Vec<PortSpec>,
    /// The CPU that forwards; `None` lets the system choose.
    pub cpu: Option<usize>,
    /// The caches in front of the wildcard cache.
    pub caches: FrontCaches,
    /// Name of Shunt's eviction engine; `None` for the default.
    pub engine: Option<&'static str>,
    /// True if entries remain without hits, in a large cache.
    pub keeps_entries: bool,
    /// Maximum entries of a cache, if this number is above the default.
    pub entries_max: Option<u32>,
    /// Number of Shunt's packet threads; `None` for one.
    pub threads: Option<u16>,
    /// Shunt's `eviction.repair`; `None` for the default.
    pub repair: Option<&'static str>,
    /// A controller that the switch connects to, as `tcp:IP:PORT`.
    pub controller: Option<&'static str>,
    /// True if Shunt has the embedded NIC in front of the bridge.
    pub nic: bool,
    /// Entries of each of Shunt's four LTM stages; `None` for a megaflow cache.
    pub ltm_entries_max: Option<u32>,
    /// Shunt's predictors of flows; `None` for the default predictors.
    pub predictors: Option<&'static [&'static str]>,
    /// True if Shunt has space for forecasts of all flows.
    pub forecasts: bool,
    /// Shunt's `caches.idle_ms`; `None` for the default.
    pub idle_ms: Option<u32>,
}

/// The caches in front of the wildcard cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontCaches {
    /// The default caches of the switch.
    ///
    /// The default of Open vSwitch is the exact-match cache (EMC), which takes one new flow in a
    /// hundred.
    #[default]
    Usual,
    /// The signature cache only.
    Signature,
    /// Both caches of Open vSwitch, or an exact-match cache of 131,072 flows of Shunt.
    Both,
    /// No cache.
    Nothing,
    /// No entries at all in Shunt (computational flows):
    /// the tables are looked up for each packet.
    Tables,
}

/// The kind of one port of the bridge.
#[derive(Clone, Debug)]
pub enum PortSpec {
    /// Replays a capture in a loop.
    Capture(PathBuf),
    /// Discards all packets that are sent to the port.
    Null,
    /// A network device.
    Device(String),
    /// A network device, through AF_XDP sockets.
    Xdp(String),
    /// AF_XDP ports that a thread of Shunt polls without end, as Open vSwitch does.
    PolledXdp(String),
    /// A TAP device that the switch creates.
    Tap(String),
    /// The card of a guest that listens at a socket (vhost-user).
    Guest(PathBuf),
    /// A memory interface at the socket of its server (memif).
    Memif {
        /// Path of the socket of the memif server.
        socket: PathBuf,
        /// The number of the interface.
        id: u32,
    },
    /// A virtual device of DPDK.
    Dpdk {
        /// The driver, such as `net_null`.
        driver: &'static str,
        /// The arguments of the driver.
        arguments: String,
    },
}

impl PortSpec {
    /// Returns whether Shunt needs DPDK for the port.
    pub(super) const fn is_of_dpdk(&self) -> bool {
        matches!(self, Self::Dpdk { .. })
    }

    /// Returns whether the port is a device with AF_XDP sockets.
    pub(super) const fn is_xdp(&self) -> bool {
        matches!(self, Self::Xdp(_) | Self::PolledXdp(_))
    }
}

/// A running switch, which ends on drop.
pub trait Switch: Sync {
    /// Returns the process id of the daemon.
    fn id(&self) -> u32;

    /// Returns the number of packets received so far.
    fn received(&self) -> u64;

    /// Returns the id of the forwarding thread.
    fn forwarding_thread(&self) -> u32;

    /// Returns the number of entries in the caches.
    fn cached(&self) -> u64;

    /// Adds a port with a TAP device of this name.
    ///
    /// # Panics
    ///
    /// If the switch refuses.
    fn add_tap(&self, name: &str);

    /// Deletes a port.
    ///
    /// # Panics
    ///
    /// If the switch refuses.
    fn remove_port(&self, name: &str);

    /// Flushes cached flows that survive the removal and return of their rules.
    fn forget_flows(&self) {}

    /// Returns the names of the threads that evict entries.
    fn evicting_threads(&self) -> &'static [&'static str];

    /// Returns the nanoseconds that the evicting threads have run so far.
    fn evicting_ns(&self) -> u64 {
        self.evicting_threads().iter().map(|name| cpu::threads_ns(self.id(), name)).sum()
    }

    /// Waits until every cached flow is revalidated, if replies do not guarantee this.
    fn await_revalidation(&self) {}

    /// Waits until a revalidation round has ended, if the switch has periodic rounds.
    fn await_revalidation_round(&self) {}

    /// Restores the initial flow limit if the switch has lowered it.
    fn allow_flows(&self) {}

    /// Returns the folder of the sockets of the switch.
    fn folder(&self) -> &Path;

    /// Returns the client of Shunt; `None` for other switches.
    fn shuntctl(&self) -> Option<&ShuntCtl> {
        None
    }

    /// Runs `ovs-ofctl` on the bridge of the switch; returns the output.
    ///
    /// # Panics
    ///
    /// If the switch refuses the command.
    fn ofctl(&self, options: &[&str], command: &str, arguments: &[&str]) -> String {
        let socket = format!("unix:{}", self.folder().join("br0.mgmt").display());
        let mut words = vec!["-O", "OpenFlow13"];
        words.extend(options);
        words.extend([command, &socket]);
        words.extend(arguments);
        super::contender::output("ovs-ofctl", &words)
    }
}
