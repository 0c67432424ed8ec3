//! A whole switch as a library: pipeline, packet threads, eviction and OpenFlow, wired.
//!
//! ```
//! use shunt_switch::{Config, Switch, config::{Bridge, Port}};
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let switch = Switch::start(&Config::default(), None, 1).await?;
//! let ports = [1, 2].map(|number| Port { name: format!("p{number}"), number, ..Port::default() });
//! let bridge = Bridge { name: "br0".into(), ports: ports.into(), ..Bridge::default() };
//! switch.add_bridge(&bridge).await?;
//! switch.add_rules("br0", &["tcp,nw_dst=10.0.0.0/8,actions=dec_ttl,output:p2"]).await?;
//! let trace = switch.trace("br0", "in_port=p1,tcp,nw_dst=10.1.2.3,nw_ttl=64")?;
//! assert_eq!(trace.megaflow, "tcp,nw_dst=10.0.0.0/8,nw_ttl=64");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bridges;
mod capture;
mod check;
mod clock;
pub mod config;
mod control;
mod endpoint;
mod error;
mod events;
mod host;
mod learner;
mod listener;
mod names;
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
mod traced;
mod vlans;
mod watch;
mod worker;

pub use capture::CapturedPacket;
pub use check::{ConfigError, ConfigPath, ConfigStep};
pub use config::Config;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{SwitchError, with_causes};
pub use names::BridgeNames;
pub use plane::EngineMaker;
pub use status::{BridgeStatus, CacheStatus, DropStatus, PortStatus, ThreadState, ThreadStatus};
pub use switch::Switch;
pub use trace::{
    Trace, TraceConjunction, TraceError, TraceGroup, TraceRecirculation, TraceRule, TraceVisit,
};
pub use vlans::MacStatus;
