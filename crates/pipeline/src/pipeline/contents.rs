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
        let retained = self.retain_newest();
        let version = retained.version();
        BridgeContents {
            rules: self.rules_at(id, &RuleFilter::all(), version),
            groups: self.groups_at(id, version),
            meters: self.meters_at(id, version),
        }
    }
}
