//! OpenFlow tables, rules and their translation into traversals.
//!
//! A [`Pipeline`] holds the bridges of a daemon: their ports and their tables of [`Rule`]s.
//! Controllers change it by [`FlowMod`]s; each change is a [`Version`] of its own, and answers with
//! [`Delta`]s. Packet threads ask what becomes of a packet: [`Pipeline::translate`] answers with a
//! [`Traversal`], which holds the [`DatapathAction`]s to execute, and every bit and every
//! [`Object`] that this depended on. So it can be cached for all packets that agree with this one
//! under its mask, until an [`Evictor`] says that a version made it stale.
//!
//! This crate knows nothing of sockets, threads and caches. Time is passed in.
//!
//! ```
//! use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
//! use shunt_pipeline::{
//!     BridgeId, BridgeSettings, DatapathAction, DatapathPort, FlowModCommand, Pipeline, PortInfo,
//!     Time, text::parse_rule,
//! };
//!
//! let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
//! pipeline.add_bridge(bridge, BridgeSettings::default());
//! pipeline.set_ports(bridge, [1, 2].map(PortInfo::datapath).into())?;
//!
//! let rules = ["ip,actions=dec_ttl,goto_table:1", "table=1,ip,nw_dst=10.0.0.0/8,actions=output:2"]
//!     .map(|rule| parse_rule(FlowModCommand::Add, rule, &NoPortNames).expect("a legal rule"));
//! pipeline.apply(bridge, &rules, Time::ZERO)?;
//!
//! let mut packet = FlowKey::ZERO;
//! packet.set_bridge(bridge.number().into());
//! packet.set_in_port(PortNo::new(1));
//! packet.set_field(FieldId::EthType, 0x0800);
//! packet.set_field(FieldId::Ipv4Dst, 0x0a01_0203);
//! packet.set_field(FieldId::NwTtl, 64);
//! let traversal = pipeline.translate(&packet, pipeline.version());
//!
//! let [DatapathAction::SetHeader(ttl), DatapathAction::Output { port, .. }] = &*traversal.actions
//! else { panic!("the packet leaves with another TTL") };
//! assert_eq!((ttl.key().field(FieldId::NwTtl), port.number()), (63, 2));
//!
//! // Any packet to 10.0.0.0/8 with this TTL fares like this one, whichever port it came in by.
//! assert_eq!(traversal.visits.len(), 2);
//! assert_eq!(traversal.mask.field(FieldId::Ipv4Dst), 0xff00_0000);
//! assert_eq!(traversal.mask.field(FieldId::InPort), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod action;
mod apply;
mod bridge;
mod bundle;
mod check;
mod conjunction;
mod continuation;
mod count;
mod delta;
mod engine_state;
mod error;
mod eviction;
mod evictor;
mod expiry;
mod filter;
mod flow_mod;
mod group;
mod group_table;
mod history;
mod id;
mod iterative;
mod learning;
mod liveness;
mod mac_ages;
mod mac_table;
mod meter;
mod meter_table;
mod modification;
mod needs;
mod numbered;
mod outcome;
mod piece;
mod pipeline;
mod plain_cuts;
mod port;
mod port_table;
mod port_vlans;
mod rule;
mod settings;
mod shared;
mod table;
mod taught;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod time;
mod translate;
mod traversal;

pub use action::{
    Action, BundleAction, BundleAlgorithm, CLONE_DEPTH_MAX, ControllerAction, CtAction, CtZone,
    HashFields, LearnAction, LearnSource, LearnSpec, LearnTarget, MultipathAction,
    MultipathAlgorithm, NatAction, NatKind, NatRange, PacketInReason, SampleAction,
    SampleDirection, Subfield,
};
pub use bundle::BundleStep;
pub use continuation::Continuation;
pub use count::PacketTotals;
pub use delta::{Delta, Object, RemovedReason, RuleChange, RuleDelta};
pub use engine_state::{Cause, CauseRun, EngineState};
pub use error::{NoSuchBridge, RejectedMod};
pub use evictor::{EntryId, EntryIdError, Evictor, InstallNo, Installed, OwnerId};
pub use filter::RuleFilter;
pub use flow_mod::{FlowMod, FlowModCommand, FlowModError, TableSelector};
pub use group::{
    Bucket, Group, GroupCommand, GroupKind, GroupMod, GroupModError, GroupStats, Selection,
};
pub use id::{BridgeId, Cookie, DatapathPort, GroupId, MeterId, RuleId, TableId};
pub use iterative::Iterative;
pub use learning::{LearnedRule, Learning};
pub use mac_table::{MacEntry, MacSighting};
pub use meter::{
    Meter, MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, MeterModError, MeterUnit,
    MeterVerdict, raise_drop_precedence,
};
pub use modification::{Modification, ModificationError};
pub use outcome::{DatapathAction, PacketIn, Punt};
pub use piece::{NotedTraversal, PartitionPoint, Spending, SubTraversal};
pub use pipeline::{Change, Pipeline};
pub use port::{PortConfig, PortInfo, PortKind};
pub use port_vlans::{PortVlans, VlanMode};
pub use rule::{FlowFlags, Instructions, Rule, RuleStats, RuleTimers, RuleTotals, SharedTimers};
pub use settings::{BridgeSettings, Overflow};
pub use shunt_classifier::{Lifetime, Priority, Rank, Version};
pub use table::TableTotals;
pub use time::Time;
pub use traversal::{GroupHit, Refresh, Traversal, TraversalError, Visit};
