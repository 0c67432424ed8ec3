//! All objects of a bridge at one version.

use std::sync::Arc;

use super::Pipeline;
use crate::{
    groups::group::Group,
    id::BridgeId,
    meters::meter::Meter,
    tables::{rule::Rule, rule_filter::RuleFilter},
};

/// The rules, groups and meters of a bridge at one version.
///
/// The contents have all changes of a bundle, or none of them.
#[derive(Clone, Debug, Default)]
pub struct BridgeContents {
    /// The rules, by table and then by age.
    pub rules: Vec<Arc<Rule>>,
    /// The groups, by number.
    pub groups: Vec<Arc<Group>>,
    /// The meters, by number.
    pub meters: Vec<Arc<Meter>>,
}

impl Pipeline {
    /// Returns the rules, groups and meters of a bridge at the newest version.
    ///
    /// Empty without such a bridge.
    #[must_use]
    pub fn contents(&self, id: BridgeId) -> BridgeContents {
        let bridges = self.bridges.read();
        let version = self.version();
        let Some(bridge) = bridges.get(&id) else { return BridgeContents::default() };
        BridgeContents {
            rules: bridge.rules(&RuleFilter::all(), version),
            groups: bridge.groups.iter(version).map(|(_, group)| Arc::clone(group)).collect(),
            meters: bridge.meters.iter(version).map(|(_, meter)| Arc::clone(meter)).collect(),
        }
    }
}
