//! The configuration of a switch: threads, caches, evictions, packets and bridges.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_datapath::{ThreadConfig, port::EalOptions};
use shunt_flow::extract::VlanLimit;

use crate::config::{BridgeOptions, CacheOptions, ForesightOptions};

/// The configuration of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Options of the packet threads.
    pub threads: ThreadOptions,
    /// The caches of each packet thread.
    pub caches: CacheOptions,
    /// Options of cache evictions.
    pub eviction: EvictionOptions,
    /// Options of forecasts of flows.
    pub foresight: ForesightOptions,
    /// Options of packet parsing.
    pub packets: PacketOptions,
    /// Options with which DPDK is initialised before the first `dpdk` port is opened.
    pub dpdk: EalOptions,
    /// Bridges, each with its ports and controllers.
    #[serde(rename = "bridge")]
    pub bridges: Vec<BridgeOptions>,
}

/// The options of the packet threads.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThreadOptions {
    /// Number of packet threads, at least 1.
    pub packet: u16,
    /// CPUs that the packet threads are bound to, in the order of threads; empty:
    /// any CPU.
    pub cpus: Vec<usize>,
    /// Maximum number of translations that one thread makes in one poll loop iteration.
    pub translations_per_iteration: usize,
    /// Longest sleep of an idle packet thread, in milliseconds; 0:
    /// the thread never sleeps.
    pub sleep_max_ms: u64,
    /// If true, receive queues move from busy packet threads to less busy ones.
    pub auto_lb: bool,
    /// Load of a packet thread, in percent, from which on its receive queues may move.
    pub auto_lb_load_threshold: u8,
    /// Least improvement of the variance of the loads, in percent.
    pub auto_lb_improvement_threshold: u8,
    /// Minimum time between two decisions, in minutes.
    pub auto_lb_interval_min: u16,
}

/// The settings for moving receive queues between threads (`pmd-auto-lb`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutoLbSettings {
    /// True if queues move without a request.
    pub(crate) is_on: bool,
    /// Load of a thread, in percent, from which on its queues may move.
    pub(crate) load_threshold: u8,
    /// Least improvement of the variance of the loads, in percent.
    pub(crate) improvement_threshold: u8,
    /// Minimum time between two decisions.
    pub(crate) interval: Duration,
}

/// The options of cache evictions after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvictionOptions {
    /// Engine that finds the stale entries.
    pub engine: EvictionEngine,
    /// If true, barrier replies do not wait for the eviction of stale entries.
    pub asynchronous: bool,
    /// Repair of evicted entries that still receive packets.
    pub repair: RepairMode,
    /// Maximum number of repairs per second and packet thread, if `repair` is `rate`.
    pub repair_rate: u32,
}

/// Repair of evicted cache entries that still receive packets.
///
/// [`shunt_datapath::Repair`] contains the rate; the configuration file has it in the key
/// `repair_rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairMode {
    /// No repair: the next packet of each entry misses and is translated.
    #[default]
    Off,
    /// The packet thread re-translates some evicted entries in each iteration.
    On,
    /// Like `on`, but at most `repair_rate` repairs per second.
    Rate,
}

/// The engine that finds the cache entries that a change made stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictionEngine {
    /// An index of the dependencies of entries.
    ///
    /// The cost of a change depends on the number of affected entries.
    #[default]
    Direct,
    /// Re-translates every entry: the cost depends on the number of cache entries.
    Iterative,
    /// The index of `direct` as a join in a dbsp circuit; needs the feature `dbsp`.
    Visits,
    /// A dbsp circuit of relational joins over the same dependencies.
    ///
    /// Needs the feature `dbsp`.
    Relational,
}

impl EvictionEngine {
    /// Returns the name of the engine in the configuration file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Iterative => "iterative",
            Self::Visits => "visits",
            Self::Relational => "relational",
        }
    }

    /// Returns whether this build contains the engine.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            Self::Direct | Self::Iterative => true,
            Self::Visits | Self::Relational => cfg!(feature = "dbsp"),
        }
    }
}

impl EvictionOptions {
    /// Returns the repair mode in the form that packet threads use.
    pub(crate) const fn repair(&self) -> shunt_datapath::Repair {
        match self.repair {
            RepairMode::Off => shunt_datapath::Repair::Off,
            RepairMode::On => shunt_datapath::Repair::On,
            RepairMode::Rate => shunt_datapath::Repair::Rate(self.repair_rate),
        }
    }
}

impl Default for EvictionOptions {
    fn default() -> Self {
        let (engine, repair) = (EvictionEngine::default(), RepairMode::default());
        Self { engine, asynchronous: false, repair, repair_rate: 10_000 }
    }
}

/// The options of packet parsing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacketOptions {
    /// Number of VLAN tags that are parsed, 1 or 2.
    ///
    /// The two bytes after the last parsed tag are the Ethernet type, also if they begin another
    /// tag.
    pub vlan_limit: u8,
}

impl Default for ThreadOptions {
    fn default() -> Self {
        let ThreadConfig { translations_per_iteration, sleep_max, .. } = ThreadConfig::default();
        let sleep_max_ms = u64::try_from(sleep_max.as_millis()).unwrap_or(SLEEP_MS_MAX);
        Self {
            packet: 1,
            cpus: Vec::new(),
            translations_per_iteration,
            sleep_max_ms,
            auto_lb: false,
            auto_lb_load_threshold: 95,
            auto_lb_improvement_threshold: 25,
            auto_lb_interval_min: 1,
        }
    }
}

impl ThreadOptions {
    /// Returns the longest sleep of an idle packet thread.
    pub(crate) const fn sleep_max(&self) -> Duration {
        Duration::from_millis(self.sleep_max_ms)
    }

    /// Returns the settings for moving receive queues between packet threads.
    pub(crate) fn auto_lb(&self) -> AutoLbSettings {
        AutoLbSettings {
            is_on: self.auto_lb,
            load_threshold: self.auto_lb_load_threshold,
            improvement_threshold: self.auto_lb_improvement_threshold,
            interval: Duration::from_secs(60 * u64::from(self.auto_lb_interval_min)),
        }
    }
}

impl Default for PacketOptions {
    fn default() -> Self {
        let vlan_limit = match VlanLimit::default() {
            VlanLimit::One => 1,
            VlanLimit::Two => 2,
        };
        Self { vlan_limit }
    }
}

/// Largest value of `sleep_max_ms`.
pub(super) const SLEEP_MS_MAX: u64 = 10_000;

/// Largest value of `auto_lb_interval_min`, as in Open vSwitch.
pub(super) const AUTO_LB_INTERVAL_MAX: u16 = 20_000;

/// Largest number of a CPU; a CPU set of the kernel has 1024 CPUs.
pub(super) const CPU_MAX: usize = 1023;

/// Maximum number of packet threads.
pub const THREADS_MAX: u16 = 64;
