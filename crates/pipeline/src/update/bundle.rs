//! Bundles: requests of several kinds that become one version, each at its place.
//!
//! What a request does is in the tables at once, in a version that nobody sees yet (see
//! [`crate::apply`]). So a packet of a bundle can be translated by just what stands before it there:
//! the rules that follow are not in the tables yet. When a request is refused, what was translated is
//! thrown away with the version (OpenFlow 1.4.1, 7.3.9.2; so does Open vSwitch).
//!
//! What packets of a bundle teach is not learned here: its caller does that afterwards, as for any
//! packet.

use shunt_flow::{FlowKey, PortNo};

use super::{
    batch::Batch,
    check::check_actions,
    modification::{Modification, ModificationError},
};
use crate::{
    action::Action,
    bridges::{
        bridge::{Bridge, Bridges},
        port::PortConfig,
    },
    error::RejectedMod,
    id::BridgeId,
    pipeline::{Change, Pipeline},
    time::Time,
    traversals::traversal::Traversal,
};

/// A request of a bundle.
#[derive(Clone, Debug)]
pub enum BundleStep {
    /// Change rules, groups or meters.
    Modify(Modification),
    /// Set what controllers can set of a port.
    Port(PortNo, PortConfig),
    /// Run actions on a packet; see [`Pipeline::translate_actions`].
    Packet {
        /// The packet; it names the bridge and the ingress port.
        key: Box<FlowKey>,
        /// What to do with it.
        actions: Vec<Action>,
    },
}

impl Pipeline {
    /// Does what a bundle asks for, in order, as one version: all of it, or nothing. Answers with
    /// what becomes of its packets, too.
    ///
    /// # Errors
    ///
    /// The first request that is refused, and why. Then nothing was changed and no version was
    /// published.
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
                BundleStep::Port(port, config) => batch.set_port(id, bridge, (port, config))?,
                BundleStep::Packet { key, actions } => {
                    check_actions(bridge, &[&actions], batch.version())?;
                    traversals.push(self.run_actions(bridges, &key, &actions, batch.version()));
                }
            }
            Ok(())
        })?;
        // A bundle of packets alone makes no version.
        traversals.iter_mut().for_each(|traversal| traversal.version = change.version);
        Ok((change, traversals))
    }
}

impl Batch {
    /// Sets what controllers can set of a port.
    fn set_port(
        &mut self,
        id: BridgeId,
        bridge: &mut Bridge,
        (port, config): (PortNo, PortConfig),
    ) -> Result<(), ModificationError> {
        let version = self.version();
        let ports = bridge.ports(version).map(|table| table.ports().to_vec());
        let mut ports = ports.ok_or(ModificationError::NoSuchBridge(id))?;
        let own = ports.iter_mut().find(|own| own.number == port);
        own.ok_or(ModificationError::NoSuchPort(port))?.config = config;
        bridge.replace_ports(id, ports, version).into_iter().for_each(|delta| self.push(delta));
        Ok(())
    }
}

/// The bridge of a request.
pub(crate) fn own(bridges: &mut Bridges, id: BridgeId) -> Result<&mut Bridge, ModificationError> {
    bridges.get_mut(&id).ok_or(ModificationError::NoSuchBridge(id))
}
