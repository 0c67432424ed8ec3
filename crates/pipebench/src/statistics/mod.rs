//! What a workload is like, beside what it was meant to be like.

mod fates;
mod kept;
mod row;
mod traffic;

pub use fates::{Class, Fates};
pub use kept::KeptEntries;
pub use row::{Row, Target, table};
pub(crate) use traffic::LATER;
pub use traffic::TrafficStatistics;
