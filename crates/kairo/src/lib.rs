//! Which cache entries a change of policy makes stale, at the cost of the change.
//!
//! A cache entry is right as long as every lookup that it stands for would find the same rule again,
//! for every packet of its region, and everything else that was consulted is as it was. That is a
//! relation between entries and rules, and a change of rules is a change of that relation: whatever
//! falls out of it is evicted, and nothing else is looked at.
//!
//! These answer the [`Evictor`](shunt_pipeline::Evictor) contract:
//! - [`Direct`]: by the [`RegionIndex`].
//! - `Visits`: by the same index, as the join of a circuit of dbsp (feature `dbsp`).
//! - `Relational`: by a circuit of joins that dbsp itself has (feature `dbsp`).
//! - `PublishedKairo`: by the packets that made the entries, as published (feature `dbsp`): a baseline.
//! - [`Definition`]: by what is asked, entry by entry; the others are held against it.
//! - [`BruteForce`]: by translating all packets anew, where there are few.
//!
//! The idea is that of "Kairo", which keeps the same relation for sample packets in circuits of
//! incremental view maintenance. A sample packet is not its region: an entry for 10.0.0.0/8 that was
//! made by a packet to 10.1.2.3 is wrong for 10.1.99.7 once there is a rule for 10.1.99.0/24, which
//! the sample does not match. So this crate joins regions.
//!
//! # Example
//!
//! A cache of one's own is kept right with three calls: what it has, what it lost, what changed.
//! `examples/foreign_cache.rs` is a whole program of that kind, and the crate `kairo-c` has a header for
//! programs in C.
//!
//! ```
//! use std::sync::Arc;
//!
//! use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
//! use shunt_kairo::Direct;
//! use shunt_pipeline::{
//!     BridgeId, BridgeSettings, EntryId, Evictor, FlowModCommand, OwnerId, Pipeline, PortInfo, Time,
//!     text::parse_rule,
//! };
//!
//! let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
//! pipeline.add_bridge(bridge, BridgeSettings::default());
//! pipeline.set_ports(bridge, [1, 2, 3].map(PortInfo::datapath).into())?;
//! let rule = |text| parse_rule(FlowModCommand::Add, text, &NoPortNames).expect("a legal rule");
//! pipeline.apply(bridge, &[rule("ip,nw_dst=10.0.0.0/8,actions=output:2")], Time::ZERO)?;
//!
//! // A packet to 10.1.2.3 makes an entry for all of 10.0.0.0/8.
//! let mut packet = FlowKey::ZERO;
//! packet.set_bridge(1);
//! packet.set_in_port(PortNo::new(1));
//! packet.set_field(FieldId::EthType, 0x0800);
//! packet.set_field(FieldId::Ipv4Dst, 0x0a01_0203);
//! let mut engine = Direct::new(pipeline.version(), 1);
//! let entry = EntryId { owner: OwnerId(0), slot: 7, generation: 0 };
//! engine.installed(entry, &Arc::new(pipeline.translate(&packet, pipeline.version())));
//!
//! // A rule beside it changes nothing; one that overlaps it ends it, though the packet is not met.
//! let change = pipeline.apply(bridge, &[rule("ip,nw_dst=11.0.0.0/8,actions=3")], Time::ZERO)?;
//! assert!(engine.apply(&change.deltas, change.version).is_empty());
//! let more = "priority=40000,ip,nw_dst=10.1.99.0/24,actions=output:3";
//! let change = pipeline.apply(bridge, &[rule(more)], Time::ZERO)?;
//! assert_eq!(engine.apply(&change.deltas, change.version), [entry]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bound;
mod deltas;
mod direct;
mod entries;
mod index;
mod masks;
mod oracle;
mod positions;
mod region;
#[cfg(feature = "dbsp")]
mod research;

pub use direct::Direct;
pub use index::{DeciderChange, IndexSize, RegionIndex};
pub use oracle::{BruteForce, Definition};
#[cfg(all(feature = "dbsp", any(test, feature = "testing")))]
pub use research::testing;
#[cfg(feature = "dbsp")]
pub use research::{
    CircuitStats, PublishedKairo, PublishedSettings, PublishedStats, Relational, Visits,
};
