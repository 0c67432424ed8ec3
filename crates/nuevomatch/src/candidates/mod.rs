//! Boxes without priorities: an index that returns every box that contains a key.

mod index;
mod set;

pub use index::{CANDIDATE_BATCH_MAX, CandidateIndex, CandidateStatistics};
pub(crate) use set::IndexedSet;
