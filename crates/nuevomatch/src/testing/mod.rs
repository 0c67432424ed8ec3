//! Kits of tests and benches: generated rule-sets and headers, a rival, and a fuzz target.

mod fuzz;
mod headers;
mod port_prefixes;
mod synthetic;
mod tuple_merge;

pub use fuzz::fuzz_classbench;
pub use headers::HeaderStream;
pub use port_prefixes::port_prefixes;
pub use synthetic::SyntheticSet;
pub use tuple_merge::TupleMerge;
