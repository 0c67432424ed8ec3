//! Explanations: traversals with further decisions of their translations, for traces.

use shunt_flow::FlowKey;

use super::{drop_cause::TranslationNote, traversal::Traversal};

/// A traversal, with decisions and registers that its cache entry does not need.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The lookups and the result of the packet.
    pub traversal: Traversal,
    /// The decisions of the translation that the matched rules do not show.
    pub notes: Vec<TranslationNote>,
    /// The packet after all rules, with its registers.
    ///
    /// Changes for one output, such as the tags of `NORMAL`, are not included.
    pub last: FlowKey,
}
