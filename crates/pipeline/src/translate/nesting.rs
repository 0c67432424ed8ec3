//! Nested steps: clones, buckets and peer bridges run on a copy of the packet.
//!
//! Packet and state are saved before the nested steps, and restored after them. An action that ends
//! the steps early, such as `exit`, drops all steps up to the restore.

use shunt_flow::PortNo;

use super::{
    action_state::ActionState,
    actions::action_set::ActionSet,
    agenda::{Agenda, AgendaStep},
    bridge_view::BridgeView,
    limits::LimitCounters,
    working_packet::{SavedPacket, WorkingPacket},
};
use crate::{
    action::Action, bridges::mirror_table::MirrorSet, groups::group::Bucket,
    traversals::traversal::TraversalError,
};

/// The packet and the state that a clone, a bucket or a patch port restores.
pub(super) struct SavedContext<'a> {
    /// The packet before the nested actions.
    packet: SavedPacket,
    /// The action state before the nested actions.
    state: ActionState<'a>,
    /// The depth of nesting before the nested actions.
    depth: u16,
    /// True if the packet is restored after a bucket.
    pub(super) is_bucket: bool,
    /// The mirrors that had copied the packet before a patch port; `None`: keep them.
    ///
    /// After a clone or a bucket, mirrors that have copied the copy do not copy the packet again.
    mirrored: Option<MirrorSet>,
}

/// References to the fields of a translation that nested steps save and restore.
pub(super) struct Nesting<'t, 'a> {
    pub(super) packet: &'t mut WorkingPacket,
    pub(super) state: &'t mut ActionState<'a>,
    /// The steps that remain.
    pub(super) agenda: &'t mut Agenda<'a>,
    /// The depth, lookups and recirculations so far.
    pub(super) limits: &'t mut LimitCounters,
}

impl<'a> Nesting<'_, 'a> {
    /// Runs actions and the action set on a copy of the packet, and drops the copy.
    pub(super) fn run_clone(&mut self, actions: &'a [Action]) {
        let saved = self.save();
        self.agenda.push(AgendaStep::Restore(Box::new(saved)));
        self.agenda.push(AgendaStep::ActionSet(self.state.rule.context));
        self.agenda.push(AgendaStep::Actions(actions.iter()));
    }

    /// Runs a bucket, on a copy of the packet.
    pub(super) fn run_bucket(&mut self, bucket: &'a Bucket) -> Result<(), TraversalError> {
        let saved = SavedContext { is_bucket: true, ..self.save() };
        self.limits.count_lookup(true)?;
        self.agenda.push(AgendaStep::Leave(Box::new(saved)));
        let mut set = ActionSet::default();
        set.write(&bucket.actions)?;
        self.state.rule.context.in_bucket = true;
        self.agenda.push(AgendaStep::Set(set.take().into_iter()));
        Ok(())
    }

    /// Sends the packet to a port of the peer bridge, and restores it afterwards.
    pub(super) fn enter_bridge(
        &mut self,
        peer: BridgeView<'a>,
        port: PortNo,
    ) -> Result<(), TraversalError> {
        let mirrored = Some(self.packet.mirror.done);
        let saved = SavedContext { mirrored, ..self.save() };
        self.limits.count_lookup(true)?;
        self.agenda.push(AgendaStep::Leave(Box::new(saved)));
        self.state.enter_bridge(peer);
        self.packet.enter_bridge(peer.id(), port);
        self.agenda.push(AgendaStep::Walk);
        Ok(())
    }

    /// Drops all steps up to the end of a patch port or bucket that `ends` accepts.
    pub(super) fn unwind(
        &mut self,
        ends: fn(&SavedContext<'_>) -> bool,
    ) -> Result<(), TraversalError> {
        while let Some(step) = self.agenda.pop() {
            match step {
                AgendaStep::EndVisit => self.packet.recorder.end_visit(),
                AgendaStep::RestorePacket(saved) => self.packet.restore(*saved)?,
                AgendaStep::Restore(saved) => self.restore(*saved)?,
                AgendaStep::Leave(saved) => {
                    let is_end = ends(&saved);
                    self.restore(*saved)?;
                    if is_end {
                        break;
                    }
                }
                AgendaStep::Actions(_)
                | AgendaStep::Set(_)
                | AgendaStep::Instructions(_)
                | AgendaStep::ActionSet(_)
                | AgendaStep::Buckets(_)
                | AgendaStep::Flood(_)
                | AgendaStep::NormalFlood(_)
                | AgendaStep::Multicast(_)
                | AgendaStep::Mirror(_)
                | AgendaStep::MirrorFlood(_)
                | AgendaStep::Walk
                | AgendaStep::LookUp { .. }
                | AgendaStep::Return { .. }
                | AgendaStep::EnterPeer { .. } => {}
            }
        }
        Ok(())
    }

    /// Restores the packet and the state around it.
    pub(super) fn restore(&mut self, saved: SavedContext<'a>) -> Result<(), TraversalError> {
        *self.state = saved.state;
        if let Some(mirrored) = saved.mirrored {
            self.packet.mirror.done = mirrored;
        }
        self.limits.return_to(saved.depth);
        self.packet.restore(saved.packet)
    }

    /// Saves the state that a nested translation must not change.
    fn save(&mut self) -> SavedContext<'a> {
        SavedContext {
            packet: self.packet.save(),
            state: self.state.clone(),
            depth: self.limits.depth(),
            is_bucket: false,
            mirrored: None,
        }
    }
}
