//! OpenFlow tables, rules and their translation into traversals.
//!
//! A [`Pipeline`] holds the bridges of a daemon: their ports and their tables of [`Rule`]s.
//! Controllers change it by [`FlowMod`]s; each change becomes a [`Version`] and returns [`Delta`]s.
//! Packet threads call [`Pipeline::translate`] for a packet. The call returns a [`Traversal`]: the
//! [`DatapathAction`]s to execute, and every bit and every [`Object`] that they depend on. So a
//! cache may use the traversal for all packets that agree with this packet under its mask. A cache
//! may use the traversal until an [`Evictor`] reports that a version has made the traversal stale.
//!
//! The crate has no sockets, threads, caches or clocks: callers pass the time.
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
//! // Every packet to 10.0.0.0/8 with this TTL has this result, on any ingress port.
//! assert_eq!(traversal.visits.len(), 2);
//! assert_eq!(traversal.mask.field(FieldId::Ipv4Dst), 0xff00_0000);
//! assert_eq!(traversal.mask.field(FieldId::InPort), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod action;
mod bridges;
mod continuations;
mod decisions;
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
pub use bridges::{
    bond::{BondBalance, BondBuckets, BondCounters, BondHash, BondMember, LacpAdmission},
    learned_totals::LearnedTotals,
    mac_table::{
        MacEntry, MacObservation,
        static_macs::{ReplacedMac, StaticMac, StaticMacError},
    },
    mirror::{Mirror, MirrorOutput, MirroredPorts},
    multicast::{MulticastEvent, MulticastFlooding, MulticastObservation, MulticastSnooping},
    multicast_table::MulticastEntry,
    output_counter::{OutputCounter, OutputHit},
    port::{PortBfd, PortConfig, PortInfo, PortKind},
    port_vlans::{PortVlans, PriorityTags, QinqEthtype, VlanMode},
    settings::{BridgeSettings, OverflowPolicy},
};
pub use continuations::continuation::Continuation;
pub use decisions::packet_decider::{PacketDecider, PacketDecision};
pub use error::{NoSuchBridge, RejectedMod};
pub use evict::{
    engine_state::{Cause, CauseRun, EngineState},
    evictor::{EntryId, EntryIdError, Evictor, InstallNo, Installed, OwnerId},
    iterative::Iterative,
};
pub use groups::group::{
    Bucket, BucketPlace, BucketSelector, Group, GroupCheck, GroupCommand, GroupKind, GroupMod,
    GroupModError, GroupStats, Selection,
};
pub use id::{BridgeId, Cookie, DatapathPort, GroupId, MeterId, QueueId, RuleId, TableId};
pub use learn::learning::{LearnedRule, Learning};
pub use meters::{
    meter::{
        Meter, MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, MeterModError,
        MeterUnit, MeterVerdict, raise_drop_precedence,
    },
    token_bucket::TokenBucket,
};
pub use packet_count::PacketTotals;
pub use pipeline::{
    BridgeContents, Change, Crediting, Pipeline, RuleListing, TraversalCredit,
    training::{IndexedTables, TrainingReport},
};
pub use shunt_classifier::{Lifetime, Priority, Rank, Version};
pub use tables::learned::lanes;
pub use tables::{
    flow_mod::{FlowMod, FlowModCommand, FlowModError, TableSelector},
    rule::{FlowFlags, Instructions, Rule, RuleStats, RuleTimers, RuleTotals, SharedTimers},
    rule_filter::RuleFilter,
    table::TableTotals,
};
pub use time::Time;
pub use traversals::{
    datapath_action::{DatapathAction, Punt, PuntReceiver, PuntedPacket, SampleRequest, TableMiss},
    drop_cause::{
        DropCause, MulticastDecision, MulticastFloodReason, MulticastOutputReason, NotedDecision,
        TranslationNote,
    },
    explanation::Explanation,
    sub_traversal::{LimitUse, NotedTraversal, PartitionPoint, SubTraversal},
    traversal::{GroupHit, Refresh, Traversal, TraversalError, Visit},
};
pub use update::{
    bundle::BundleStep,
    modification::{Modification, ModificationError},
};
pub use versions::delta::{Delta, Object, RemovedReason, RuleChange, RuleDelta};
