//! Packets that missed: looked up again, translated, executed; a bounded number each turn.
//!
//! Each port has a queue of its own and ports take turns, so one that sends nothing but new flows
//! delays the misses of others by one translation, not by its whole queue. Within a port packets
//! stay in order.
//!
//! A packet in a queue has its original headers. It is parsed and looked up anew when its turn
//! comes: one before it may have made the entry that it needs, and the version may have moved on.

use std::sync::Arc;

use shunt_flow::{FlowKey, extract::extract, layout::word};
use shunt_pipeline::{DatapathAction, Traversal};

use super::{PacketThread, receive::drop_reason};
use crate::{
    BURST, DropReason, Packet,
    execute::{Again, Parsed},
    owner::InstallError,
};

/// Packets that a turn takes out of the queues at most, whether they need a translation or not.
const SERVED_PER_TURN: usize = 4 * BURST;

/// How often a packet is recirculated at most.
const RECIRCULATIONS_MAX: u8 = 6;

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
            let parsed = Parsed { key: &mut key, layers, depth: 0 };
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

    /// Parses and looks up again what was recirculated, until it has come to an end.
    pub(super) fn recirculate(&mut self) {
        while let Some(again) = self.outputs.again.pop() {
            let Again { mut packet, bridge, in_port, hidden, depth } = again;
            if depth > RECIRCULATIONS_MAX {
                self.outputs.drop(&mut self.pool, packet, DropReason::RecirculatedTooOften);
                continue;
            }
            let mut key = FlowKey::ZERO;
            let layers = extract(packet.frame_mut(), self.config.vlan_limit, &mut key);
            key.set_bridge(bridge);
            let in_port = in_port & IN_PORT_BITS;
            key.words_mut()[usize::from(word::IN_PORT)] |= in_port;
            for ((index, bits), value) in hidden.mask().iter().zip(hidden.value()) {
                let own = &mut key.words_mut()[index];
                *own = *own & !bits | value;
            }
            let parsed = Parsed { key: &mut key, layers, depth };
            // It has left its original headers behind, so it cannot wait and start over.
            if let Some(packet) = self.resolve(packet, parsed) {
                self.outputs.drop(&mut self.pool, packet, DropReason::RecirculatedLate);
            }
        }
    }

    /// Looks a packet up and executes what was found or translated. Gives it back if it needs a
    /// translation and none is left.
    fn resolve(&mut self, packet: Packet, parsed: Parsed<'_>) -> Option<Packet> {
        let bytes = packet.len() as u64;
        if let Some(entry) = self.caches.find(parsed.key) {
            let entries = self.caches.owner.entries_mut();
            let actions = entries.hit(entry.slot, bytes, self.now).actions;
            if actions.is_empty() {
                let reason = drop_reason(entries.error(entry.slot));
                self.outputs.drop(&mut self.pool, packet, reason);
            } else {
                self.outputs.execute(&mut self.pool, packet, actions, parsed);
            }
            return None;
        }
        if self.translations_left == 0 {
            return Some(packet);
        }
        self.translations_left -= 1;
        let traversal = self.translate(parsed.key, bytes);
        self.execute_traversal(packet, &traversal, parsed);
        None
    }

    /// Translates a packet, makes an entry of the traversal if there is room, and counts the packet
    /// once: by the entry, or to the rules at once.
    fn translate(&mut self, key: &FlowKey, bytes: u64) -> Arc<Traversal> {
        self.upcalls += 1;
        let version = self.caches.owner.version();
        let traversal = Arc::new(self.pipeline.translate(key, version));
        match self.caches.install(&traversal, self.now) {
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
                self.pipeline.credit(&traversal, 1, bytes, self.now);
            }
        }
        traversal
    }

    /// Does to a packet what a traversal decided.
    pub(super) fn execute_traversal(
        &mut self,
        packet: Packet,
        traversal: &Traversal,
        parsed: Parsed<'_>,
    ) {
        let actions: &[DatapathAction] = &traversal.actions;
        if actions.is_empty() {
            self.outputs.drop(&mut self.pool, packet, drop_reason(traversal.error));
        } else {
            self.outputs.execute(&mut self.pool, packet, actions, parsed);
        }
    }

    /// The next packet that waits, ports taking turns.
    fn next_waiting(&mut self) -> Option<(usize, Packet)> {
        let count = self.inputs.len();
        for step in 0..count {
            let input = (self.served_first + step) % count;
            if let Some(packet) = self.inputs[input].waiting.pop_front() {
                self.served_first = (input + 1) % count;
                return Some((input, packet));
            }
        }
        None
    }
}

/// The half of the ingress word that the ingress port fills.
const IN_PORT_BITS: u64 = 0xffff_ffff_0000_0000;
