//! The classifier beside that of Open vSwitch: large tables, the same rules and packets.
//!
//! Both answer every packet alike, or it stops. Times are of the CPU, in rounds that take turns.
//! Each table has a process of its own, so that the memory counted is its own.

mod measure;
mod ours;
mod rival;
mod workload;

pub(crate) use measure::{prepare, run, run_part, start_rival};
pub(crate) use ours::Ours;
pub(crate) use rival::Rival;
pub(crate) use workload::{Workload, class_bench, synthetic};
