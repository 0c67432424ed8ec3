//! The contract of eviction engines: which cache entries does a version make stale?
//!
//! An engine hears of every entry that a cache makes ([`Evictor::installed`]) and loses
//! ([`Evictor::removed`]), and answers every version's deltas with the entries that go.
//! It is owned by one thread; caches learn of evictions by `advance` messages.

use std::{fmt, sync::Arc};

use shunt_classifier::Version;

use crate::{Delta, Traversal};

/// Who holds a cache entry: a packet thread, or later a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u16);

/// One cache entry. A slot is used again only after its `removed` was sent, with a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Who holds it.
    pub owner: OwnerId,
    /// Where in the owner's table.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// The number of an install: each owner counts its own, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstallNo(pub u64);

/// What an engine says of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The entry is watched from now on.
    Recorded,
    /// It was translated under a version older than the engine's: its owner will drop it, by the
    /// rule of `seq`.
    Late,
}

/// An eviction engine.
pub trait Evictor: Send {
    /// An owner made an entry out of `traversal`.
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed;

    /// An owner lost an entry of its own accord (expiry, replacement); never one that an `advance`
    /// took.
    fn removed(&mut self, entry: EntryId);

    /// A version changed these things. Answers with the entries that are stale from it on, and
    /// forgets them.
    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId>;

    /// An owner is gone, and its entries with it: none of them is watched any more.
    fn forget(&mut self, owner: OwnerId);

    /// Whether a change of a few rules takes microseconds, however many entries are watched: then
    /// whoever makes the change may have the step done itself, and need not hand it over.
    fn is_quick(&self) -> bool {
        false
    }

    /// Does a bounded part of the work that was put off, for whoever has nothing else to do.
    /// Answers whether there is more.
    fn tidy(&mut self) -> bool {
        false
    }

    /// Number of entries watched.
    fn len(&self) -> usize;

    /// Whether no entry is watched.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.owner.0, self.slot, self.generation)
    }
}
