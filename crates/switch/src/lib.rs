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

mod bridges;
mod capture;
mod chains;
mod check;
mod clock;
pub mod config;
mod config_error;
mod control;
mod endpoint;
mod error;
mod events;
mod evictions;
mod exclusive;
mod host;
mod learner;
mod listener;
mod names;
mod nic;
mod numbers;
mod openflow;
mod plane;
mod ports;
mod publisher;
mod setting;
mod status;
mod switch;
mod trace;
mod trace_actions;
mod trace_cuts;
mod trace_notes;
mod trace_pieces;
mod traced;
mod vlans;
mod watch;
mod why;
mod worker;

pub use capture::CapturedPacket;
pub use chains::{ChainStatus, CoverageStatus, NotCut, StageStatus};
pub use config::Config;
pub use config_error::{ConfigError, ConfigPath, ConfigStep};
pub use endpoint::{Endpoint, EndpointError};
pub use error::{SwitchError, with_causes};
pub use evictions::{EntryOwnerStatus, EvictionStatus, TableEvictions, Times};
pub use names::BridgeNames;
pub use nic::{NicStatus, NicTraffic, OperationsStatus, StageFill};
pub use plane::EngineMaker;
pub use status::{
    BridgeStatus, CacheStatus, ControllerState, ControllerStatus, DropStatus, PortStatus,
    ThreadState, ThreadStatus,
};
pub use switch::Switch;
pub use trace::{
    Trace, TraceConjunction, TraceError, TraceGroup, TraceRecirculation, TraceRule, TraceVisit,
};
pub use trace_pieces::{TraceStep, TraceSubTraversal, TraceSubTraversals};
pub use vlans::MacStatus;
pub use why::{EntryList, EntryStatus, EvictedEntry, LiveEntry, Why};
