//! An added rule, prepared for a search in the groups of its table.

use shunt_flow::{FlowKey, SparseMask};
use shunt_pipeline::{Rank, Rule};

/// The fields of a rule that every group of its table compares, computed once.
pub(super) struct RuleQuery<'r> {
    pub(super) rank: Rank,
    /// The mask of the rule.
    pub(super) mask: &'r SparseMask,
    /// Number of bits in the mask.
    pub(super) bits_count: u32,
    /// The matched values as a key; bits outside the mask are zero.
    pub(super) key: FlowKey,
}

impl<'r> RuleQuery<'r> {
    /// Returns the query for the visits that a rule affects.
    pub(super) fn of(rule: &'r Rule) -> Self {
        let (mask, key) = (rule.matching.mask(), rule.matching.key());
        Self { rank: rule.rank(), mask, bits_count: mask.bits_count(), key }
    }
}
