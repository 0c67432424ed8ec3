//! The configuration of the caches: exact-match, signature, megaflow and Gigaflow, and of the NIC.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use shunt_datapath::{
    ThreadConfig,
    cache::{FlowsConfig, MegaflowConfig, StartIndexKind, Wildcard},
    offload::OffloadConfig,
};
use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config as ChainConfig, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_p4runtime::program::Program;
use shunt_pipeline::BridgeId;

/// The options of the caches of each packet thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheOptions {
    /// Type of the wildcard cache.
    pub kind: CacheKind,
    /// Lookup method of the megaflow cache.
    pub index: MegaflowLookup,
    /// Kind of the learned indexes over megaflows and over the rules of tables.
    pub learned_index: LearnedIndexKind,
    /// Number of entries in the exact-match cache, a power of two.
    ///
    /// 0 disables the cache.
    pub exact_entries: usize,
    /// Insertion rate: of N packets that miss the exact-match cache,
    /// one gets an entry in it.
    pub exact_insert_one_in: u32,
    /// Number of entries in the signature cache, a power of two.
    ///
    /// 0 disables the cache. The signature cache speeds up lookups of the megaflow cache.
    pub signature_entries: usize,
    /// Number of entries in the megaflow cache, at least 1.
    ///
    /// Every entry of the exact-match and the signature cache refers to a megaflow.
    pub megaflow_entries: usize,
    /// Milliseconds without a hit after which an entry expires.
    pub idle_ms: u64,
    /// Verification rate: one of N hits is also translated and compared; 0: none.
    pub verify_one_in: u32,
    /// Options of the Gigaflow cache, used if `kind` is `gigaflow`.
    pub gigaflow: GigaflowOptions,
}

/// The type of the wildcard cache.
///
/// [`Wildcard`] contains the options of a Gigaflow cache; the configuration file has them in a
/// separate section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// One entry for each complete traversal (megaflow).
    #[default]
    Megaflow,
    /// One LTM entry for each sub-traversal, in a chain of stages.
    ///
    /// Different traversals share LTM entries.
    Gigaflow,
    /// No cache: the tables decide each packet (computational flows).
    Flows,
}

/// The lookup method of the megaflow cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MegaflowLookup {
    /// A learned index if there are 16 masks or more, tuple space search otherwise.
    #[default]
    Adaptive,
    /// A learned index over the fields, beside tuple space search.
    Learned,
    /// Tuple space search: one hash table for each mask.
    TupleSpace,
}

/// The kind of a learned index: the search for the bucket of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnedIndexKind {
    /// A search tree over the buckets.
    #[default]
    Tree,
    /// Straight lines, each of which predicts the position of a value.
    Segments,
    /// RQ-RMI, the neural nets of the papers.
    Rqrmi,
}

/// The options of a Gigaflow cache.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GigaflowOptions {
    /// Number of stages, 1 to 16.
    pub stages: u8,
    /// Number of LTM entries in each stage, at least 1.
    pub stage_entries: usize,
    /// Policy that partitions traversals.
    pub policy: PolicyName,
    /// Policy that evicts an entry of a full stage.
    pub eviction: Eviction,
    /// Sampling rate of set duelling.
    ///
    /// One of N packets is sampled to compare sub-traversals with complete traversals. Traversals
    /// are cached whole where that gives more hits. 0 disables it.
    pub fallback_one_in: u32,
    /// Number of bits in a tag, which limits the number of different tags.
    pub tag_bits: u8,
    /// The NIC in front of the packet threads, which holds its own LTM entries.
    pub offload: OffloadOptions,
}

/// The options of a NIC in front of the packet threads.
///
/// The NIC forwards packets that hit its entries, and passes all other packets to the switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OffloadOptions {
    /// Type of the NIC. A section `offload` without this key selects the embedded NIC.
    #[serde(default = "OffloadKind::of_a_table")]
    pub kind: OffloadKind,
    /// Address and port of the P4Runtime server.
    ///
    /// With port 0, the embedded NIC chooses a free port.
    pub address: String,
    /// Device id at the P4Runtime server.
    pub device_id: u64,
    /// File with the device configuration of an external NIC; empty:
    /// the built-in JSON for bmv2.
    pub device_config: PathBuf,
    /// Name of the bridge that the NIC serves.
    ///
    /// Empty: the first bridge of the configuration.
    pub bridge: String,
    /// Bridge port numbers of the ports of the NIC; empty: all ports up to 65279.
    pub ports: Vec<u32>,
    /// Number of stages of the NIC, 1 to 16.
    pub stages: u8,
    /// Number of entries in each stage of the NIC, at least 1.
    pub stage_entries: u32,
    /// Maximum number of different masks in a stage of the embedded NIC; 0: no limit.
    pub masks: usize,
    /// Maximum number of bits that an entry of the embedded NIC may match; 0: no limit.
    pub key_bits: u32,
    /// Microseconds that the embedded NIC takes for each update.
    pub update_us: u64,
    /// Maximum time in milliseconds that a packet stays in the NIC.
    ///
    /// The switch reuses a released tag only after this time.
    pub drain_ms: u64,
    /// Behaviour while the NIC may still forward by removed rules.
    pub stale: StalePolicy,
}

