//! The rule `priority=0,actions=NORMAL`, which the daemon adds to bridges without controllers.

use shunt_switch::{Switch, with_causes};
use tracing::warn;

use super::desired::{DesiredBridge, NormalRule};

/// The state of this rule in a bridge, and the daemon's handling of it.
#[derive(Debug)]
pub(super) struct NormalRuleState {
    /// The present handling of the rule.
    handling: NormalRule,
    /// True if the daemon, and not an operator, has added the rule.
    is_own: bool,
    /// Reason why the rule cannot be changed; `None` if it can.
    refusal: Option<String>,
}

/// The rule that the daemon adds to a bridge without controllers.
const NORMAL_RULE: &str = "priority=0,actions=NORMAL";

impl NormalRuleState {
    /// Adds the rule to a new bridge if its rows request it.
    ///
    /// If the rule is refused, the next call of [`Self::apply`] retries.
    pub(super) fn of_new_bridge(switch: &Switch, bridge: &DesiredBridge) -> Self {
        let new = Self { handling: NormalRule::Kept, is_own: false, refusal: None };
        if bridge.normal_rule != NormalRule::Added {
            return Self { handling: bridge.normal_rule, ..new };
        }
        match switch.declarative().add_first_rule(&bridge.options.name, NORMAL_RULE) {
            Ok(()) => Self { handling: NormalRule::Added, is_own: true, refusal: None },
            Err(error) => {
                let reason =
                    format!("{NORMAL_RULE} cannot be added, retrying: {}", with_causes(&error));
                warn!("bridge {}: {reason}", bridge.options.name);
                Self { refusal: Some(reason), ..new }
            }
        }
    }

    /// Adds or removes the rule when its handling has changed.
    ///
    /// Between such changes, operators and controllers may change the rule. If the rule cannot be
    /// changed, the reason is logged once, and the next call retries the change.
    pub(super) async fn apply(&mut self, switch: &Switch, bridge: &DesiredBridge) {
        let name = &bridge.options.name;
        if self.handling == bridge.normal_rule {
            self.refusal = None;
            return;
        }
        let changes = switch.declarative();
        let (verb, done) = match bridge.normal_rule {
            NormalRule::Added => {
                let added = changes.add_rule_if_absent(name, NORMAL_RULE).await;
                ("added", added.map(|added| self.is_own |= added))
            }
            NormalRule::Removed if self.is_own => {
                let removed = changes.remove_rule_if_equal(name, NORMAL_RULE).await;
                ("removed", removed.map(|_| self.is_own = false))
            }
            NormalRule::Removed | NormalRule::Kept => ("kept", Ok(())),
        };
        let refusal = done.err().map(|error| {
            format!("{NORMAL_RULE} cannot be {verb}, retrying: {}", with_causes(&error))
        });
        match &refusal {
            None => self.handling = bridge.normal_rule,
            Some(reason) if self.refusal.as_ref() == Some(reason) => {}
            Some(reason) => warn!("bridge {name}: {reason}"),
        }
        self.refusal = refusal;
    }

    /// Returns the reason why the rule cannot be changed; `None` if it can.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}
