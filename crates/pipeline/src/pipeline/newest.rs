//! Translations by the tables as they are now.

use std::sync::Arc;

use shunt_flow::FlowKey;

use super::Pipeline;
use crate::{
    action::Action, continuations::continuation::Continuation, translate,
    traversals::traversal::Traversal,
};

impl Pipeline {
    /// Takes a packet through the tables as they are now, for who stands at no version of its own:
    /// no reclaim comes between looking which version is the newest and translating by it.
    #[must_use]
    pub fn translate_newest(&self, key: &FlowKey) -> Traversal {
        let bridges = self.bridges.read();
        translate::packet(self.tables(&bridges, self.version()), key)
    }

    /// Goes on with a packet where a traversal was cut, as [`Self::translate_newest`] does.
    #[must_use]
    pub fn resume_newest(&self, key: &FlowKey, continuation: &Arc<Continuation>) -> Traversal {
        let bridges = self.bridges.read();
        translate::resume(self.tables(&bridges, self.version()), key, continuation)
    }

    /// Runs the actions of a packet-out on a packet, as [`Self::translate_newest`] does its rules.
    #[must_use]
    pub fn translate_actions_newest(&self, key: &FlowKey, actions: &[Action]) -> Traversal {
        let bridges = self.bridges.read();
        translate::packet_out(self.tables(&bridges, self.version()), key, actions)
    }
}
