//! The collectors of packets that rules sample, for programs.

use crate::{config::CollectorSetOptions, error::SwitchError, switch::Switch};

impl Switch {
    /// Replaces the sets of collectors of a bridge.
    ///
    /// Rules name a set in their action `sample`. Samples for a set that does not exist are not taken.
    /// A set with an old number keeps its counters.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or a value is not valid; then nothing changes.
    pub async fn set_collector_sets(
        &self,
        bridge: &str,
        sets: Vec<CollectorSetOptions>,
    ) -> Result<(), SwitchError> {
        self.control.structure().await.set_collector_sets(bridge, sets).await
    }
}
