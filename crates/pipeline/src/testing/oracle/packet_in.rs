//! Packet-ins in the oracle.

use super::{
    effects::{Outcome, Punted, state},
    walker::Walker,
};
use crate::{
    action::{ControllerAction, PacketInReason},
    id::Cookie,
    traversals::traversal::TraversalError,
};

impl Walker<'_> {
    /// Sends a packet-in, unless a meter drops it. A packet that pauses ends here.
    #[inline(never)]
    pub(super) fn controller(&mut self, asked: &ControllerAction) -> Result<(), TraversalError> {
        let (packet, was_muted) = (self.packet.clone(), self.is_muted);
        // The packet-in has a copy of the packet.
        let outer = self.passes.begin_packet_in();
        if let Some(meter) = asked.meter.filter(|_| self.reported_reason(asked.reason).is_some()) {
            self.meter(meter);
        }
        self.punt(asked.reason, asked.controller_id, asked.max_len, &asked.userdata);
        self.passes.end_packet_in(outer);
        (self.packet, self.is_muted) = (packet, was_muted);
        if asked.pause {
            self.mirrored_at_cut.get_or_insert_with(|| self.mirrored.clone());
            return Err(self.passes.pause(self.resubmits));
        }
        Ok(())
    }

    /// Returns the reason that a packet-in contains, if there is one.
    fn reported_reason(&self, reason: PacketInReason) -> Option<PacketInReason> {
        let is_miss = self
            .rule
            .as_ref()
            .is_some_and(|rule| rule.priority.number() == 0 && rule.matching.mask().is_empty());
        let reason = match reason {
            PacketInReason::Action if is_miss => PacketInReason::NoMatch,
            reason => reason,
        };
        let port = self.port(self.packet.key.in_port());
        let is_quiet = port.is_some_and(|port| port.config.no_packet_in);
        Some(reason).filter(|reason| *reason != PacketInReason::NoMatch || !is_quiet)
    }

    /// Sends a packet that no rule of the first table matches.
    pub(super) fn punt_miss(&mut self) {
        self.punt_with(Cookie::new(0), PacketInReason::NoMatch, 0, u16::MAX, &[]);
    }

    /// Sends the packet to a controller.
    pub(super) fn punt(
        &mut self,
        reason: PacketInReason,
        controller_id: u16,
        max_len: u16,
        userdata: &[u8],
    ) {
        let cookie = self.rule.as_ref().map_or(Cookie::new(u64::MAX), |rule| rule.cookie);
        self.punt_with(cookie, reason, controller_id, max_len, userdata);
    }

    /// Records a packet-in for a controller, unless its reason is suppressed.
    #[inline(never)]
    fn punt_with(
        &mut self,
        cookie: Cookie,
        reason: PacketInReason,
        controller_id: u16,
        max_len: u16,
        userdata: &[u8],
    ) {
        let Some(reason) = self.reported_reason(reason) else { return };
        let key = self.packet.key();
        let punted = Punted {
            place: (self.id(), self.table),
            reason,
            cookie,
            controller_id,
            max_len,
            userdata: userdata.to_vec(),
            state: state(&key),
        };
        if !self.is_muted {
            let headers = Outcome::headers(&self.packet.frame().view());
            self.passes.emit(Outcome::Punted(punted, headers));
        }
    }
}
