//! The caches of one packet thread: what was decided for a packet, found again in a few loads.
//!
//! [`Entries`] holds the entries themselves, with their actions and counts. Two indexes lead to
//! them: the [`ExactCache`] by all header bits, for flows that were seen just now, and the
//! [`MegaflowCache`] by those bits that the decision depended on; or, in place of both, a chain of
//! stages in which a packet finds pieces of its way one after the other ([`shunt_gigaflow`]). An index
//! refers to an entry by an [`EntryRef`], which goes dead with the entry: dropping an entry is one
//! store, whatever refers to it, and the indexes are cleaned up later, a few a turn.

#[cfg(not(loom))]
mod caches;
#[cfg(not(loom))]
mod chain;
mod config;
mod entry;
mod exact;
#[cfg(not(loom))]
mod hit_slots;
mod megaflow;
mod repair_queue;

#[cfg(not(loom))]
pub(crate) use caches::{Answer, Caches, Repaired};
pub use config::{CacheConfig, Wildcard};
pub use entry::{Credit, Entries, Hit, Reclaimed};
pub use exact::{ExactCache, ExactConfig, INGRESS_WORDS, ingress_words};
#[cfg(not(loom))]
pub(crate) use hit_slots::{Found, Lists, Sampled};
pub use megaflow::{Home, MegaflowCache, Missing};
pub(crate) use shunt_flow::hash::split_mix;
pub use shunt_flow::hash::{KeyHasher, MaskWord};
pub use shunt_gigaflow::ltm::EntryRef;
