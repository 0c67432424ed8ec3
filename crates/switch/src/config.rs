//! What a switch is made of: bridges, ports, controllers, caches, threads.
//!
//! These are plain values; the daemon reads them from TOML, an embedder writes them down.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use shunt_datapath::cache::Wildcard;
use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config as ChainConfig, Fallback},
    ltm,
    partition::PolicyName,
};

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

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bridge {
    /// Its name, also that of its local port: at most 15 bytes.
    pub name: String,
    /// Sixteen hexadecimal digits; made from the name if empty.
    pub datapath_id: String,
    /// Hardware address of the local port; made from the name if empty.
    pub mac: String,
    /// What stands behind the local port.
    pub local: Local,
    /// Controllers to connect to, as `tcp:IP:PORT`.
    pub controllers: Vec<String>,
    /// Addresses to listen on for controllers, as `ptcp:PORT[:IP]`.
    pub listen: Vec<String>,
    /// Rules that a table takes; 0: no limit.
    pub table_rules: usize,
    /// What happens to a rule that is added to a full table.
    pub table_overflow: Overflow,
    /// Seconds without a frame after which `NORMAL` forgets a MAC address; 0: 300.
    pub mac_ageing_s: u32,
    /// MAC addresses that `NORMAL` knows at most; 0: 8192.
    pub mac_entries: usize,
    /// Its ports.
    #[serde(rename = "port")]
    pub ports: Vec<Port>,
}

/// What stands behind the local port of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Local {
    /// Nothing: packets to it are dropped.
    #[default]
    None,
    /// A TAP device of the bridge's name.
    Tap,
}

/// What happens to a rule that is added to a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// It is refused.
    #[default]
    Refuse,
    /// A rule that has a timeout makes room for it: the least important, then the one that would
    /// expire first.
    Evict,
}

/// A port of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Port {
    /// Its name: at most 15 bytes, unique in the daemon.
    pub name: String,
    /// Its OpenFlow number; 0: the lowest that is free.
    pub number: u32,
    /// What kind of port it is.
    #[serde(rename = "type")]
    pub kind: PortType,
    /// The network device, for `af_packet` and `tap`; the port's name if empty.
    pub device: String,
    /// The capture to replay, for `pcap`; nothing is received if empty.
    pub rx: PathBuf,
    /// The capture to write, for `pcap`; what is sent is discarded if empty.
    pub tx: PathBuf,
    /// How often the capture is replayed, for `pcap`.
    pub repeat: Repeat,
    /// The port at the other end, for `patch`.
    pub peer: String,
    /// How frames of its VLANs look to `NORMAL`; `access` if there is only a `tag`, else `trunk`.
    pub vlan_mode: Option<VlanMode>,
    /// Its VLAN, for all modes but `trunk`.
    pub tag: Option<u16>,
    /// The VLANs that it carries, 0 for frames without a tag, for all modes but `access`; empty: all.
    pub trunks: Vec<u16>,
}

/// How frames of its VLANs look on the wire of a port (`vlan_mode` of `ovs-vswitchd.conf.db(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VlanMode {
    /// One VLAN, without a tag.
    Access,
    /// With their tags.
    Trunk,
    /// As `trunk`; frames that come in without a tag belong to VLAN `tag`.
    NativeTagged,
    /// As `native-tagged`, and frames of that VLAN go out without a tag.
    NativeUntagged,
}

/// Kinds of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortType {
    /// Swallows what is sent, receives nothing.
    #[default]
    Null,
    /// Receives from a capture file and writes to another.
    Pcap,
    /// One end of a cable between two bridges of this daemon.
    Patch,
    /// A network device, by a packet socket.
    AfPacket,
    /// A TAP device that the switch makes.
    Tap,
    /// Nothing stands behind it: a local port without a device, or one that an embedder brings.
    Unbound,
}

impl PortType {
    /// The name, as configuration and command line spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Pcap => "pcap",
            Self::Patch => "patch",
            Self::AfPacket => "af_packet",
            Self::Tap => "tap",
            Self::Unbound => "unbound",
        }
    }
}

/// How often a capture is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// From beginning to end, once.
    #[default]
    Once,
    /// Over and over.
    Endless,
}

impl Default for Threads {
    fn default() -> Self {
        Self { packet: 1, cpus: Vec::new(), translations_per_iteration: 64 }
    }
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

impl Default for Packets {
    fn default() -> Self {
        Self { vlan_limit: 1 }
    }
}

/// Longest name of a bridge or port: what OpenFlow's 16 bytes hold beside the NUL.
pub const NAME_BYTES_MAX: usize = 15;

/// Most packet threads.
pub const THREADS_MAX: u16 = 64;
