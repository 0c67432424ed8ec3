//! A complete virtual switch as a library: pipeline, packet threads, cache eviction and OpenFlow.
//!
//! A program that embeds the switch needs a checkout of this project, Rust 1.95 and a tokio
//! runtime. In `Cargo.toml`:
//!
//! ```toml
//! [dependencies]
//! shunt-switch = { path = "../shunt/crates/switch" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! In `src/main.rs`, this program creates a bridge with two ports and one rule, and traces a
//! packet:
//!
//! ```
//! use std::error::Error;
//!
//! use shunt_switch::{
//!     Config, Switch,
//!     config::{BridgeOptions, PortOptions, PortType},
//! };
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     let switch = Switch::start(&Config::default(), None, 1).await?;
//!     let port = |number| PortOptions { name: format!("p{number}"), number, kind: PortType::Null, ..PortOptions::default() };
//!     let ports = vec![port(1), port(2)];
//!     let bridge = BridgeOptions { name: "br0".into(), ports, ..BridgeOptions::default() };
//!     switch.add_bridge(&bridge).await?;
//!     switch.add_rules("br0", &["tcp,nw_dst=10.0.0.0/8,actions=dec_ttl,output:p2"]).await?;
//!     let trace = switch.trace("br0", "in_port=p1,tcp,nw_dst=10.1.2.3,nw_ttl=64")?;
//!     assert_eq!(trace.megaflow, "tcp,nw_dst=10.0.0.0/8,nw_ttl=64");
//!     print!("{}", trace.to_text());
//!     Ok(())
//! }
//! ```
//!
//! [`Switch::add_own_port`] adds a port of another type, and [`Switch::start_with`] starts a switch
//! with another eviction engine.

mod announcements;
mod bfd;
mod bfd_thread;
mod bonds;
pub mod config;
mod control;
mod datapath_flows;
mod declarative;
mod desired;
mod error;
mod exports;
mod lacp_task;
mod learned;
mod listening_sockets;
mod multicast;
mod nic;
mod openflow;
mod overrides;
mod ports;
mod reload;
mod saved_counts;
mod saved_groups;
mod saved_learned;
mod saved_state;
mod status;
mod switch;
mod threads;
mod trace;
mod watch;

pub use announcements::{Announced, PreloadStatus};
pub use bonds::bond_bucket;
pub use config::{Config, ConfigError, ConfigPath, ConfigStep, mac_text};
pub use control::bonds::BondMemberChange;
pub use datapath_flows::{
    DatapathFlow, DatapathFlowFilter, DatapathFlowFormat, DatapathReader, PacketThreadCounters,
    RuleStatus,
};
pub use declarative::DeclarativeChanges;
pub use desired::{
    ApplyPolicy, ApplyReport, DeclaredBridge, DeclaredPort, DesiredState, ObjectId, ObjectOutcome,
    ObjectReport, PresentState,
};
pub use error::{SwitchError, with_causes};
pub use learned::{
    BridgeId, LearnedTableTotals, LearnedTotals, MacTableStatus, ReplacedMac, StaticMacError,
};
pub use listening_sockets::{ListeningSockets, SocketInode};
pub use multicast::{MulticastEntryStatus, MulticastMessages};
pub use nic::{NicStatus, NicTraffic, OperationsStatus, StageFill};
pub use openflow::{
    endpoint::{ControllerEndpoint, ControllerTransport, EndpointError},
    events::PortChanges,
};
pub use ports::{capture::CapturedPacket, names::BridgeNames, vlans::MacStatus};
pub use reload::ReloadReport;
pub use saved_counts::{SavedCount, SavedCounts};
pub use saved_learned::{SavedMac, SavedMulticast};
pub use saved_state::{SavedState, SavedTables};
pub use shunt_ofproto::server::ControlTask;
pub use shunt_thread_watch::{CurrentIteration, IterationWatch};
pub use status::{
    bfd::BfdPortStatus,
    bond::{BondBucketStatus, BondMemberStatus, BondStatus},
    bridge::{
        BridgePortStatus, BridgeStatus, ConnectionSummary, ControllerState, ControllerStatus,
        EgressQueueStatus, PacketInTotals, PortDrops,
    },
    caches::{CacheStatus, DropStatus, PacketInOutcomes, PortDropStatus},
    chain::{GigaflowStatus, NotPartitioned, RuleSpaceStatus, StageStatus},
    collector_set::CollectorSetStatus,
    evictions::{EntryOwnerStatus, EvictionStatus, LatencyStatus, TableEvictions},
    forecasts::{ForecastSourceStatus, ForecastStatus},
    ipfix::IpfixStatus,
    lacp::{BondLacpStatus, BondMemberLacpStatus},
    mirror::MirrorStatus,
    multicast::MulticastStatus,
    netflow::NetflowStatus,
    port_copies::PortCopyStatus,
    sflow::SflowStatus,
    table::FlowTableStatus,
    table_link::TableLink,
    thread::{ThreadIteration, ThreadState, ThreadStatus},
};
pub use switch::Switch;
pub use threads::{
    data_plane::EngineMaker,
    load::balancer::{QueueMoves, RxQueueStatus},
};
pub use trace::{
    entry_explanation::{EntryExplanation, EntryList, EntryStatus, EvictedEntry, LiveEntry},
    error::TraceError,
    report::{Trace, TraceConjunction, TraceGroup, TraceRecirculation, TraceRule, TraceVisit},
    sub_traversals::{TraceStep, TraceSubTraversal, TraceSubTraversals},
};
