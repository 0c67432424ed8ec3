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
use shunt_gigaflow::cache::Miss;
use shunt_pipeline::{Continuation, Pipeline, Time, Traversal};

use super::{PacketThread, receive::drop_reason};
use crate::{
    cache::{Answer, Caches, Found, Lists},
    metrics::DropReason,
    packet::buffer::{BURST, Packet},
    thread::execute::{Left, Parsed},
};

/// Packets that a turn takes out of the queues at most, whether they need a translation or not.
const SERVED_PER_ITERATION: usize = 4 * BURST;

/// How often a packet and all of its copies are recirculated at most.
///
/// Each may make as many lookups as a packet that has just come in.
const RECIRCULATIONS_MAX: usize = 256;

impl PacketThread {
    /// Serves packets that wait; answers how many have gone on.
    pub(super) fn serve_waiting(&mut self) -> usize {
        let mut served = 0;
        while served < SERVED_PER_ITERATION {
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
                    self.outputs.drop(&mut self.pool, packet, DropReason::RecirculationLimit);
                }
                Left::Again { packet, in_port, continuation } => {
                    count += 1;
                    self.go_on(packet, in_port, &continuation);
                }
                Left::Rest { packet, actions, next, mut key, layers } => {
                    let parsed = Parsed { key: &mut key, layers };
                    let lists = &[&actions];
                    self.outputs.execute_rest(&mut self.pool, packet, (lists, next), parsed);
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
        let start = Some(continuation);
        if let Err((packet, parsed)) = self.find_and_execute(packet, parsed, start) {
            self.translate_and_execute(packet, parsed, start);
        }
    }

    /// Looks a packet up and executes what was found or translated. Gives it back if it needs a
    /// translation and none is left.
    fn resolve(&mut self, packet: Packet, parsed: Parsed<'_>) -> Option<Packet> {
        let (packet, parsed) = self.find_and_execute(packet, parsed, None).err()?;
        if self.translations_left == 0 {
            return Some(packet);
        }
        self.translate_and_execute(packet, parsed, None);
        None
    }

    /// Looks a packet up and executes what was found; gives it back if nothing was.
    fn find_and_execute<'k>(
        &mut self,
        packet: Packet,
        parsed: Parsed<'k>,
        start: Option<&Arc<Continuation>>,
    ) -> Result<(), (Packet, Parsed<'k>)> {
        let found = self.caches.find(parsed.key);
        if found.is_miss() {
            return Err((packet, parsed));
        }
        if self.verifier.chooses() && !self.is_right(&found, &packet, &parsed) {
            // What is left of the chain is walked once more, to say where it misses.
            self.caches.find(parsed.key);
            return Err((packet, parsed));
        }
        if self.caches.take_sampled().is_any() && self.translations_left > 0 {
            self.translations_left -= 1;
            let miss = miss(&self.pipeline, &self.caches, parsed.key, (start, self.now));
            self.caches.observe(miss);
        }
        self.count(&found, packet.len() as u64);
        let entries = self.caches.owner.entries();
        if let Some(lists) = Lists::of_entries(entries, found.slots()) {
            self.outputs.execute(&mut self.pool, packet, lists.as_slice(), parsed);
        } else {
            let reason = drop_reason(found.slots().iter().find_map(|slot| entries.error(*slot)));
            self.outputs.drop(&mut self.pool, packet, reason);
        }
        Ok(())
    }

    /// Counts a packet for the entries that it has found.
    fn count(&mut self, found: &Found, bytes: u64) {
        let entries = self.caches.owner.entries_mut();
        for slot in found.slots() {
            entries.hit(*slot, bytes, self.now);
        }
    }

    /// Shows a packet of the burst that was drawn, and hit, to the cache.
    pub(super) fn observe(&mut self, place: usize) {
        if self.translations_left > 0 {
            self.translations_left -= 1;
            let key = &self.batch.keys[place];
            let miss = miss(&self.pipeline, &self.caches, key, (None, self.now));
            self.caches.observe(miss);
        }
    }

    /// Translates a packet that no cache knew, makes entries or hands in what it teaches, counts it
    /// once, and does to it what was decided.
    fn translate_and_execute(
        &mut self,
        packet: Packet,
        parsed: Parsed<'_>,
        start: Option<&Arc<Continuation>>,
    ) {
        self.upcalls += 1;
        self.make_room();
        let miss = miss(&self.pipeline, &self.caches, parsed.key, (start, self.now));
        let Answer { pieces, entry, translations } = self.caches.miss(miss);
        let spent = usize::try_from(translations).unwrap_or(usize::MAX);
        self.translations_left = self.translations_left.saturating_sub(spent);
        // A target meets no packet that was parsed again.
        if start.is_none()
            && let Some(offers) = &mut self.offers
        {
            offers.offer(parsed.key, self.now);
        }
        let bytes = packet.len() as u64;
        if let Some(taught) = pieces.iter().find(|piece| !piece.learnings.is_empty())
            && let Err(reason) = self.learn(&packet, taught)
        {
            return self.outputs.drop(&mut self.pool, packet, reason);
        }
        match entry {
            Some(entry) => {
                self.caches.owner.entries_mut().hit(entry.slot, bytes, self.now);
            }
            None => {
                pieces.iter().for_each(|piece| self.pipeline.credit(piece, 1, bytes, self.now));
            }
        }
        self.execute_pieces(packet, &pieces, parsed);
    }

    /// Does to a packet what the pieces of its way decided.
    pub(super) fn execute_pieces(
        &mut self,
        packet: Packet,
        pieces: &[Arc<Traversal>],
        parsed: Parsed<'_>,
    ) {
        if let Some(lists) = Lists::of(pieces.iter().map(|piece| &piece.actions)) {
            self.outputs.execute(&mut self.pool, packet, lists.as_slice(), parsed);
        } else {
            let reason = drop_reason(pieces.iter().find_map(|piece| piece.error));
            self.outputs.drop(&mut self.pool, packet, reason);
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

/// What the caches are told of a packet that they do not know, or that is to be translated all the
/// same.
fn miss<'a>(
    pipeline: &'a Pipeline,
    caches: &Caches,
    key: &'a FlowKey,
    (start, now): (Option<&'a Arc<Continuation>>, Time),
) -> Miss<'a> {
    Miss { pipeline, key, start, version: caches.owner.version(), now }
}
