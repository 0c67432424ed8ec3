//! Changes of the sets of IPFIX collectors for packets that rules sample.

use super::ReloadStep;
use crate::{
    config::{BridgeOptions, CollectorSetOptions, Config},
    control::structure::Structure,
    error::SwitchError,
};

/// The new sets of collectors of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CollectorSetsChange {
    bridge: String,
    sets: Vec<CollectorSetOptions>,
}

impl CollectorSetsChange {
    /// Returns the step from the sets of `old` to the sets of `new`, if they differ.
    pub(super) fn step(old: &BridgeOptions, new: &BridgeOptions) -> Option<ReloadStep> {
        let (bridge, sets) = (new.name.clone(), new.collector_sets.clone());
        let differs = old.collector_sets != sets;
        differs.then_some(ReloadStep::SetCollectorSets(Self { bridge, sets }))
    }

    pub(super) async fn apply(self, structure: &Structure) -> Result<(), SwitchError> {
        structure.set_collector_sets(&self.bridge, self.sets).await
    }

    /// Undoes the change in `config`; `before` is the configuration before the reload.
    pub(super) fn undo(&self, before: &Config, config: &mut Config) {
        let old = before.bridges.iter().find(|own| own.name == self.bridge);
        let own = config.bridges.iter_mut().find(|own| own.name == self.bridge);
        if let (Some(old), Some(own)) = (old, own) {
            own.collector_sets.clone_from(&old.collector_sets);
        }
    }

    pub(super) fn description(&self) -> String {
        format!("bridge {}: collector sets changed", self.bridge)
    }
}
