//! The translation of a forecast, and the reasons to refuse it.

use shunt_flow::SparseMask;
use shunt_foresight::ForecastRefusal;
use shunt_pipeline::{Traversal, TraversalError};

use crate::cache::EntryRef;

/// The result of the translation of a forecast in a wildcard index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preload {
    /// Live entries cover the flow; the value is the newest of these entries.
    Covered(EntryRef),
    /// The flow has no entries.
    Refused {
        /// The reason why no entry was installed.
        reason: ForecastRefusal,
        /// Number of translations, whole or of a sub-traversal.
        translations: u64,
    },
    /// Entries for the flow were installed.
    Installed {
        /// Number of translations, whole or of a sub-traversal.
        translations: u64,
    },
}

/// The result of the translation of a forecast in the caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preloaded {
    /// A live entry covers the flow.
    ///
    /// `is_new` is true if the entry was installed after the forecast was received.
    Covered { entry: EntryRef, is_new: bool },
    /// No entries were installed.
    Refused { reason: ForecastRefusal, translations: u64 },
    /// Entries were installed for the flow.
    Installed { entries: Box<[EntryRef]>, translations: u64 },
}

/// Returns the reason to refuse a forecast with this traversal.
///
/// `known` are the bits of the key that the forecast knows; `None`: all bits.
pub(crate) fn refusal_of(
    traversal: &Traversal,
    known: Option<&SparseMask>,
) -> Option<ForecastRefusal> {
    if !traversal.learnings.is_empty() {
        return Some(ForecastRefusal::Learns);
    }
    match traversal.error {
        Some(TraversalError::NoSuchPort) => return Some(ForecastRefusal::NoSuchPort),
        Some(_) => return Some(ForecastRefusal::TranslationError),
        None => {}
    }
    let is_known = known.is_none_or(|known| known.has_all_of(&traversal.mask));
    (!is_known).then_some(ForecastRefusal::UnknownBits)
}
