//! Kits of tests and benches: generated rule-sets and headers, judges, a rival, and a fuzz target.

mod answers;
mod fuzz;
mod headers;
mod port_prefixes;
mod synthetic;
mod tuple_merge;

pub use answers::{CheckedSet, WrongAnswer};
pub use fuzz::fuzz_classbench;
pub use headers::HeaderStream;
pub use port_prefixes::port_prefixes;
pub use synthetic::SyntheticSet;
pub use tuple_merge::TupleMerge;
