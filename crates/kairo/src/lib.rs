//! Incremental cache eviction: the entries that a change of rules makes stale.
//!
//! A flow cache keeps results of table lookups, so that later packets skip the tables. When the
//! rules change, some entries become wrong. To check every entry again takes time linear in the
//! size of the cache. The crate finds the stale entries of a change in time that depends on the
//! change.
//!
//! An entry is valid as long as two conditions hold. Every table lookup of its traversal still
//! finds the same rule, for every packet of its region. Every other object that the traversal read
//! (a port, a group, a learned address) is unchanged. The engines store the relation between
//! entries, rules and objects. A change removes rows from this relation, and the engine evicts the
//! entries of the removed rows.
//!
//! The engines implement the [`Evictor`](shunt_pipeline::Evictor) contract:
//! - [`Direct`] searches the [`RegionIndex`]. The switch uses it by default.
//! - `Visits` searches the same index inside an operator of a dbsp circuit (feature `dbsp`).
//! - `Relational` uses the join operators of dbsp (feature `dbsp`).
//! - `PublishedKairo` is the published design, as a baseline (feature `dbsp`). The published design
//!   checks only the packets that made the entries.
//! - [`Definition`] checks every entry against every delta. Tests compare the engines with this
//!   definition.
//! - [`BruteForce`] translates all possible packets again, for tests with few packets.
//!
//! The idea is from "Kairo", which keeps this relation for sample packets, in circuits of
//! incremental view maintenance. A sample packet is only one packet of the region of its entry. For
//! example, a packet to 10.1.2.3 makes an entry for 10.0.0.0/8. A new rule for 10.1.99.0/24 makes
//! the entry wrong for 10.1.99.7, but the sample packet does not match that rule. Therefore this
//! crate compares rules with whole regions.
//!
//! # Example
//!
//! A program keeps its own cache valid with three calls: [`installed`] for a new entry, [`removed`]
//! for an entry that the cache dropped, and [`apply`] for a change. `examples/foreign_cache.rs` is
//! a complete program of that kind, and the crate `kairo-c` has a header for programs in C.
//!
//! [`installed`]: shunt_pipeline::Evictor::installed
//! [`removed`]: shunt_pipeline::Evictor::removed
//! [`apply`]: shunt_pipeline::Evictor::apply
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
//! // A rule for another network evicts nothing.
//! let change = pipeline.apply(bridge, &[rule("ip,nw_dst=11.0.0.0/8,actions=3")], Time::ZERO)?;
//! assert!(engine.apply(&change.deltas, change.version).is_empty());
//! // A rule that overlaps the region evicts the entry, although the packet does not match it.
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
