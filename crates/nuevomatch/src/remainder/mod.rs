//! The rules that no iSet holds.
//!
//! A few rules are one list, in the order of ranks. More are hash tables by the bits that they fix,
//! as in TupleMerge: a rule may be in a table of fewer bits, so that few tables suffice.

mod list;
mod rest;
mod tuples;

pub(crate) use rest::{AcceptAll, BestRanks, LIST_RULES_MAX, RankFilter, Remainder};
pub(crate) use tuples::table_tuple;
