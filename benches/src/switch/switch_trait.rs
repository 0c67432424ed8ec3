//! What every switch under test can be asked.

use std::path::{Path, PathBuf};

use super::ShuntCtl;
use crate::cpu;

/// What a switch is started with: one bridge `br0` without rules, ports numbered from 1.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The ports.
    pub ports: Vec<PortSpec>,
    /// The CPU that forwards; `None`: wherever the system likes.
    pub cpu: Option<usize>,
    /// The caches in front of the wildcard cache.
    pub caches: FrontCaches,
    /// Shunt's eviction engine by name; `None`: as installed.
    pub engine: Option<&'static str>,
    /// Whether entries stay though nothing hits them, and there is room for many.
    pub keeps_entries: bool,
    /// Room for so many entries in a cache, where that is more than usual.
    pub entries_max: Option<u32>,
    /// Shunt's packet threads; `None`: one.
    pub threads: Option<u16>,
    /// Shunt's `eviction.repair`; `None`: as installed.
    pub repair: Option<&'static str>,
    /// A controller to connect to, as `tcp:IP:PORT`.
    pub controller: Option<&'static str>,
    /// Whether Shunt has its embedded NIC in front of the bridge.
    pub nic: bool,
    /// Whether Shunt keeps pieces in a chain of four stages in place of whole entries: so many in each.
    pub pieces_max: Option<u32>,
}

/// The caches in front of the wildcard cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontCaches {
    /// As installed: for Open vSwitch its exact-match cache (EMC), into which one new flow of a
    /// hundred goes.
    #[default]
    Usual,
    /// Open vSwitch's signature cache (SMC) alone; for Shunt, which has none, as installed.
    Signature,
    /// Both of Open vSwitch's; for Shunt an exact-match cache of 131,072 flows.
    Both,
    /// None.
    Nothing,
}

/// One port.
#[derive(Clone, Debug)]
pub enum PortSpec {
    /// Receives the packets of a capture again and again.
    Capture(PathBuf),
    /// Swallows what it is sent.
    Null,
    /// A network device.
    Device(String),
}

/// A switch that is running; it ends when dropped.
pub trait Switch: Sync {
    /// Its process.
    fn id(&self) -> u32;

    /// Packets that it has received so far.
    fn received(&self) -> u64;

    /// The thread that forwards.
    fn forwarding_thread(&self) -> u32;

    /// Entries in its caches.
    fn cached(&self) -> u64;

    /// Throws away the cached flows that stay when their rules go and come back.
    fn forget_flows(&self) {}

    /// What the threads that evict entries are called.
    fn evicting_threads(&self) -> &'static [&'static str];

    /// Nanoseconds that these threads have run so far.
    fn evicting_ns(&self) -> u64 {
        self.evicting_threads().iter().map(|name| cpu::threads_ns(self.id(), name)).sum()
    }

    /// Waits until every cached flow was judged by the rules as they are now, where replies do not say so.
    fn await_judgement(&self) {}

    /// Waits until a look at all cached flows has ended, where there is one again and again.
    fn await_look(&self) {}

    /// Allows as many cached flows as at the start, where it has lowered that by itself.
    fn allow_flows(&self) {}

    /// The folder of its sockets.
    fn folder(&self) -> &Path;

    /// What Shunt is asked by; nothing of another.
    fn shuntctl(&self) -> Option<&ShuntCtl> {
        None
    }

    /// Runs `ovs-ofctl` on its bridge; answers with what that wrote.
    ///
    /// # Panics
    ///
    /// When the switch refuses.
    fn ofctl(&self, options: &[&str], command: &str, arguments: &[&str]) -> String {
        let socket = format!("unix:{}", self.folder().join("br0.mgmt").display());
        let mut words = vec!["-O", "OpenFlow13"];
        words.extend(options);
        words.extend([command, &socket]);
        words.extend(arguments);
        super::contender::output("ovs-ofctl", &words)
    }
}
