//! Indexes over the sorted starts of buckets.
//!
//! Buckets divide the values of a lane into intervals. The index finds the interval of a value: the
//! last start that is not above it. [`StaticTree`] searches; a learned index predicts.

mod start_index;
mod tree;

pub use start_index::StartIndex;
pub use tree::StaticTree;
