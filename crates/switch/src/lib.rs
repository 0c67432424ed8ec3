//! A whole switch as a library: pipeline, packet threads, eviction and OpenFlow, wired.
//!
//! Whoever embeds it needs a checkout of the project beside theirs, Rust 1.95, and a tokio runtime; in
//! `Cargo.toml`:
//!
//! ```toml
//! [dependencies]
//! shunt-switch = { path = "../shunt/crates/switch" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! and in `src/main.rs`, for a bridge of two ports with a rule, and what becomes of a packet:
//!
//! ```
//! use std::error::Error;
//!
//! use shunt_switch::{
//!     Config, Switch,
//!     config::{Bridge, Port},
//! };
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     let switch = Switch::start(&Config::default(), None, 1).await?;
//!     let port = |number| Port { name: format!("p{number}"), number, ..Port::default() };
//!     let ports = vec![port(1), port(2)];
//!     let bridge = Bridge { name: "br0".into(), ports, ..Bridge::default() };
//!     switch.add_bridge(&bridge).await?;
//!     switch.add_rules("br0", &["tcp,nw_dst=10.0.0.0/8,actions=dec_ttl,output:p2"]).await?;
//!     let trace = switch.trace("br0", "in_port=p1,tcp,nw_dst=10.1.2.3,nw_ttl=64")?;
//!     assert_eq!(trace.megaflow, "tcp,nw_dst=10.0.0.0/8,nw_ttl=64");
//!     print!("{}", trace.to_text());
//!     Ok(())
//! }
//! ```
//!
//! Ports of one's own kind come by [`Switch::add_own_port`], an eviction engine by
//! [`Switch::start_with`].

pub mod config;
mod control;
mod error;
mod nic;
mod openflow;
mod ports;
mod status;
mod switch;
mod threads;
mod trace;
mod watch;

pub use config::{Config, ConfigError, ConfigPath, ConfigStep};
pub use error::{SwitchError, with_causes};
pub use nic::{NicStatus, NicTraffic, OperationsStatus, StageFill};
pub use openflow::endpoint::{Endpoint, EndpointError};
pub use ports::{capture::CapturedPacket, names::BridgeNames, vlans::MacStatus};
pub use status::{
    bridge::{BridgeStatus, ControllerState, ControllerStatus, PortStatus},
    caches::{CacheStatus, DropStatus},
    chain::{ChainStatus, CoverageStatus, NotCut, StageStatus},
    evictions::{EntryOwnerStatus, EvictionStatus, TableEvictions, Times},
    thread::{ThreadState, ThreadStatus},
};
pub use switch::Switch;
pub use threads::data_plane::EngineMaker;
pub use trace::{
    error::TraceError,
    report::{Trace, TraceConjunction, TraceGroup, TraceRecirculation, TraceRule, TraceVisit},
    sub_traversals::{TraceStep, TraceSubTraversal, TraceSubTraversals},
    why::{EntryList, EntryStatus, EvictedEntry, LiveEntry, Why},
};
