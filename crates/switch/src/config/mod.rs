//! The configuration of a switch: bridges, ports, controllers, caches and threads.
//!
//! All types are plain values. The daemon reads them from TOML; a program that embeds the switch
//! builds them itself. [`Config::check`] checks what the types cannot express.

mod bridge;
mod caches;
mod check;
mod error;
pub(crate) mod setting;
mod switch;

pub use bridge::{
    BridgeOptions, CaptureRepeat, LocalPort, NAME_BYTES_MAX, PortOptions, PortType, PortVlanMode,
    TableOverflow,
};
pub use caches::{
    CacheKind, CacheOptions, ChainEviction, GigaflowOptions, GigaflowPolicy, OffloadKind,
    OffloadOptions, StalePolicy,
};
pub use error::{ConfigError, ConfigPath, ConfigStep};
pub use switch::{
    Config, EvictionEngine, EvictionOptions, PacketOptions, RepairMode, THREADS_MAX, ThreadOptions,
};
