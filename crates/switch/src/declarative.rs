//! Changes for a program that keeps the switch equal to a declared state, such as a database.
//!
//! Such a program repeats its changes until they are in force. A missing device or address must
//! therefore not refuse a change. Otherwise the switch would add and remove a port again and again,
//! and controllers would get a notification each time.

use shunt_pipeline::{FlowMod, FlowModCommand, RuleFilter, text::parse_rule};

use crate::{
    Switch,
    config::{BridgeOptions, PortOptions},
    control::{ControlPlane, settings::SettingOrigin, structure::OpenPolicy},
    error::SwitchError,
    ports::names::BridgeNames,
};

/// Changes that do not fail because of a missing device or address.
#[derive(Clone, Copy)]
pub struct DeclarativeChanges<'a> {
    pub(crate) switch: &'a Switch,
    pub(crate) control: &'a ControlPlane,
}

impl DeclarativeChanges<'_> {
    /// Adds a bridge and its ports; opening a device is retried until it succeeds.
    ///
    /// # Errors
    ///
    /// If a name or number is in use, or a value is not valid.
    pub async fn add_bridge(&self, bridge: &BridgeOptions) -> Result<(), SwitchError> {
        self.control.structure().await.create_bridge(bridge, OpenPolicy::Retried, &mut |_| ()).await
    }

    /// Checks whether a bridge could replace the bridge of the same name.
    ///
    /// # Errors
    ///
    /// If no bridge has this name, a value is not valid, or another bridge has the device or the
    /// name of a bond.
    pub async fn check_replacement(&self, bridge: &BridgeOptions) -> Result<(), SwitchError> {
        self.control.structure().await.check_replacement(bridge)
    }

    /// Changes several settings of a bridge in one step,
    /// as [`Switch::set_bridge`] does.
    ///
    /// Opening an address that cannot be used is retried.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, a key cannot change, or a value is not valid. After an error,
    /// no setting has changed.
    pub async fn set_bridge(
        &self,
        name: &str,
        settings: &[(&str, &str)],
    ) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        let (policy, origin) = (OpenPolicy::Retried, SettingOrigin::Database);
        structure.set_bridge(name, settings, policy, origin).await
    }

    /// Adds a port to a bridge.
    ///
    /// A port that cannot be opened is down, and opening is retried.
    /// [`BridgePortStatus::trouble`](crate::BridgePortStatus::trouble) has the reason.
    ///
    /// # Errors
    ///
    /// If a name or number is in use, or a value is not valid.
    pub async fn add_port(&self, bridge: &str, port: PortOptions) -> Result<(), SwitchError> {
        port.check()?;
        let structure = self.control.structure().await;
        structure.add_configured_port(bridge, port, None, OpenPolicy::Retried).await.map(|_| ())
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

    fn parse(&self, bridge: &str, rule: &str) -> Result<FlowMod, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        let names = BridgeNames::new(self.control.plane.pipeline(), id);
        Ok(parse_rule(FlowModCommand::Add, rule, &names)?)
    }

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
    /// Table, match and priority.
    Place,
    /// Table, match, priority, cookie and instructions.
    Everything,
}
