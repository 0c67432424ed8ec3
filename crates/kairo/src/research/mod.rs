//! Research engines, for comparison with [`Direct`](crate::Direct).
//!
//! No module of the product imports this module. The switch selects [`Visits`] or [`Relational`] by
//! name, and only in a build with the feature `dbsp`.

mod circuit_stats;
#[cfg(test)]
mod faults;
mod lock;
mod published;
mod relational;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod visits;

pub use circuit_stats::CircuitStats;
pub use published::{PublishedKairo, PublishedSettings, PublishedStats};
pub use relational::Relational;
pub use visits::Visits;
