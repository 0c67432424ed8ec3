//! The contract of eviction engines: which cache entries does a version make stale?
//!
//! An engine hears of every entry that a cache makes ([`Evictor::installed`]) and loses
//! ([`Evictor::removed`]), and answers every version's deltas with the entries that go.
//! One thread at a time has it; caches learn of evictions by `advance` messages.

use std::{fmt, str::FromStr, sync::Arc};

use shunt_classifier::Version;

use super::engine_state::{CauseRun, EngineState};
use crate::{traversals::traversal::Traversal, versions::delta::Delta};

/// Who holds a cache entry: a packet thread, or later a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u16);

/// One cache entry. A slot is used again with a new generation, and only after its owner has said
/// that the entry was removed, unless it was told so.
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
    ///
    /// Versions grow from change to change, as an entry that was made between two changes of one version
    /// would seem to know of both; and the id of a rule is never used again. A change of one that is older
    /// than the last counts as a change of the last: it evicts too much rather than too little, and an
    /// install that was late stays late.
    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId>;

    /// Why the entries of the last answer of [`Self::apply`] went, in the order of the answer, and of
    /// no more than there are. Each cause is true of its entry: a delta that is named ends it, and of
    /// several that do, any may be named. What lies behind the last of these went for a reason that
    /// the engine does not tell.
    fn causes(&self) -> &[CauseRun] {
        &[]
    }

    /// An owner is gone, and its entries with it: none of them is watched any more.
    fn forget(&mut self, owner: OwnerId);

    /// Whether this change takes microseconds, however many entries are watched: then whoever makes
    /// it may have the step done itself, and need not hand it over. To find out takes no longer.
    fn is_quick(&self, _deltas: &[Delta]) -> bool {
        false
    }

    /// Whether so much was put off that somebody should be woken for it.
    fn is_untidy(&self) -> bool {
        false
    }

    /// Does a bounded part of the work that was put off, for whoever has nothing else to do.
    /// Answers whether there is more.
    fn tidy(&mut self) -> bool {
        false
    }

    /// Number of entries watched.
    fn len(&self) -> usize;

    /// How large what it keeps is. Takes a time that does not grow with the number of entries.
    fn state(&self) -> EngineState {
        EngineState { relations: vec![("entries", self.len())], ..EngineState::default() }
    }

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

/// A text that is not the name of an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no entry: an entry is three numbers with dots between them, as 0.17.2")]
pub struct EntryIdError(String);

impl FromStr for EntryId {
    type Err = EntryIdError;

    /// Reads what `Display` writes.
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

/// A number without a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_entry_is_read_as_it_is_written(
            owner in any::<u16>(),
            slot in any::<u32>(),
            generation in any::<u32>(),
        ) {
            let entry = EntryId { owner: OwnerId(owner), slot, generation };
            prop_assert_eq!(entry.to_string().parse(), Ok(entry));
        }

        #[test]
        fn what_is_read_as_an_entry_has_three_numbers(text in "[0-9.+x]{0,12}") {
            let numbers: Option<Vec<u32>> =
                text.split('.').map(|part| if part.contains('+') { None } else { part.parse().ok() }).collect();
            let is_entry = numbers.is_some_and(|own| own.len() == 3 && own[0] <= 0xffff);
            prop_assert_eq!(text.parse::<EntryId>().is_ok(), is_entry);
        }
    }
}
