//! The configuration of the caches: exact-match, megaflow, Gigaflow and the NIC that it offloads to.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_datapath::cache::Wildcard;
use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config as ChainConfig, Fallback},
    ltm,
    partition::PolicyName,
};

/// The caches of each packet thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caches {
    /// What knows packets by the bits that decided.
    pub kind: CacheKind,
    /// Entries of the exact-match cache, a power of two; 0 switches it off.
    pub exact_entries: usize,
    /// One of how many packets that miss the exact-match cache is put into it.
    pub exact_insert_one_in: u32,
    /// Entries of the megaflow cache, at least 1; every entry of the exact-match cache names one of
    /// them.
    pub megaflow_entries: usize,
    /// Milliseconds without a hit after which an entry goes.
    pub idle_ms: u64,
    /// One of how many hits is translated anew, to compare the two; 0: none.
    pub verify_one_in: u32,
    /// The chain of stages, where that is the kind.
    pub gigaflow: Gigaflow,
}

/// What knows packets by the bits that decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// One entry for the whole way of a packet through the tables.
    #[default]
    Megaflow,
    /// Entries for pieces of ways, in a chain of stages, which ways share.
    Gigaflow,
}

/// A chain of stages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gigaflow {
    /// Its stages, 1 to 16.
    pub stages: u8,
    /// Entries of each stage, at least 1.
    pub stage_entries: usize,
    /// Where ways are cut.
    pub policy: Policy,
    /// Which entry of a full stage makes room.
    pub eviction: ChainEviction,
    /// One packet of how many is drawn for the duel by which pieces give way to whole ways where these
    /// hit more; 0: there is none.
    pub fallback_one_in: u32,
    /// Bits of a tag: how many states ways can be cut in at a time.
    pub tag_bits: u8,
    /// The NIC in front of the packet threads, which is filled with pieces of its own.
    pub target: Target,
}

/// A NIC in front of a bridge: it forwards what it has rules for, and hands the rest to the switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// What it is. A table that does not say it is of an embedded NIC.
    #[serde(default = "OffloadKind::of_a_table")]
    pub kind: OffloadKind,
    /// Where it speaks P4Runtime: an address and a port; the embedded NIC takes any port for 0.
    pub address: String,
    /// Its number among the devices of its server.
    pub device_id: u64,
    /// The bridge whose ports it has; empty: the first of the configuration.
    pub bridge: String,
    /// The numbers of the ports of the bridge that it has; empty: all up to 65279.
    pub ports: Vec<u32>,
    /// Its stages, 1 to 16.
    pub stages: u8,
    /// Entries of each stage, at least 1.
    pub stage_entries: u32,
    /// Different masks that a stage of the embedded NIC holds; 0: as many as come.
    pub masks: usize,
    /// Bits that an entry of the embedded NIC matches at most; 0: all that there are.
    pub key_bits: u32,
    /// Microseconds that the embedded NIC takes for each update.
    pub update_us: u64,
    /// Milliseconds within which a packet that is in the NIC leaves it: so long a tag rests before it names
    /// another state.
    pub drain_ms: u64,
    /// What happens while nobody knows what it forwards by.
    pub stale: StalePolicy,
}

/// What stands in front of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadKind {
    /// Nothing.
    #[default]
    None,
    /// A NIC in software, in this process, by which the switch opens its ports.
    Embedded,
    /// A NIC elsewhere, whose representors are the ports of the bridge.
    P4runtime,
}

impl OffloadKind {
    /// What it is where there is a table of it that does not say.
    const fn of_a_table() -> Self {
        Self::Embedded
    }
}

/// What happens while a target may forward by rules that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StalePolicy {
    /// It is told, in the log and in every status.
    #[default]
    Report,
    /// The ports of the bridge are closed besides.
    PortsDown,
}

