//! Our classifier compared with Open vSwitch's: large tables, same rules, same packets.
//!
//! The run stops unless both return the same rule for every packet. Times are CPU times of
//! alternating rounds. Each table has its own process, so that its memory is counted alone.

mod measure;
mod ours;
mod rival;
mod workload;

pub(crate) use measure::{prepare, run, run_part, start_rival};
pub(crate) use ours::OurTable;
pub(crate) use rival::Rival;
pub(crate) use workload::{Workload, class_bench, synthetic};
