//! Blocks of 16 rules that are compared with a key at once.

mod arena;
mod layout;

pub(crate) use arena::{BUCKET_RULES_MAX, BlockRun, RuleArena};
pub(crate) use layout::{BlockLayout, FIVE_TUPLE_LINES, LaneKind, LayoutDemand, Quarter};
