//! A classifier that changes while other threads look up.

mod classifier;
mod reader;
mod statistics;
mod trainer;
mod twins;

pub use classifier::{LiveNuevoMatch, LiveSettings, RuleUpdate, UpdatePolicy};
pub use reader::LiveReader;
pub use statistics::{LiveStatistics, TrainerState};
pub use trainer::Trainer;
