//! Gigaflow: a cache of sub-traversals that flows share.
//!
//! A *traversal* is the sequence of table lookups of one packet through the pipeline. A megaflow cache
//! has one entry for a whole traversal. Gigaflow ("GIGAFLOW: Rethinking the Fast Path", chapter 3 of the
//! dissertation) partitions the traversal into *sub-traversals*. Each sub-traversal becomes an *LTM entry*
//! (longest traversal matching) in one of K *stages*, which packets pass one after the other.
//!
//! Flows share the entries of equal sub-traversals. Suppose that the first of two flows has the
//! sub-traversals `a1 b1` and the second has `a2 b2`. After the misses of these two flows, four
//! flows hit: the entries also cover `a1 b2` and `a2 b1`. The number of covered traversals is the
//! *rule-space coverage* of the entries.
//!
//! A packet carries a *tag* from stage to stage. The tag is the number of the state after the last
//! entry. The state between two sub-traversals is the next table, the registers, and everything
//! else that the rest of the pipeline can read. An entry matches only packets that carry the tag of
//! the entry. So every sequence of entries that a packet matches is a traversal that the pipeline
//! makes too.
//!
//! # Modules
//!
//! | module | contents |
//! | --- | --- |
//! | [`outline`] | the steps and partition points of a traversal, for policies |
//! | [`partition`] | policies that partition a traversal and choose the stages |
//! | [`adaptive`] | the fallback to megaflows where sub-traversals hit less often |
//! | [`tag`] | tags, and the states that they represent |
//! | [`ltm`] | LTM rules, the stages in software, rule-space coverage |
//! | [`cache`] | the whole cache: lookups, and misses that fill the stages |
//! | [`offload`] | the contract with a device that holds the stages in hardware |
//!
//! # The invariant
//!
//! *The result of a policy never changes the forwarding of packets.* The sub-traversals of a
//! partition cover the traversal without a gap and in order. The sub-traversals begin and end at
//! states that have a tag, and their stages increase. So a packet that matches all sub-traversals
//! takes exactly the steps of the traversal. A policy only decides how often packets hit. So
//! policies may use hashes and estimates.
//!
//! # Example
//!
//! The example is figure 3.9 of the paper. The traversal passes the tables 1, 3, 2, 6, 8 and 9. The
//! picture shows the fields that each of these tables matches.
//!
//! ```text
//!  table    1     3       2   |   6      8   |   9
//!  fields  ETH  ETH,IP    IP  |  dTCP   dTCP |  sTCP
//! ```
//!
//! The tables 1, 3 and 2 share fields, and so do 6 and 8. The bars separate tables that match
//! disjoint fields. A sub-traversal that crosses a bar scores 0, and any other scores its length.
//! So `{1 3 2} {6} {8 9}` scores 3 + 1 + 0. The best partition into three is `{1 3 2} {6 8} {9}`
//! with 3 + 2 + 1.
//!
//! ```
//! use shunt_gigaflow::{
//!     outline::{Coupling, FieldSet, OutlineStep, StateId, TraversalOutline},
//!     partition::{EmptyStages, JointPolicy, PartitionPolicy},
//! };
//!
//! let ethernet = FieldSet::of(&[Coupling::EthSrc, Coupling::EthDst]);
//! let ip = FieldSet::of(&[Coupling::IpSrc, Coupling::IpDst]);
//! let destination_port = FieldSet::of(&[Coupling::TpDst]);
//! let source_port = FieldSet::of(&[Coupling::TpSrc]);
//!
//! let mut outline = TraversalOutline::new();
//! outline.begin(StateId::new(1));
//! for (table, fields) in [
//!     (1, ethernet),
//!     (3, ethernet.union(ip)),
//!     (2, ip),
//!     (6, destination_port),
//!     (8, destination_port),
//!     (9, source_port),
//! ] {
//!     outline.partition_point(StateId::new(table));
//!     outline.step(OutlineStep { fields, identity: table.into() });
//! }
//!
//! let mut policy = JointPolicy::default();
//! let mut partition = |stages_count| -> Vec<(u16, u16)> {
//!     let placements = policy.partition(&outline, &EmptyStages(stages_count));
//!     placements.iter().map(|placement| (placement.steps.start, placement.steps.end)).collect()
//! };
//! assert_eq!(partition(3), [(0, 3), (3, 5), (5, 6)]);
//! // A fourth stage changes nothing.
//! assert_eq!(partition(4), partition(3));
//! // With two stages, the sub-traversal that scores 0 is the shorter one.
//! assert_eq!(partition(2), [(0, 3), (3, 6)]);
//! // One stage is a megaflow cache.
//! assert_eq!(partition(1), [(0, 6)]);
//! ```

pub mod error;
pub mod outline;

pub mod partition;

pub mod adaptive;

pub mod convert;
pub mod tag;

pub mod ltm;

pub mod cache;

pub mod offload;
