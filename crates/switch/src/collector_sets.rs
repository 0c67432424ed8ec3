//! Sets of IPFIX collectors of sampled packets, for programs with a switch.

use crate::{config::CollectorSetOptions, error::SwitchError, switch::Switch};

impl Switch {
    /// Replaces the sets of IPFIX collectors of a bridge.
    ///
    /// Rules name a set in their action `sample`. A rule takes no samples for a set that does not
    /// exist. A set that keeps its number keeps its counters.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or a value is not valid. After an error, no set has changed.
    pub async fn set_collector_sets(
        &self,
        bridge: &str,
        sets: Vec<CollectorSetOptions>,
    ) -> Result<(), SwitchError> {
        self.control.structure().await.set_collector_sets(bridge, sets).await
    }
}
