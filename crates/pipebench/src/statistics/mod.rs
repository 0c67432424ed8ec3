//! What a workload is like, beside what it was meant to be like.

mod fates;
mod row;
mod traffic;

pub use fates::Fates;
pub use row::{Row, Target, table};
pub use traffic::TrafficStatistics;
