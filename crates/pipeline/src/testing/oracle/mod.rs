//! The oracle of translation: one concrete packet, linear scans, recursion.
//!
//! It shares no code with the translation that it judges.

mod conjunction;
mod fate;
mod groups;
mod halves;
mod hash;
mod labels;
mod learn;
mod normal;
mod packet;
mod walker;

pub use conjunction::{Conjunction, Found};
pub use fate::{Fate, Outcome, Punted, Visited};
pub use learn::{Refreshed, Taught, TaughtRule};
pub(super) use normal::belongs;
