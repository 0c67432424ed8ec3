//! `check_pkt_larger`: the datapath compares the length, and continues with the result.

use crate::{
    action::{Action, Subfield},
    continuations::continuation::{Continuations, FrozenState, FrozenStep},
    traversals::datapath_action::DatapathAction,
};

/// `check_pkt_larger`: returns the datapath action that ends the cache entry.
///
/// The action has one continuation for each result of the comparison. Each continuation has the
/// result in `target`.
pub(in crate::translate) fn check_length(
    continuations: &Continuations,
    frozen: &FrozenState,
    length: u16,
    target: Subfield,
) -> DatapathAction {
    let with_bit = |value| {
        let mut frozen = frozen.clone();
        frozen.steps.push(FrozenStep::Actions(vec![Action::Load { target, value }]));
        continuations.intern(frozen, None)
    };
    let (larger, other) = (with_bit(1), with_bit(0));
    DatapathAction::CheckLength { length, larger, other }
}
