//! Longest traversal matching: rules that are pieces of traversals, and the stages that hold them.
//!
//! [`Ltm`] is the chain in software: [`Ltm::find`] walks a packet through it, [`Ltm::put`] adds rules.
//! Its entries live in a [`Store`].

mod chain;
mod coverage;
mod family;
mod gone;
mod groups;
mod headers;
mod held;
mod lists;
mod piece;
mod places;
mod rule;
mod store;
mod table;
mod walk;

pub(crate) use chain::Arrival;
pub use chain::{Candidacy, Eviction, Ltm, Put};
pub use coverage::{Coverage, Link};
pub(crate) use headers::Headers;
pub use rule::{LtmRule, Next, Plain, Tag};
pub use store::{EntryRef, Hits, Shelf, Store};
pub use walk::Walk;
