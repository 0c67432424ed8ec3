//! Statistics of workloads, compared with their targets.

mod cache;
mod flow_traversals;
mod row;
mod traffic;

pub use cache::NoEvictionCache;
pub use flow_traversals::{FlowOrigin, FlowTraversals};
pub use row::{RowTarget, StatisticRow, table};
pub(crate) use traffic::LATER;
pub use traffic::TrafficStatistics;
