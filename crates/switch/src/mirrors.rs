//! The mirrors of a switch, for programs that embed it.

use crate::{config::MirrorOptions, error::SwitchError, switch::Switch};

impl Switch {
    /// Adds a mirror to a bridge.
    ///
    /// A mirror may name ports that do not exist yet; it uses them once they are added.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, the name is in use, or a value is not valid.
    pub async fn add_mirror(&self, bridge: &str, mirror: MirrorOptions) -> Result<(), SwitchError> {
        self.control.structure().await.add_mirror(bridge, mirror).await
    }

    /// Removes a mirror of a bridge.
    ///
    /// # Errors
    ///
    /// If the bridge or the mirror does not exist.
    pub async fn remove_mirror(&self, bridge: &str, name: &str) -> Result<(), SwitchError> {
        self.control.structure().await.remove_mirror(bridge, name).await
    }

    /// Replaces the mirrors of a bridge.
    ///
    /// Returns when the old mirrors copy no packet any more. A mirror that keeps its name keeps its
    /// counters.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or a value is not valid. After an error, no mirror has
    /// changed.
    pub async fn set_mirrors(
        &self,
        bridge: &str,
        mirrors: Vec<MirrorOptions>,
    ) -> Result<(), SwitchError> {
        self.control.structure().await.set_mirrors(bridge, mirrors).await
    }
}
