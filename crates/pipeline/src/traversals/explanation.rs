//! A translation with what its traversal does not keep, for traces.

use shunt_flow::FlowKey;

use super::{drop_cause::TranslationNote, traversal::Traversal};

/// A traversal with what only its translation knows.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The traversal.
    pub traversal: Traversal,
    /// The decisions that rules do not show.
    pub notes: Vec<TranslationNote>,
    /// The packet after all rules, with its registers.
    ///
    /// Changes for one output, such as those of `NORMAL`, are not in it.
    pub last: FlowKey,
}
