//! What a cache of whole traversals does with each pipeline, and what a miss is made of.

mod caches;
mod measure;
mod parts;

pub(super) use caches::{HITS, MISSES, of_packets};
pub(crate) use measure::run;
