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
mod bridges;
mod continuations;
mod error;
mod evict;
mod groups;
mod id;
mod learn;
mod meters;
mod packet_count;
mod pipeline;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod time;
mod translate;
mod traversals;
mod update;
mod versions;

pub use action::{
    Action, BundleAction, BundleAlgorithm, CLONE_DEPTH_MAX, ControllerAction, CtAction, CtZone,
    HashFields, LearnAction, LearnSource, LearnSpec, LearnTarget, MultipathAction,
    MultipathAlgorithm, NatAction, NatKind, NatRange, PacketInReason, SampleAction,
    SampleDirection, Subfield,
};
pub use bridges::mac_table::{MacEntry, MacSighting};
pub use bridges::port::{PortConfig, PortInfo, PortKind};
pub use bridges::port_vlans::{PortVlans, VlanMode};
pub use bridges::settings::{BridgeSettings, Overflow};
pub use continuations::continuation::Continuation;
pub use error::{NoSuchBridge, RejectedMod};
pub use evict::engine_state::{Cause, CauseRun, EngineState};
pub use evict::evictor::{EntryId, EntryIdError, Evictor, InstallNo, Installed, OwnerId};
pub use evict::iterative::Iterative;
pub use groups::group::{
    Bucket, Group, GroupCommand, GroupKind, GroupMod, GroupModError, GroupStats, Selection,
};
pub use id::{BridgeId, Cookie, DatapathPort, GroupId, MeterId, RuleId, TableId};
pub use learn::learning::{LearnedRule, Learning};
pub use meters::meter::{
    Meter, MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, MeterModError, MeterUnit,
    MeterVerdict, raise_drop_precedence,
};
pub use packet_count::PacketTotals;
pub use pipeline::{Change, Pipeline};
pub use shunt_classifier::{Lifetime, Priority, Rank, Version};
pub use tables::flow_mod::{FlowMod, FlowModCommand, FlowModError, TableSelector};
pub use tables::rule::{
    FlowFlags, Instructions, Rule, RuleStats, RuleTimers, RuleTotals, SharedTimers,
};
pub use tables::rule_filter::RuleFilter;
pub use tables::table::TableTotals;
pub use time::Time;
pub use traversals::datapath_action::{DatapathAction, PacketIn, Punt};
pub use traversals::sub_traversal::{NotedTraversal, PartitionPoint, Spending, SubTraversal};
pub use traversals::traversal::{GroupHit, Refresh, Traversal, TraversalError, Visit};
pub use update::bundle::BundleStep;
pub use update::modification::{Modification, ModificationError};
pub use versions::delta::{Delta, Object, RemovedReason, RuleChange, RuleDelta};
