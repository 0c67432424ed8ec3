//! Bundles: requests of several kinds that become one version, in order.
//!
//! Each request takes effect in the tables at once, in a version that is not published yet (see
//! [`UpdateBatch`]). So a packet of a bundle is translated by the requests before it: later
//! rules are not in the tables yet. When a request is refused, the translations are dropped with
//! the version (OpenFlow 1.4.1, 7.3.9.2; so does Open vSwitch).
//!
//! The caller applies the learn requests of the packets after the commit, as for every packet.

use shunt_flow::{FlowKey, PortNo};

use super::{
    batch::UpdateBatch,
    check::check_actions,
    modification::{Modification, ModificationError},
};
use crate::{
    action::Action,
    bridges::{
        bridge::{VersionedBridge, VersionedBridges},
        port::{PortConfig, PortInfo},
    },
    error::RejectedMod,
    id::BridgeId,
    pipeline::{Change, Pipeline},
    time::Time,
    traversals::traversal::Traversal,
    versions::delta::Delta,
};

/// A request of a bundle.
#[derive(Clone, Debug)]
pub enum BundleStep {
    /// Change rules, groups or meters.
    Modify(Modification),
    /// Change the settings of a port that controllers can change.
    Port(PortNo, PortConfig),
    /// Run actions on a packet; see [`Pipeline::translate_actions`].
    Packet {
        /// The key of the packet, with the bridge and the ingress port.
        key: Box<FlowKey>,
        /// The actions to run on the packet.
        actions: Vec<Action>,
    },
}

impl Pipeline {
    /// Applies the requests of a bundle, in order, as one version: all of them or none.
    ///
    /// The function also returns the traversals of the bundle's packets.
    ///
    /// # Errors
    ///
    /// Returns the first request that was refused, and the reason. After an error, nothing has
    /// changed, and no version was published.
    pub fn commit(
        &self,
        id: BridgeId,
        steps: impl IntoIterator<Item = BundleStep>,
        now: Time,
    ) -> Result<(Change, Vec<Traversal>), RejectedMod> {
        let mut traversals = Vec::new();
        let change = self.change(id, steps, now, |batch, bridges, step| {
            let bridge = own(bridges, id)?;
            match step {
                BundleStep::Modify(request) => batch.modify(id, bridge, request)?,
                BundleStep::Port(port, config) => batch.set_port(id, bridge, port, config)?,
                BundleStep::Packet { key, actions } => {
                    check_actions(bridge, &[&actions], batch.version())?;
                    traversals.push(self.run_actions(bridges, &key, &actions, batch.version()));
                }
            }
            Ok(())
        })?;
        // A bundle that has only packets makes no version.
        traversals.iter_mut().for_each(|traversal| traversal.version = change.version);
        Ok((change, traversals))
    }
}

impl UpdateBatch {
    /// Changes the settings of a port that controllers can change.
    fn set_port(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        port: PortNo,
        config: PortConfig,
    ) -> Result<(), ModificationError> {
        let version = self.version();
        let ports = bridge.ports(version).ok_or(ModificationError::NoSuchBridge(id))?;
        let own = ports.find(port).ok_or(ModificationError::NoSuchPort(port))?;
        let changed = PortInfo { config, ..own.clone() };
        let change = bridge.replace_port(changed, version);
        debug_assert!(change.cleared().is_empty(), "controllers change no VLANs and no bonds");
        change.objects(id).into_iter().for_each(|object| self.push(Delta::Changed(object)));
        Ok(())
    }
}

/// Returns the bridge `id` for changes, or an error if it does not exist.
pub(crate) fn own(
    bridges: &mut VersionedBridges,
    id: BridgeId,
) -> Result<&mut VersionedBridge, ModificationError> {
    bridges.get_mut(&id).ok_or(ModificationError::NoSuchBridge(id))
}
