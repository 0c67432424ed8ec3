//! Hit rates of a megaflow cache per pipeline, and the phases of a miss.

mod caches;
mod measure;
mod set_up_phases;

pub(super) use caches::{HITS, MISSES, of_packets};
pub(crate) use measure::run;
