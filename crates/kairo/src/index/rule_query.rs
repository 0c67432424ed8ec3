//! A rule, as groups are searched for what it overlaps.

use shunt_flow::{FlowKey, SparseMask};
use shunt_pipeline::{Rank, Rule};

/// What is query of every group of a table, prepared once for all of them.
pub(super) struct RuleQuery<'r> {
    pub(super) rank: Rank,
    pub(super) mask: &'r SparseMask,
    pub(super) bits_count: u32,
    /// What it matches under its mask.
    pub(super) key: FlowKey,
}

impl<'r> RuleQuery<'r> {
    pub(super) fn of(rule: &'r Rule) -> Self {
        let (mask, key) = (rule.matching.mask(), rule.matching.key());
        Self { rank: rule.rank(), mask, bits_count: mask.bits_count(), key }
    }
}
