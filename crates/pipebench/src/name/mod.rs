//! One-line names of workloads: `psc:high:100k:seed=1`.
//!
//! A name defines a workload completely: the source of its rules, how flows are sampled from them,
//! their number, and all settings other than the defaults.
//!
//! ```text
//! SOURCE [:LOCALITY] [:FLOWS] [:KEY=VALUE]..
//! ```
//!
//! [`SOURCES`] and [`KEYS`] list the possible parts.

mod key;
mod number;
mod parse;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub use key::{KEYS, NameKey};
pub use number::parse_count;
pub(crate) use number::{count, time};
pub use source::{FilterName, SOURCES, SourceName, SourceWord};
pub use value::{FlowArrival, RuleUpdates, Terminals, WorkloadName};
