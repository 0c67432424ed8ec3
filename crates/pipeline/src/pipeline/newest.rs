//! Translations by the newest version of the tables.

use std::sync::Arc;

use shunt_flow::FlowKey;

use super::Pipeline;
use crate::{
    action::Action, continuations::continuation::Continuation, translate,
    traversals::traversal::Traversal,
};

impl Pipeline {
    /// Translates a packet by the newest version of the tables.
    ///
    /// For callers that hold no version. The lock spans the choice of the version and the
    /// translation, so no reclaim comes between them.
    #[must_use]
    pub fn translate_newest(&self, key: &FlowKey) -> Traversal {
        let bridges = self.bridges.read();
        translate::packet(self.tables(&bridges, self.version()), key)
    }

    /// Continues with a packet after a recirculation, as [`Self::translate_newest`]
    /// does.
    #[must_use]
    pub fn resume_newest(&self, key: &FlowKey, continuation: &Arc<Continuation>) -> Traversal {
        let bridges = self.bridges.read();
        translate::resume(self.tables(&bridges, self.version()), key, continuation)
    }

    /// Runs the actions of a packet-out, as [`Self::translate_newest`] runs rules.
    #[must_use]
    pub fn translate_actions_newest(&self, key: &FlowKey, actions: &[Action]) -> Traversal {
        let bridges = self.bridges.read();
        translate::packet_out(self.tables(&bridges, self.version()), key, actions)
    }
}
