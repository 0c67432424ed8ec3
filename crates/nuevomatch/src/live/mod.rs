//! A live classifier: its rules change while other threads look up keys.

mod classifier;
mod double_buffer;
mod reader;
mod statistics;
mod trainer;

pub use classifier::{LiveNuevoMatch, LiveSettings, RuleUpdate, UpdatePolicy};
pub use reader::LiveReader;
pub use statistics::{LiveStatistics, TrainerState};
pub use trainer::Trainer;
