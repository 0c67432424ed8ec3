//! Blocks of 16 rules, which are compared with a key at once.

mod arena;
mod five_tuple;
mod layout;

pub(crate) use arena::{BUCKET_RULES_MAX, BlockRun, RuleArena};
pub(crate) use five_tuple::{
    FiveTupleBlock, five_tuple_rank, match_block as match_five_tuples, packed_key,
};
pub(crate) use layout::{ArrayOffset, BlockLayout, LaneKind, LayoutDemand};
