//! The contract of eviction engines: they find the cache entries that a version makes stale.
//!
//! An engine is notified of every entry that a cache installs ([`Evictor::installed`]) and removes
//! ([`Evictor::removed`]). For the deltas of a version it returns the stale entries. One thread at
//! a time uses the engine; caches learn of evictions by `Invalidation` messages.

use std::{fmt, str::FromStr, sync::Arc};

use shunt_classifier::Version;

use super::engine_state::{CauseRun, EngineState};
use crate::{traversals::traversal::Traversal, versions::delta::Delta};

/// The owner of cache entries: a packet thread or an offload device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u16);

/// Identifies one cache entry among those of all owners.
///
/// A slot is used again with a new generation, and only after its owner has reported that the entry
/// was removed, or has been notified of its eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The thread or device that has the entry.
    pub owner: OwnerId,
    /// Index in the owner's table.
    pub slot: u32,
    /// Number of entries that had the slot before.
    pub generation: u32,
}

/// The sequence number of an install: each owner counts its own, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstallNo(pub u64);

/// The result of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The engine watches the entry from now on.
    Recorded,
    /// The traversal is older than the version of the engine.
    /// The owner removes the entry by its install number.
    Late,
}

/// An eviction engine.
pub trait Evictor: Send {
    /// Reports that an owner installed an entry of `traversal`.
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed;

    /// Reports that an owner removed an entry by expiry or replacement, not by an
    /// invalidation.
    fn removed(&mut self, entry: EntryId);

    /// Applies the deltas of a version, and returns the entries that are stale from it
    /// on.
    ///
    /// The engine stops watching these entries.
    ///
    /// Each call has a greater version: otherwise an entry between two calls of one version would
    /// appear to be newer than both. The id of a rule is never used again. Changes of an older
    /// version count as changes of the newest version. So some fresh entries may be evicted, and no
    /// stale entry stays.
    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId>;

    /// Returns the causes of the entries of the last result of [`Self::apply`], in its
    /// order.
    ///
    /// A named delta does make its entry stale. If several deltas make an entry stale, any of them
    /// may be named. The list may be shorter than the result: the engine does not report the causes
    /// of the rest.
    fn causes(&self) -> &[CauseRun] {
        &[]
    }

    /// Drops all entries of an owner that does not exist any more.
    fn forget(&mut self, owner: OwnerId);

    /// Returns whether applying this change takes microseconds, for any number of
    /// watched entries.
    ///
    /// The calling thread may then apply the change itself. The function itself must also take only
    /// microseconds.
    fn is_quick(&self, _deltas: &[Delta]) -> bool {
        false
    }

    /// Returns whether enough work was deferred that a thread should be woken for it.
    fn has_backlog(&self) -> bool {
        false
    }

    /// Does a bounded part of the deferred work, for a thread that is idle.
    ///
    /// Returns whether deferred work is left.
    fn run_maintenance(&mut self) -> bool {
        false
    }

    /// Returns the number of watched entries.
    fn len(&self) -> usize;

    /// Returns the size of the engine's state.
    /// The cost of the call does not grow with the number of entries.
    fn state(&self) -> EngineState {
        EngineState { relations: vec![("entries", self.len())], ..EngineState::default() }
    }

    /// Returns whether no entry is watched.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.owner.0, self.slot, self.generation)
    }
}

/// The error for a text that is not an entry name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cache entry: write three numbers with dots between them, such as 0.17.2")]
pub struct EntryIdError(String);

impl FromStr for EntryId {
    type Err = EntryIdError;

    /// Parses the text that `Display` writes.
    fn from_str(text: &str) -> Result<Self, EntryIdError> {
        let read = || {
            let (owner, rest) = text.split_once('.')?;
            let (slot, generation) = rest.split_once('.')?;
            Some(Self {
                owner: OwnerId(number(owner)?),
                slot: number(slot)?,
                generation: number(generation)?,
            })
        };
        read().ok_or_else(|| EntryIdError(text.to_owned()))
    }
}

/// Parses a number without a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_printed_entry_id_parses_back(
            owner in any::<u16>(),
            slot in any::<u32>(),
            generation in any::<u32>(),
        ) {
            let entry = EntryId { owner: OwnerId(owner), slot, generation };
            prop_assert_eq!(entry.to_string().parse(), Ok(entry));
        }

        #[test]
        fn an_entry_id_has_three_numbers(text in "[0-9.+x]{0,12}") {
            let numbers: Option<Vec<u32>> =
                text.split('.').map(|part| if part.contains('+') { None } else { part.parse().ok() }).collect();
            let is_entry = numbers.is_some_and(|own| own.len() == 3 && own[0] <= 0xffff);
            prop_assert_eq!(text.parse::<EntryId>().is_ok(), is_entry);
        }
    }
}
