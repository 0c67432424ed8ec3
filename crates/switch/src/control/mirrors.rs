//! Changes of mirrors.

use shunt_pipeline::BridgeId;
use tracing::info;

use super::{
    mirror_log::MirrorChange,
    settings::{bridge_settings, set_tables},
    structure::Structure,
};
use crate::{
    config::{BridgeOptions, MirrorOptions},
    error::SwitchError,
};

impl Structure {
    /// Adds a mirror to a bridge; replaces a mirror with the same name.
    pub(crate) async fn set_mirror(
        &self,
        bridge: &str,
        mirror: MirrorOptions,
    ) -> Result<(), SwitchError> {
        let mut mirrors = self.bridge_options(bridge)?.1.mirrors;
        match mirrors.iter_mut().find(|own| own.name == mirror.name) {
            Some(own) => *own = mirror,
            None => mirrors.push(mirror),
        }
        self.set_mirrors(bridge, mirrors).await
    }

    /// Removes a mirror of a bridge, if it exists.
    pub(crate) async fn remove_mirror(&self, bridge: &str, name: &str) -> Result<(), SwitchError> {
        let mut mirrors = self.bridge_options(bridge)?.1.mirrors;
        mirrors.retain(|own| own.name != name);
        self.set_mirrors(bridge, mirrors).await
    }

    /// Replaces the mirrors of a bridge.
    ///
    /// Returns when no packet uses the old mirrors. A mirror that keeps its name keeps its
    /// counters.
    async fn set_mirrors(
        &self,
        bridge: &str,
        mirrors: Vec<MirrorOptions>,
    ) -> Result<(), SwitchError> {
        let (id, before) = self.bridge_options(bridge)?;
        let after = BridgeOptions { mirrors, ..before.clone() };
        if after == before {
            return Ok(());
        }
        after.check().map_err(|error| *error.problem)?;
        self.bridges.lock().set_options(id, after.clone())?;
        let tables = bridge_settings(&after);
        // The bridge still exists, because only this task changes bridges.
        let _ = self.plane.publisher().change(|pipeline| set_tables(pipeline, id, tables));
        self.plane.adopted_newest().await;
        let is_in =
            |mirrors: &[MirrorOptions], name: &str| mirrors.iter().any(|own| own.name == name);
        for MirrorOptions { name, .. } in &before.mirrors {
            if !is_in(&after.mirrors, name) {
                info!("mirror {name}: removed from {bridge}");
            }
        }
        for mirror in after.mirrors.iter().filter(|own| !before.mirrors.contains(own)) {
            let name = &mirror.name;
            let done = if is_in(&before.mirrors, name) { "changed on" } else { "added to" };
            info!("mirror {name}: {done} {bridge}");
        }
        Ok(())
    }

    /// Logs the mirrors that have begun or ceased to lack a port.
    pub(super) fn log_mirrors(&mut self) {
        let changes = self.mirror_log.update(&self.bridges.lock());
        changes.iter().for_each(MirrorChange::log);
    }

    /// Copies the options of a bridge.
    fn bridge_options(&self, name: &str) -> Result<(BridgeId, BridgeOptions), SwitchError> {
        let bridges = self.bridges.lock();
        let bridge = bridges.find(name)?;
        Ok((bridge.id, bridge.settings.clone()))
    }
}
