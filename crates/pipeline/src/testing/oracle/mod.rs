//! The oracle of translation: one concrete packet, linear scans, recursion.
//!
//! The oracle shares no code with the translation under test.

mod bfd;
mod bond;
mod conjunction;
mod effects;
mod groups;
mod hash;
mod labels;
mod learn;
mod mirror;
mod multicast;
mod normal;
mod packet;
mod packet_in;
mod passes;
mod walker;

pub use conjunction::{Conjunction, LookupStep};
pub use effects::{Outcome, PacketEffects, Punted, Visited};
pub use learn::{LearnEffect, Refreshed, RuleToLearn};
pub(super) use normal::belongs;
