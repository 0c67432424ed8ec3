//! The state of the running actions apart from the packet: bridge, rule, action set and stack.
//!
//! A clone, a bucket or a patch port saves this state with the packet, and restores both
//! afterwards. A continuation contains the state by value.

use super::{
    actions::{action_set::ActionSet, stack::Stack},
    bridge_view::BridgeView,
    rule_context::RunningRule,
};
use crate::continuations::continuation::FrozenState;

/// The bridge, the rule, the action set and the stack of the running actions.
#[derive(Clone)]
pub(super) struct ActionState<'a> {
    /// The bridge that the packet is in.
    pub(super) bridge: BridgeView<'a>,
    /// The rule with the running actions.
    pub(super) rule: RunningRule<'a>,
    pub(super) action_set: ActionSet<'a>,
    /// The values of `push` actions.
    pub(super) stack: Stack,
}

impl<'a> ActionState<'a> {
    /// Creates the state of a packet that arrives in a bridge.
    pub(super) fn new(bridge: BridgeView<'a>) -> Self {
        Self {
            bridge,
            rule: RunningRule::PACKET_OUT,
            action_set: ActionSet::default(),
            stack: Stack::default(),
        }
    }

    /// Enters the peer bridge of a patch port, with an empty action set and stack.
    pub(super) fn enter_bridge(&mut self, peer: BridgeView<'a>) {
        self.bridge = peer;
        self.action_set.clear();
        self.stack = Stack::default();
    }

    /// Continues with the state of a continuation of the same bridge.
    pub(super) fn thaw(&mut self, frozen: &'a FrozenState) {
        self.action_set.refill(&frozen.action_set);
        self.stack = frozen.stack.clone();
        self.rule = RunningRule::thawed(frozen.context, frozen.rule.as_ref());
    }
}
