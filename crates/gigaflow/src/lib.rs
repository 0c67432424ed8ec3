//! Gigaflow: how a traversal is cut into pieces that flows share.
//!
//! A megaflow is one entry for the whole way of a packet through the tables. Gigaflow ("GIGAFLOW:
//! Rethinking the Fast Path", chapter 3 of the dissertation that this follows) cuts that way into
//! pieces, keeps each as an entry of its own in one of K chained stages, and lets flows that agree on
//! a piece share it: with pieces a1, a2 in the first stage and b1, b2 in the second, four flows hit
//! after two have missed.
//!
//! This crate decides where to cut. A [`TraversalOutline`](outline::TraversalOutline) is what a traversal looks like to a
//! [`PartitionPolicy`](partition::PartitionPolicy), which answers with [`Placement`](partition::Placement)s.
//! [`Adaptive`](adaptive::Adaptive) watches whether cutting pays at all.
//!
//! # The invariant
//!
//! *Whatever a policy answers, packets are forwarded alike.* The pieces of a way cover it without a
//! gap, in order, are cut only where the state has a name, and have stages that increase; so a packet
//! that walks them makes the steps of the way, no others and in no other order. Everything else that
//! a policy decides (which fields belong together, what is worth sharing, who is cached already) only
//! changes how often that happens. That is why policies may work with hashes and estimates.
//!
//! # The worked example
//!
//! The paper's figure 3.9: tables 1 3 2 6 8 9 look at Ethernet, Ethernet and IP, IP, the destination
//! port twice, and the source port.
//!
//! ```text
//!  table    1     3       2   |   6      8   |   9
//!  fields  ETH  ETH,IP    IP  |  dTCP   dTCP |  sTCP
//! ```
//!
//! Fields meet from 1 to 2 and from 6 to 8, and nowhere across the bars. A piece that crosses a bar is
//! worth nothing, any other its length: `{1 3 2} {6} {8 9}` is 3 + 1 + 0, `{1 3 2} {6 8} {9}` is
//! 3 + 2 + 1 and the best.
//!
//! ```
//! use shunt_gigaflow::{
//!     partition::{JointPolicy, Placement, PartitionPolicy, StageSet, StageView},
//!     outline::{Coupling, StateId, FieldSet, OutlineStep, TraversalOutline},
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
//! /// StageView that are empty.
//! struct Empty(u8);
//!
//! impl StageView for Empty {
//!     fn count(&self) -> u8 {
//!         self.0
//!     }
//!     fn holders(&self, _: &SubTraversalOutline) -> StageSet {
//!         StageSet::EMPTY
//!     }
//!     fn room(&self) -> StageSet {
//!         StageSet::first_of(self.0)
//!     }
//! }
//!
//! let mut policy = JointPolicy::default();
//! let mut cut = |stages_count| -> Vec<(u16, u16)> {
//!     let pieces = policy.partition(&outline, &Empty(stages_count));
//!     pieces.iter().map(|piece| (piece.steps.start, piece.steps.end)).collect()
//! };
//! assert_eq!(cut(3), [(0, 3), (3, 5), (5, 6)]);
//! // A fourth stage changes nothing; with two, the worthless piece is the shorter one.
//! assert_eq!(cut(4), cut(3));
//! assert_eq!(cut(2), [(0, 3), (3, 6)]);
//! // One stage is a megaflow cache.
//! assert_eq!(cut(1), [(0, 6)]);
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

#[cfg(any(test, feature = "testing"))]
pub mod testing;
