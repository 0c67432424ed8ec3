//! The caches of one packet thread: what was decided for a packet, found again in a few loads.
//!
//! [`Entries`] holds the entries themselves, with their actions and counts. Two indexes lead to
//! them: the [`ExactCache`] by all header bits, for flows that were seen just now, and the
//! [`MegaflowCache`] by those bits that the decision depended on. An index refers to an entry by an
//! [`EntryRef`], which goes dead with the entry: dropping an entry is one store, whatever refers to
//! it, and the indexes are cleaned up later, a few a turn.

#[cfg(not(loom))]
mod caches;
mod entry;
mod exact;
mod hash;
mod index;
mod megaflow;

#[cfg(not(loom))]
pub use caches::CacheConfig;
#[cfg(not(loom))]
pub(crate) use caches::{Caches, NOT_FOUND};
pub use entry::{Buried, Credit, Entries, EntryRef, Hit};
pub use exact::{ExactCache, ExactConfig, INGRESS_WORDS, ingress_words};
pub(crate) use hash::split_mix;
pub use hash::{KeyHasher, MaskWord};
pub use megaflow::{Home, MegaflowCache, Missing};
