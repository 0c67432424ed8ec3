//! A rule, prepared for a search of groups.

use shunt_flow::{FlowKey, SparseMask};
use shunt_pipeline::{Rank, Rule};

/// The parts of a rule that every group of a table compares, computed once.
pub(super) struct RuleQuery<'r> {
    pub(super) rank: Rank,
    pub(super) mask: &'r SparseMask,
    pub(super) bits_count: u32,
    /// The value of the match, under its mask.
    pub(super) key: FlowKey,
}

impl<'r> RuleQuery<'r> {
    pub(super) fn of(rule: &'r Rule) -> Self {
        let (mask, key) = (rule.matching.mask(), rule.matching.key());
        Self { rank: rule.rank(), mask, bits_count: mask.bits_count(), key }
    }
}
