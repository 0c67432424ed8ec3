//! The remainder: the rules that no iSet holds.
//!
//! A short remainder is one list in the order of ranks. A longer remainder has hash tables by the
//! bits that rules fix, as in TupleMerge. A rule may be in a table of fewer bits than it fixes, so
//! that few tables are enough.

mod list;
mod rest;
mod tuples;

pub(crate) use rest::{AcceptAll, BestRanks, LIST_RULES_MAX, RankFilter, Remainder};
pub(crate) use tuples::table_tuple;
