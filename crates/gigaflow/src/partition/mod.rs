//! Partitions a traversal into sub-traversals, each with its stage: the contract and the policies.
//!
//! The product uses [`JointPolicy`], its default, and [`MegaflowPolicy`], its fallback. The module
//! [`research`] has the policy of the paper, and policies for comparison. Only [`PolicyName`]
//! selects the policies of this module.

mod contract;
mod dp_table;
mod score;
mod shape_cache;

mod joint;
mod megaflow;

pub mod research;

mod choice;

pub use choice::{AnyPolicy, PolicyName};
pub use contract::{
    EmptyStages, PartitionPolicy, Placement, STAGES_MAX, StageId, StageSet, StageView,
};
pub use joint::JointPolicy;
pub use megaflow::MegaflowPolicy;
pub use score::Score;
