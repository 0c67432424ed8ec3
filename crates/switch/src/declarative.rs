//! Rules of a program that keeps the switch equal to a declared state, such as a database.
//!
//! Such a program changes bridges and ports by [`Switch::apply_difference`].

use shunt_pipeline::{FlowMod, FlowModCommand, Modification, RuleFilter, text::parse_rule};

use crate::{Switch, control::ControlPlane, error::SwitchError, ports::names::BridgeNames};

/// Changes of single rules that a program declares.
#[derive(Clone, Copy)]
pub struct DeclarativeChanges<'a> {
    pub(crate) switch: &'a Switch,
    pub(crate) control: &'a ControlPlane,
}

impl DeclarativeChanges<'_> {
    /// Adds a rule to a new bridge, without waiting for the packet threads.
    ///
    /// The function can be called while the bridge is added, as by
    /// [`Switch::apply_difference`]. The rule has the syntax of `ovs-ofctl add-flow`.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, the text is not a rule, or the rule is refused.
    pub fn add_first_rule(&self, bridge: &str, rule: &str) -> Result<(), SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        let mods = vec![Modification::Flow(self.parse(bridge, rule)?)];
        let plane = &self.control.plane;
        let now = plane.now();
        plane.publisher().change(|pipeline| pipeline.modify(id, mods, now))?;
        Ok(())
    }

    /// Adds a rule unless the bridge has a rule with the same table,
    /// match and priority.
    ///
    /// The rule has the syntax of `ovs-ofctl add-flow`. Returns whether the rule was added.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, the text is not a rule, or the rule is refused.
    pub async fn add_rule_if_absent(&self, bridge: &str, rule: &str) -> Result<bool, SwitchError> {
        let wanted = self.parse(bridge, rule)?;
        if self.has_rule(bridge, &wanted, RulePart::Place)? {
            return Ok(false);
        }
        self.switch.apply_flow_mods(bridge, &[wanted]).await.map(|_| true)
    }

    /// Removes a rule if it is equal to a text in the syntax of `ovs-ofctl add-flow`.
    ///
    /// A rule with other actions or another cookie stays. Returns whether the rule was removed.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or the text is not a rule.
    pub async fn remove_rule_if_equal(
        &self,
        bridge: &str,
        rule: &str,
    ) -> Result<bool, SwitchError> {
        let wanted = self.parse(bridge, rule)?;
        if !self.has_rule(bridge, &wanted, RulePart::Everything)? {
            return Ok(false);
        }
        let removal =
            FlowMod { command: FlowModCommand::DeleteStrict, cookie_mask: u64::MAX, ..wanted };
        self.switch.apply_flow_mods(bridge, &[removal]).await.map(|_| true)
    }

    /// Parses the text of a rule.
    fn parse(&self, bridge: &str, rule: &str) -> Result<FlowMod, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        let names = BridgeNames::new(self.control.plane.pipeline(), id);
        Ok(parse_rule(FlowModCommand::Add, rule, &names)?)
    }

    /// Returns whether a bridge has the rule, as far as `part` requires.
    fn has_rule(
        &self,
        bridge: &str,
        wanted: &FlowMod,
        part: RulePart,
    ) -> Result<bool, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        let (table, matching) = (wanted.table, wanted.matching.clone());
        let filter = RuleFilter { table, matching, ..RuleFilter::all() };
        let rules = self.control.plane.pipeline().rules(id, &filter);
        Ok(rules.iter().any(|rule| {
            let is_same_place =
                rule.matching == wanted.matching && rule.priority == wanted.priority;
            let is_equal =
                || rule.cookie == wanted.cookie && *rule.instructions == wanted.instructions;
            is_same_place && (part == RulePart::Place || is_equal())
        }))
    }
}

/// The parts of two rules that are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RulePart {
    /// The table, the match and the priority.
    Place,
    /// Table, match, priority, cookie and instructions.
    Everything,
}
