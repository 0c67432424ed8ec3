//! The LACP actors of all bonds, for the task that runs them.

use shunt_flow::PortNo;
use shunt_lacp::LacpEvent;
use shunt_pipeline::{BridgeId, Time};

use crate::ports::{
    lacp::{LacpActor, LacpFrame},
    registry::BridgeRegistry,
};

/// The results of all LACP actors.
#[derive(Default)]
pub(crate) struct LacpOutputs {
    /// Frames to send, with their bridges.
    pub(crate) frames: Vec<(BridgeId, LacpFrame)>,
    /// Changes by bond and member.
    pub(crate) events: Vec<(String, String, LacpEvent)>,
}

impl BridgeRegistry {
    /// Returns whether some bond uses LACP.
    pub(crate) fn uses_lacp(&self) -> bool {
        self.iter().flat_map(|bridge| bridge.bonds.values()).any(|bond| bond.lacp().is_some())
    }

    /// Returns the time of the next call of [`Self::run_lacp`].
    pub(crate) fn next_lacp_deadline(&self) -> Option<Time> {
        let bonds = self.iter().flat_map(|bridge| bridge.bonds.values());
        bonds.filter_map(|bond| bond.lacp()?.deadline()).min()
    }

    /// Runs the LACP actors of all bonds.
    pub(crate) fn run_lacp(&mut self, now: Time) -> LacpOutputs {
        let mut outputs = LacpOutputs::default();
        for bridge in self.iter_mut() {
            for (bond, state) in &mut bridge.bonds {
                let Some(actor) = state.lacp_mut() else { continue };
                let (frames, events) = actor.run(now);
                let id = bridge.id;
                outputs.frames.extend(frames.into_iter().map(|frame| (id, frame)));
                let named = events.into_iter().map(|(member, event)| (bond.clone(), member, event));
                outputs.events.extend(named);
            }
        }
        outputs
    }

    /// Returns the LACP actor of the bond of a port, with the name of the bond.
    pub(crate) fn lacp_actor_mut(
        &mut self,
        bridge: BridgeId,
        port: PortNo,
    ) -> Option<(&str, &mut LacpActor)> {
        let mut bonds = self.by_id_mut(bridge)?.bonds.iter_mut();
        bonds.find_map(|(bond, state)| {
            let actor = state.lacp_mut().filter(|actor| actor.has(port))?;
            Some((bond.as_str(), actor))
        })
    }
}
