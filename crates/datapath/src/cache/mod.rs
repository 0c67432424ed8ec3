//! The caches of one packet thread.
//!
//! [`Entries`] holds the entries with their actions and counts. Two indexes find entries. The
//! [`ExactCache`] compares all header bits, for recently active flows. A wildcard index compares
//! only the bits that the translation consulted. The wildcard index is the megaflow cache (a
//! [`SignatureCache`] before a [`MegaflowCache`]), or a chain of stages that hold LTM entries
//! ([`shunt_gigaflow`]). An index refers to an entry by an [`EntryRef`], which is dead as soon as
//! the entry is dead. So an entry is dropped by one store, for any number of references to it. The
//! indexes remove dead entries later, a few per iteration.

#[cfg(not(loom))]
mod caches;
#[cfg(not(loom))]
mod chain;
#[cfg(not(loom))]
mod config;
mod credit;
mod entry;
#[cfg(not(loom))]
mod exact;
#[cfg(not(loom))]
mod flows;
mod growth;
#[cfg(not(loom))]
mod hit_slots;
#[cfg(not(loom))]
pub(crate) mod index;
#[cfg(not(loom))]
mod megaflow;
mod repair_queue;

#[cfg(not(loom))]
pub(crate) use caches::Caches;
#[cfg(not(loom))]
pub use chain::CoverageLink;
#[cfg(not(loom))]
pub(crate) use config::MAX_IDLE_DEFAULT;
#[cfg(not(loom))]
pub use config::{CacheConfig, FlowsConfig, Wildcard};
pub use credit::{CREDITS_MAX, Credit, TakenCredits};
pub(crate) use entry::TraversalDrop;
pub use entry::{Entries, EntryRef, Hit, Reclaimed};
#[cfg(not(loom))]
pub use exact::{ExactCache, ExactConfig, INGRESS_WORDS, ingress_words};
#[cfg(not(loom))]
pub(crate) use hit_slots::{ActionLists, HitSlots, PositionSet};
#[cfg(not(loom))]
pub use megaflow::{
    MegaflowCache, MegaflowConfig, MissedPackets, RowAddress, SignatureCache, Training,
};
#[cfg(not(loom))]
pub(crate) use megaflow::{TablesReply, TablesTraining, Trainer};
#[cfg(not(loom))]
pub(crate) use shunt_flow::hash::split_mix;
pub use shunt_flow::hash::{KeyHasher, MaskWord};
/// The kind of a learned index.
#[cfg(not(loom))]
pub use shunt_nuevomatch::StartIndexKind;
