//! Longest traversal matching: rules that are pieces of traversals, and the stages that hold them.
//!
//! [`Ltm`] is the chain in software: [`Ltm::find`] walks a packet through it, [`Ltm::put`] adds rules.
//! Its entries live in a [`Store`].

mod chain;
mod coverage;
mod eviction;
mod family;
mod gone;
mod groups;
mod headers;
mod held;
mod lists;
mod origin;
mod piece;
mod places;
mod rule;
mod store;
mod table;
mod walk;

pub(crate) use chain::Arrival;
pub use chain::{Candidacy, Ltm, Put};
pub use coverage::{Coverage, Link};
pub use eviction::Eviction;
pub(crate) use headers::Headers;
pub use origin::Origin;
pub(crate) use origin::place_of;
pub use rule::{LtmRule, Next, Plain, Tag};
pub use store::{Hits, LtmEntryRef, Store, VecStore};
pub use walk::Walk;
