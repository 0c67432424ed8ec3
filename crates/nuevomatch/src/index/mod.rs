//! Indexes over the sorted starts of buckets.
//!
//! Buckets divide the values of a lane into intervals. An index finds the interval of a value: the
//! last start that is at most the value. [`StaticTree`] searches a tree. [`LinearSegments`] and
//! [`CertifiedModel`](crate::rqrmi::CertifiedModel) predict the position of the start, and search
//! around this position. [`AnyStartIndex`] is one of the three, chosen at run time.

mod any_start_index;
mod segments;
mod start_index;
mod tree;
mod window;

pub use any_start_index::{AnyStartIndex, StartIndexKind};
pub use segments::{LinearSegments, SegmentSettings};
pub use start_index::StartIndex;
pub use tree::StaticTree;

pub(crate) use start_index::{check_count, check_starts};
pub(crate) use window::{FindBatch, FindLanes, SortedStarts, Windows};

#[cfg(test)]
pub(crate) mod test_starts;
