//! The classifier: finds the best rule for each key, by iSets and a remainder.

mod cost;
mod masked;
mod nuevomatch;
mod proof;
mod settings;
mod statistics;

pub use nuevomatch::{BestMatch, NuevoMatch};
pub use proof::LaneFit;
pub use settings::{BucketCapacity, NuevoMatchSettings};
pub use statistics::{NuevoMatchStatistics, SetStatistics};
