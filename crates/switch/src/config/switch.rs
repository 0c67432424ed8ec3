//! The configuration of a switch: threads, caches, evictions, packets and bridges.
//!
//! All types are plain values. The daemon reads them from TOML; a program that embeds the switch builds them itself.

use serde::{Deserialize, Serialize};

use crate::config::{Bridge, Caches};

/// A whole switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Packet threads.
    pub threads: Threads,
    /// The caches of each packet thread.
    pub caches: Caches,
    /// How entries are found that a change made stale.
    pub eviction: Eviction,
    /// How packets are read.
    pub packets: Packets,
    /// Bridges, each with its ports and controllers.
    #[serde(rename = "bridge")]
    pub bridges: Vec<Bridge>,
}

/// Packet threads.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Threads {
    /// Number of packet threads, at least 1.
    pub packet: u16,
    /// CPUs to pin packet threads to, in their order; empty: they run where the system likes.
    pub cpus: Vec<usize>,
    /// Translations that one thread makes in one turn at most.
    pub translations_per_iteration: usize,
}

/// How cache entries are found that a change made stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Eviction {
    /// What finds them.
    pub engine: Engine,
    /// Whether a barrier is answered before packet threads have dropped them.
    pub asynchronous: bool,
    /// Whether those that packets come to are made anew.
    pub repair: Repair,
    /// How many of them in a second at most, for each packet thread, where that is by rate.
    pub repair_rate: u32,
}

/// Whether cache entries that a change made stale are made anew, where packets come to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// The next packet of each does it.
    #[default]
    Off,
    /// Their packet thread does it, a few a turn.
    On,
    /// The same, but so many a second at most.
    Rate,
}

/// What finds cache entries that a change made stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// An index of what entries depend on: costs what the change touches.
    #[default]
    Direct,
    /// Every entry is translated anew: costs what is cached, whatever changed.
    Iterative,
    /// The same index, as the join of a circuit of dbsp; only with the feature `dbsp`.
    Visits,
    /// A circuit of dbsp's own joins over the same relation; only with the feature `dbsp`.
    Relational,
}

impl Engine {
    /// The name, as the configuration spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Iterative => "iterative",
            Self::Visits => "visits",
            Self::Relational => "relational",
        }
    }

    /// Whether this build has it.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            Self::Direct | Self::Iterative => true,
            Self::Visits | Self::Relational => cfg!(feature = "dbsp"),
        }
    }
}

impl Eviction {
    /// What packet threads are told of repair.
    pub(crate) const fn repair(&self) -> shunt_datapath::Repair {
        match self.repair {
            Repair::Off => shunt_datapath::Repair::Off,
            Repair::On => shunt_datapath::Repair::On,
            Repair::Rate => shunt_datapath::Repair::Rate(self.repair_rate),
        }
    }
}

impl Default for Eviction {
    fn default() -> Self {
        let (engine, repair) = (Engine::default(), Repair::default());
        Self { engine, asynchronous: false, repair, repair_rate: 10_000 }
    }
}

/// How packets are read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Packets {
    /// VLAN tags that are parsed, 1 or 2; what follows the last is the Ethernet type.
    pub vlan_limit: u8,
}

impl Default for Threads {
    fn default() -> Self {
        Self { packet: 1, cpus: Vec::new(), translations_per_iteration: 64 }
    }
}

impl Default for Packets {
    fn default() -> Self {
        Self { vlan_limit: 1 }
    }
}

/// Most packet threads.
pub const THREADS_MAX: u16 = 64;
