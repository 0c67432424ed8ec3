//! The configuration of a switch: bridges, ports, controllers, caches and threads.
//!
//! All types are plain values. The daemon reads them from TOML; a program that embeds the switch builds them itself.
//! [`Config::check`] checks what the types cannot express.

mod bridge;
mod caches;
mod check;
mod error;
pub(crate) mod setting;
mod switch;

pub use bridge::{Bridge, Local, NAME_BYTES_MAX, Overflow, Port, PortType, Repeat, VlanMode};
pub use caches::{
    CacheKind, Caches, ChainEviction, Gigaflow, OffloadKind, Policy, StalePolicy, Target,
};
pub use error::{ConfigError, ConfigPath, ConfigStep};
pub use switch::{Config, Engine, Eviction, Packets, Repair, THREADS_MAX, Threads};
