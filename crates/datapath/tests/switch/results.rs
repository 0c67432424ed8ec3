//! A cache of the oracle's results, by version and packet.
//!
//! Tests send the same few packets again and again, so the oracle translates each packet once for
//! each version.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use shunt_flow::FlowKey;
use shunt_pipeline::{
    Version,
    testing::{NetworkModel, PacketEffects},
};

/// Maximum number of lookups of a packet; the test does not send costlier packets.
///
/// Switch and oracle need seconds for a packet that recirculates again and again.
const LOOKUPS_MAX: usize = 20_000;

/// Number of lookups of all packets after which the test of a network ends early.
const LOOKUPS_PER_NETWORK: usize = 1_000_000;

/// The models of all versions, and the results of packets in these models.
pub(crate) struct Results {
    pub(crate) models: BTreeMap<Version, NetworkModel>,
    /// The results by version and flow key; `None` for too many lookups.
    known: BTreeMap<Version, HashMap<FlowKey, Option<Arc<PacketEffects>>>>,
    lookups: usize,
}

impl Results {
    pub(crate) fn new(version: Version, model: NetworkModel) -> Self {
        Self { models: BTreeMap::from([(version, model)]), known: BTreeMap::new(), lookups: 0 }
    }

    /// Returns whether a packet needs too many lookups in the newest version.
    pub(crate) fn is_costly(&mut self, key: &FlowKey) -> bool {
        let (version, model) = self.models.last_key_value().expect("the newest is kept");
        let known = self.known.entry(*version).or_default();
        let translate = || model.translate_within(key, LOOKUPS_MAX).map(Arc::new);
        known.entry(key.clone()).or_insert_with(translate).is_none()
    }

    /// Returns the results of a packet that a thread has processed at `version`.
    pub(crate) fn of(&mut self, version: Version, key: &FlowKey) -> Arc<PacketEffects> {
        let known = self.known.entry(version).or_default();
        let result = known.entry(key.clone()).or_default();
        let translate = || Arc::new(self.models[&version].translate(key));
        let effects = result.get_or_insert_with(translate);
        self.lookups += effects.visited.len();
        Arc::clone(effects)
    }

    /// Returns whether the packets of the network have used up its lookups.
    pub(crate) const fn are_enough(&self) -> bool {
        self.lookups >= LOOKUPS_PER_NETWORK
    }

    /// Forgets models and results of versions before `oldest`.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.models.retain(|version, _| *version >= oldest);
        self.known.retain(|version, _| *version >= oldest);
    }
}
