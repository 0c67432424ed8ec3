//! One-line names of workloads: `psc:high:100k:seed=1`.
//!
//! A name says all of a workload: what the rules are made of, how flows are drawn from them, how
//! many there are, and what else differs from the usual. Whoever has the name has the workload.
//!
//! ```text
//! SOURCE [:LOCALITY] [:FLOWS] [:KEY=VALUE]..
//! ```
//!
//! [`SOURCES`] and [`KEYS`] list what can stand there.

mod key;
mod number;
mod parse;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub use key::{KEYS, Key};
pub use number::parse_count;
pub(crate) use number::{count, time};
pub use source::{FilterName, SOURCES, Source, SourceName};
pub use value::{Arrival, Name, Terminals, Updates};
