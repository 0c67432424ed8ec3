//! The configuration of a switch: bridges, ports, controllers, caches and threads.
//!
//! All types are plain values. The daemon reads them from TOML; a program that embeds the switch
//! builds them itself. [`Config::check`] checks the rules that the types cannot express.

mod bfd;
mod bond;
mod bridge;
mod caches;
pub(crate) mod changed_settings;
mod check;
mod collector_set;
mod collectors;
mod earlier_values;
mod endpoints;
mod error;
mod foresight;
mod ipfix;
mod lacp;
pub(crate) mod mac;
mod mirror;
mod multicast;
mod netflow;
mod qos;
pub(crate) mod setting;
mod sflow;
mod switch;
mod table_limit;
mod table_name;

pub use bfd::BfdOptions;
pub use bond::{BondMode, BondOptions};
pub use bridge::{
    BridgeOptions, FailMode, LocalPort, NAME_BYTES_MAX, PortOptions, PortType, PortVlanMode,
};
pub use caches::{
    CacheKind, CacheOptions, GigaflowOptions, LearnedIndexKind, MegaflowLookup, OffloadKind,
    OffloadOptions, StalePolicy,
};
pub use collector_set::CollectorSetOptions;
pub use error::{ConfigError, ConfigPath, ConfigStep};
pub use foresight::{ForesightOptions, PredictorName};
pub use ipfix::IpfixOptions;
pub use lacp::{BondLacp, BondLacpTime};
pub use mac::{mac_text, parse_any_mac};
pub use mirror::MirrorOptions;
pub use netflow::NetflowOptions;
pub use qos::{QosOptions, QosType, QueueOptions};
pub use sflow::SflowOptions;
pub use shunt_datapath::packet::{
    egress_policer::EgressPolicing, ingress_policer::IngressPolicing,
};
pub(crate) use switch::AutoLbSettings;
pub use switch::{
    Config, EvictionEngine, EvictionOptions, PacketOptions, RepairMode, THREADS_MAX, ThreadOptions,
};
// Keywords of the configuration file that are also variants of an enumeration in another crate.
pub use shunt_datapath::port::{
    EalOptions, HugePages, Repeat, af_xdp::XdpMode, memif::MemifRole, vhost_user::SocketMode,
};
pub use shunt_gigaflow::{ltm::Eviction, partition::PolicyName};
pub use shunt_pipeline::{OverflowPolicy, PriorityTags, QinqEthtype};
