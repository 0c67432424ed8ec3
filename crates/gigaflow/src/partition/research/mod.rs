//! Partition policies to compare with: the policy of the paper, and simpler or experimental ones.
//!
//! The configuration can select each of these policies by its name. No other code of the product
//! uses these policies.

mod disjoint;
mod first_fit;
mod first_fit_placement;
mod one_to_one;
mod profiled;
mod random;
mod sketch;

pub use disjoint::{DisjointPolicy, Ties};
pub use first_fit::FirstFitPolicy;
pub use one_to_one::OneToOnePolicy;
pub use profiled::ProfiledPolicy;
pub use random::RandomPolicy;
pub use sketch::Sketch;