/// The type of the NIC in front of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadKind {
    /// The switch has no NIC.
    #[default]
    None,
    /// An embedded NIC: software in this process.
    /// The switch opens its ports through this NIC.
    Embedded,
    /// An external NIC, controlled over P4Runtime;
    /// its representors are ports of the bridge.
    P4runtime,
}

impl MegaflowLookup {
    /// Returns the least number of masks for a learned index of the megaflow cache.
    const fn masks_min(self) -> usize {
        match self {
            Self::Adaptive => MegaflowConfig::DEFAULT.learned_masks_min,
            Self::Learned => 1,
            Self::TupleSpace => usize::MAX,
        }
    }

    /// Returns the least number of rules with which a table has a learned index.
    const fn rules_min(self) -> usize {
        match self {
            Self::Adaptive => FlowsConfig::DEFAULT.learned_rules_min,
            Self::Learned => 1,
            Self::TupleSpace => usize::MAX,
        }
    }
}

impl LearnedIndexKind {
    /// Returns the kind in the form that packet threads use.
    const fn start_index(self) -> StartIndexKind {
        match self {
            Self::Tree => StartIndexKind::Tree,
            Self::Segments => StartIndexKind::Segments,
            Self::Rqrmi => StartIndexKind::Rqrmi,
        }
    }
}

impl OffloadKind {
    /// Returns the NIC type of a configuration section without the key `kind`.
    const fn of_a_table() -> Self {
        Self::Embedded
    }
}

/// Behaviour while the NIC may still forward by removed rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StalePolicy {
    /// Reports in the log and in every status that the NIC is stale.
    #[default]
    Report,
    /// Reports that the NIC is stale, and closes the ports of the bridge.
    PortsDown,
}

impl Default for CacheOptions {
    fn default() -> Self {
        let ThreadConfig { caches, max_idle, verify_one_in, .. } = ThreadConfig::default();
        Self {
            exact_entries: caches.exact.lines,
            exact_insert_one_in: caches.exact.insert_inverse,
            signature_entries: MegaflowConfig::DEFAULT.signatures,
            megaflow_entries: caches.entries_max,
            idle_ms: milliseconds(max_idle),
            verify_one_in,
            kind: CacheKind::default(),
            index: MegaflowLookup::default(),
            learned_index: LearnedIndexKind::default(),
            gigaflow: GigaflowOptions::default(),
        }
    }
}

impl Default for GigaflowOptions {
    fn default() -> Self {
        Self {
            stages: 4,
            stage_entries: 8192,
            policy: PolicyName::default(),
            eviction: Eviction::default(),
            fallback_one_in: 32,
            tag_bits: 16,
            offload: OffloadOptions::default(),
        }
    }
}

impl Default for OffloadOptions {
    fn default() -> Self {
        let program = Program::default();
        Self {
            kind: OffloadKind::default(),
            address: "127.0.0.1:0".to_owned(),
            device_id: 1,
            device_config: PathBuf::new(),
            bridge: String::new(),
            ports: Vec::new(),
            stages: program.stages(),
            stage_entries: program.size(),
            masks: 0,
            key_bits: 0,
            update_us: 0,
            drain_ms: milliseconds(OffloadConfig::new(BridgeId::default()).drain),
            stale: StalePolicy::default(),
        }
    }
}

/// Returns a time in milliseconds.
fn milliseconds(time: Duration) -> u64 {
    // 64 bits of milliseconds last for 584 million years.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl OffloadOptions {
    /// Returns whether `other` needs the same NIC with the same settings.
    pub(crate) fn needs_same_device(&self, other: &Self) -> bool {
        let (stale, drain_ms) = (self.stale, self.drain_ms);
        let is_equal = *self == Self { stale, drain_ms, ..other.clone() };
        is_equal || self.kind == other.kind && self.is_none()
    }

    /// Returns the maximum time that a packet stays in the NIC.
    pub(crate) const fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    /// Returns whether no NIC is configured.
    pub(crate) fn is_none(&self) -> bool {
        self.kind == OffloadKind::None
    }
}

impl GigaflowOptions {
    /// Returns the options of the Gigaflow cache in the form that packet threads use.
    pub(crate) const fn chain(&self) -> ChainConfig {
        ChainConfig {
            capacity: Capacity { stages_count: self.stages, stage_entries_max: self.stage_entries },
            policy: self.policy,
            fallback: match self.fallback_one_in {
                0 => Fallback::Off,
                one_in => Fallback::OneIn(one_in),
            },
            eviction: self.eviction,
            tag_bits: self.tag_bits,
            // Each packet thread sets its own seed.
            seed: 0,
        }
    }
}

impl CacheOptions {
    /// Returns the options of the wildcard cache in the form that packet threads use.
    pub(crate) const fn wildcard(&self) -> Wildcard {
        let learned_kind = self.learned_index.start_index();
        match self.kind {
            CacheKind::Megaflow => {
                let config = MegaflowConfig {
                    signatures: self.signature_entries,
                    learned_masks_min: self.index.masks_min(),
                    learned_kind,
                    ..MegaflowConfig::DEFAULT
                };
                Wildcard::Megaflow(config)
            }
            CacheKind::Gigaflow => Wildcard::Gigaflow(self.gigaflow.chain()),
            CacheKind::Flows => {
                let learned_rules_min = self.index.rules_min();
                Wildcard::Flows(FlowsConfig { learned_rules_min, learned_kind })
            }
        }
    }

    /// Returns the time without a hit after which an entry expires.
    #[must_use]
    pub const fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}
