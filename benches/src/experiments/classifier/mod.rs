//! Our classifier compared with Open vSwitch's: large tables, the same rules and packets.
//!
//! The run stops unless both classifiers return the same rule for every packet. Times are CPU times
//! of alternating rounds. Each table has a separate process, so that the memory of the table is
//! counted alone.

mod measure;
mod ours;
mod rival;
mod workload;

pub(crate) use measure::{prepare, run, run_part, start_rival};
pub(crate) use ours::OurTable;
pub(crate) use rival::Rival;
pub(crate) use workload::{Workload, class_bench, synthetic};