/// Where ways are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Where fields do not meet; complete partitions only.
    Disjoint,
    /// Where fields do not meet, with the stages chosen in the same step.
    #[default]
    Joint,
    /// Where traffic has shown that pieces are shared.
    Profiled,
    /// At the first place that fits.
    FirstFit,
    /// Anywhere.
    Random,
    /// At every table.
    OneToOne,
    /// Nowhere.
    Megaflow,
}

/// Which entry of a full stage makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChainEviction {
    /// None: what does not fit is not cached.
    Never,
    /// One that was not used for long.
    LeastRecent,
    /// One that was not used since it was made, then one that was not used for long.
    #[default]
    SecondUse,
    /// Of some that were not used for long, the one that the fewest ways share.
    LeastShared,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            exact_entries: 32_768,
            exact_insert_one_in: 1,
            megaflow_entries: 65_536,
            idle_ms: 10_000,
            verify_one_in: 0,
            kind: CacheKind::default(),
            gigaflow: Gigaflow::default(),
        }
    }
}

impl Default for Gigaflow {
    fn default() -> Self {
        Self {
            stages: 4,
            stage_entries: 8192,
            policy: Policy::default(),
            eviction: ChainEviction::default(),
            fallback_one_in: 32,
            tag_bits: 16,
            target: Target::default(),
        }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self {
            kind: OffloadKind::default(),
            address: "127.0.0.1:0".to_owned(),
            device_id: 1,
            bridge: String::new(),
            ports: Vec::new(),
            stages: 4,
            stage_entries: 8192,
            masks: 0,
            key_bits: 0,
            update_us: 0,
            drain_ms: 10,
            stale: StalePolicy::default(),
        }
    }
}

impl Target {
    /// Whether another is the same NIC, set up in the same way.
    pub(crate) fn is_driven_like(&self, other: &Self) -> bool {
        let (stale, drain_ms) = (self.stale, self.drain_ms);
        let is_equal = *self == Self { stale, drain_ms, ..other.clone() };
        is_equal || self.kind == other.kind && self.is_none()
    }

    /// Time within which a packet that is in the NIC leaves it.
    pub(crate) const fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        self.kind == OffloadKind::None
    }
}

impl Policy {
    /// The policy of this name.
    #[must_use]
    pub const fn name(self) -> PolicyName {
        match self {
            Self::Disjoint => PolicyName::Disjoint,
            Self::Joint => PolicyName::Joint,
            Self::Profiled => PolicyName::Profiled,
            Self::FirstFit => PolicyName::FirstFit,
            Self::Random => PolicyName::Random,
            Self::OneToOne => PolicyName::OneToOne,
            Self::Megaflow => PolicyName::Megaflow,
        }
    }
}

impl ChainEviction {
    /// The contract's word for it.
    pub(crate) const fn contract(self) -> ltm::Eviction {
        match self {
            Self::Never => ltm::Eviction::Never,
            Self::LeastRecent => ltm::Eviction::LeastRecent,
            Self::SecondUse => ltm::Eviction::SecondUse,
            Self::LeastShared => ltm::Eviction::LeastShared,
        }
    }
}

impl Gigaflow {
    /// The chain as packet threads know it.
    pub(crate) const fn chain(&self) -> ChainConfig {
        ChainConfig {
            capacity: Capacity { stages_count: self.stages, stage_entries_max: self.stage_entries },
            policy: self.policy.name(),
            fallback: match self.fallback_one_in {
                0 => Fallback::Off,
                one_in => Fallback::OneIn(one_in),
            },
            eviction: self.eviction.contract(),
            tag_bits: self.tag_bits,
            // Each thread has its own.
            seed: 0,
        }
    }
}

impl Caches {
    /// What packet threads are told of it.
    pub(crate) const fn wildcard(&self) -> Wildcard {
        match self.kind {
            CacheKind::Megaflow => Wildcard::Megaflow,
            CacheKind::Gigaflow => Wildcard::Gigaflow(self.gigaflow.chain()),
        }
    }

    /// Time without a hit after which an entry goes.
    #[must_use]
    pub const fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}
