//! The partition of rules into relaxed iSets.
//!
//! Buckets divide the values of one lane into intervals. A relaxed iSet is a set of rules that fit
//! into buckets of limited size, so that no rule crosses a border of a bucket. Therefore all rules
//! of an iSet that contain a key are in one bucket.

mod plan;
mod radix;
mod relaxed;
mod settings;

pub(crate) use plan::{IsetPlan, IsetPlanner, PlannedSet, SETS_MAX};
pub use settings::PartitionSettings;
