//! Changes of the sets of IPFIX collectors for the packets that rules sample.

use tracing::info;

use super::structure::Structure;
use crate::{
    config::{BridgeOptions, CollectorSetOptions},
    error::SwitchError,
};

impl Structure {
    /// Replaces the sets of IPFIX collectors of a bridge.
    ///
    /// Returns when every packet thread samples for the new sets. A set that keeps its number keeps
    /// its counters.
    pub(crate) async fn set_collector_sets(
        &self,
        bridge: &str,
        sets: Vec<CollectorSetOptions>,
    ) -> Result<(), SwitchError> {
        let (id, before) = {
            let bridges = self.bridges.lock();
            let own = bridges.find(bridge)?;
            (own.id, own.settings.clone())
        };
        let after = BridgeOptions { collector_sets: sets, ..before.clone() };
        if after == before {
            return Ok(());
        }
        after.check().map_err(|error| *error.problem)?;
        self.bridges.lock().set_options(id, after.clone())?;
        self.exports.apply(id, &before, &after).await;
        let numbers: Vec<_> = after.collector_sets.iter().map(|own| own.id.to_string()).collect();
        let numbers = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
        info!("bridge {bridge}: sets of collectors: {numbers}");
        Ok(())
    }
}
