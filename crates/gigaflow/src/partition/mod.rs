//! Cuts a way into pieces, each with its stage: the contract and seven policies behind it.

mod board;
mod contract;
mod place;
mod score;
mod shapes;

mod disjoint;
mod first_fit;
mod joint;
mod one_to_one;
mod profiled;
mod random;
mod whole;

mod choice;

pub use choice::{AnyPolicy, PolicyName};
pub use contract::{Piece, Policy, STAGES_MAX, StageId, StageSet, Stages};
pub use disjoint::{Disjoint, Ties};
pub use first_fit::FirstFit;
pub use joint::Joint;
pub use one_to_one::OneToOne;
pub use profiled::Profiled;
pub use random::Random;
pub use score::Score;
pub use whole::Whole;
