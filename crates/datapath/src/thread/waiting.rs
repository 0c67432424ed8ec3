//! Packets that missed: looked up again, translated, executed; a bounded number each turn.
//!
//! Each port has a queue of its own and ports take turns, so one that sends nothing but new flows
//! delays the misses of others by one translation, not by its whole queue. Within a port packets
//! stay in order.
//!
//! A packet in a queue has its original headers. It is parsed and looked up anew when its turn
//! comes: one before it may have made the entry that it needs, and the version may have moved on.
//!
//! A packet that is recirculated has left its original headers behind, so it cannot wait and start
//! over: it is translated in the same turn and the same version, whatever is left of the turn's
//! translations. How deep a packet is recirculated the pipeline bounds, how often with all of its
//! copies is bounded here.

use std::sync::Arc;

use shunt_flow::{FlowKey, PortNo, extract::extract};
use shunt_pipeline::{Continuation, Traversal};

use super::{PacketThread, receive::drop_reason};
use crate::{
    BURST, DropReason, Packet,
    execute::{Left, Parsed},
    owner::InstallError,
};

/// Packets that a turn takes out of the queues at most, whether they need a translation or not.
const SERVED_PER_TURN: usize = 4 * BURST;

/// How often a packet and all of its copies are recirculated at most.
///
/// Each may make as many lookups as a packet that has just come in.
const RECIRCULATIONS_MAX: usize = 256;

impl PacketThread {
    /// Serves packets that wait; answers how many have gone on.
    pub(super) fn serve_waiting(&mut self) -> usize {
        let mut served = 0;
        while served < SERVED_PER_TURN {
            let Some((input, packet)) = self.next_waiting() else { break };
            let mut key = std::mem::take(&mut self.batch.keys[0]);
            let layers = extract(packet.frame(), self.config.vlan_limit, &mut key);
            key.set_bridge(u64::from(self.inputs[input].bridge.number()));
            key.set_in_port(self.inputs[input].number);
            let parsed = Parsed { key: &mut key, layers };
            let refused = self.resolve(packet, parsed);
            self.batch.keys[0] = key;
            if let Some(packet) = refused {
                self.inputs[input].waiting.push_front(packet);
                self.served_first = input;
                break;
            }
            served += 1;
            self.recirculate();
        }
        served
    }

    /// Does what recirculation left to do, until all of it has come to an end.
    pub(super) fn recirculate(&mut self) {
        let mut count = 0;
        while let Some(left) = self.outputs.left.pop() {
            match left {
                Left::Again { packet, .. } if count == RECIRCULATIONS_MAX => {
                    self.outputs.drop(&mut self.pool, packet, DropReason::RecirculationsSpent);
                }
                Left::Again { packet, in_port, continuation } => {
                    count += 1;
                    self.go_on(packet, in_port, &continuation);
                }
                Left::Rest { packet, actions, next, mut key, layers } => {
                    let parsed = Parsed { key: &mut key, layers };
                    self.outputs.execute_rest(&mut self.pool, packet, (&actions, next), parsed);
                }
            }
        }
    }

    /// Parses a packet again, and lets it go on as a continuation says.
    fn go_on(&mut self, packet: Packet, in_port: PortNo, continuation: &Arc<Continuation>) {
        let mut key = FlowKey::ZERO;
        let layers = extract(packet.frame(), self.config.vlan_limit, &mut key);
        key.set_in_port(in_port);
        continuation.enter(&mut key);
        let parsed = Parsed { key: &mut key, layers };
        if let Err((packet, parsed)) = self.find_and_execute(packet, parsed) {
            self.translations_left = self.translations_left.saturating_sub(1);
            let version = self.caches.owner.version();
            let traversal = self.pipeline.resume(parsed.key, continuation, version);
            self.install_and_execute(traversal, packet, parsed);
        }
    }

    /// Looks a packet up and executes what was found or translated. Gives it back if it needs a
    /// translation and none is left.
    fn resolve(&mut self, packet: Packet, parsed: Parsed<'_>) -> Option<Packet> {
        let (packet, parsed) = self.find_and_execute(packet, parsed).err()?;
        if self.translations_left == 0 {
            return Some(packet);
        }
        self.translations_left -= 1;
        let traversal = self.pipeline.translate(parsed.key, self.caches.owner.version());
        self.install_and_execute(traversal, packet, parsed);
        None
    }

    /// Looks a packet up and executes what was found; gives it back if nothing was.
    fn find_and_execute<'k>(
        &mut self,
        packet: Packet,
        parsed: Parsed<'k>,
    ) -> Result<(), (Packet, Parsed<'k>)> {
        let Some(entry) = self.caches.find(parsed.key) else { return Err((packet, parsed)) };
        if self.verifier.chooses() && !self.is_right(entry.slot, parsed.key) {
            return Err((packet, parsed));
        }
        let entries = self.caches.owner.entries_mut();
        entries.hit(entry.slot, packet.len() as u64, self.now);
        let actions = entries.actions(entry.slot);
        if actions.is_empty() {
            let reason = drop_reason(entries.error(entry.slot));
            self.outputs.drop(&mut self.pool, packet, reason);
        } else {
            self.outputs.execute(&mut self.pool, packet, actions, parsed);
        }
        Ok(())
    }

    /// Makes an entry of a traversal, or hands in what it teaches, counts the packet once, and does
    /// to it what was decided.
    fn install_and_execute(&mut self, traversal: Traversal, packet: Packet, parsed: Parsed<'_>) {
        self.upcalls += 1;
        let (traversal, bytes) = (Arc::new(traversal), packet.len() as u64);
        if traversal.learnings.is_empty() {
            self.install(&traversal, bytes);
        } else if let Err(reason) = self.teach(&packet, &traversal) {
            return self.outputs.drop(&mut self.pool, packet, reason);
        } else {
            self.pipeline.credit(&traversal, 1, bytes, self.now);
        }
        self.execute_traversal(packet, &traversal, parsed);
    }

    /// Makes an entry of a traversal if there is room, and counts the packet once: by the entry, or
    /// to the rules at once.
    fn install(&mut self, traversal: &Arc<Traversal>, bytes: u64) {
        match self.caches.install(traversal, self.now) {
            Ok(entry) => {
                self.caches.owner.entries_mut().hit(entry.slot, bytes, self.now);
            }
            Err(refused) => {
                match refused {
                    InstallError::Full(_) => self.counters.refused_full.add(1),
                    InstallError::RingFull => self.counters.refused_ring.add(1),
                    InstallError::OtherVersion { .. } => {
                        debug_assert!(false, "it was translated under the owner's version");
                    }
                }
                self.pipeline.credit(traversal, 1, bytes, self.now);
            }
        }
    }

    /// Does to a packet what a traversal decided.
    pub(super) fn execute_traversal(
        &mut self,
        packet: Packet,
        traversal: &Traversal,
        parsed: Parsed<'_>,
    ) {
        if traversal.actions.is_empty() {
            self.outputs.drop(&mut self.pool, packet, drop_reason(traversal.error));
        } else {
            self.outputs.execute(&mut self.pool, packet, &traversal.actions, parsed);
        }
    }

    /// The next packet that waits, ports taking turns; those left out that stand still.
    fn next_waiting(&mut self) -> Option<(usize, Packet)> {
        let count = self.inputs.len();
        for step in 0..count {
            let input = (self.served_first + step) % count;
            let next = &mut self.inputs[input];
            if next.patience.is_waiting() {
                continue;
            }
            if let Some(packet) = next.waiting.pop_front() {
                self.served_first = (input + 1) % count;
                return Some((input, packet));
            }
        }
        None
    }
}
