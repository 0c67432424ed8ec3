//! Serves upcall queues: looks up packets that missed again, translates and executes them.
//!
//! Each port has its own upcall queue, and the thread serves the queues round robin. So a port with
//! only new flows delays a miss of another port by one translation, not by its whole queue. Packets
//! of one port stay in order, and the number of packets served in an iteration is bounded.
//!
//! A packet in an upcall queue has its original headers. The thread parses and looks up the packet
//! again: an earlier packet may have added the entry that it needs, and the version may have
//! changed.
//!
//! A recirculated packet no longer has its original headers, so it cannot wait in a queue. The
//! thread translates it in the same iteration and version, even if no translation is left. The
//! pipeline bounds the depth of recirculations; this module bounds their number, over all copies of
//! a packet.
//!
//! Some packets wait until their source address is learned, at the front of their queue, which
//! stalls meanwhile. The thread then looks them up again. So if the network sends a copy of the
//! packet back on another member of a bond, every thread already knows the address.

use std::sync::Arc;

use shunt_flow::{FlowKey, Layers, PortNo, SparseKey, extract::extract};
use shunt_pipeline::{Continuation, DatapathPort, Learning, Time, Traversal};

use super::{
    repair::abandon,
    waiting::{SourceLearning, WaitingPacket},
};
use crate::{
    cache::{
        ActionLists, Entries, HitSlots, TraversalDrop,
        index::{Lookup, PartialLookup, Upcall, UpcallResult},
    },
    forecast::FlowObservation,
    metrics::DropReason,
    packet::buffer::{BURST, Packet},
    thread::{
        PacketThread,
        execute::{ParsedPacket, Pending, PendingWork},
        receive::drop_reason,
    },
};

/// Maximum number of packets served in an iteration, translated or not.
const SERVED_PER_ITERATION: usize = 4 * BURST;

/// Maximum number of recirculations of a packet and its copies together.
///
/// Each recirculation may need as many table lookups as a received packet.
const RECIRCULATIONS_MAX: usize = 256;

/// A packet that missed the caches, with the partial result of its lookup.
pub(in crate::thread) struct Missed<'k> {
    /// The packet that missed the caches.
    packet: Packet,
    /// The parsed headers of the packet.
    parsed: ParsedPacket<'k>,
    /// The stages of the lookup that hit.
    partial: PartialLookup,
}

/// The next step for a packet after its learn request, if any.
pub(in crate::thread) enum LearnOutcome {
    /// Execute the actions of the packet.
    Execute,
    /// Return the packet to its upcall queue until its source address is learned.
    Wait(SourceLearning),
    /// Drop the packet, because its learn request was refused.
    Drop(DropReason),
}

/// A packet that must stay in its upcall queue.
pub(in crate::thread) struct Unserved {
    /// The packet that stays in its queue.
    pub(in crate::thread) packet: Packet,
    /// The learn requests of the packet's source.
    pub(in crate::thread) source: SourceLearning,
}

impl PacketThread {
    /// Serves the upcall queues. Returns the number of packets served.
    pub(in crate::thread) fn serve_upcalls(&mut self) -> usize {
        let mut served = 0;
        while served < SERVED_PER_ITERATION {
            let Some((input, waiting)) = self.rx_ports.next_upcall() else { break };
            let mut key = std::mem::take(&mut self.batch.keys[0]);
            let left = self.serve(input, waiting, &mut key);
            self.batch.keys[0] = key;
            if let Some(waiting) = left {
                self.rx_ports.put_back(input, waiting);
                if !self.rx_ports.list[input].stall_budget.is_stalled() {
                    break;
                }
            }
            served += 1;
        }
        served
    }

    /// Serves all waiting packets of a flow, in order, before others of the port.
    ///
    /// Stops at a packet that must be translated if no translation is left.
    pub(in crate::thread) fn serve_flow(&mut self, input: usize, flow: u32) {
        let mut key = FlowKey::ZERO;
        while let Some(position) = self.rx_ports.list[input].waiting.position_of(flow) {
            let Some(waiting) = self.rx_ports.take_waiting(input, position) else { return };
            if let Some(waiting) = self.serve(input, waiting, &mut key) {
                self.rx_ports.return_waiting(input, position, waiting);
                return;
            }
        }
    }

    /// Looks up and executes a packet of an upcall queue; `key` is scratch memory.
    ///
    /// Returns the packet if no translation is left for it, or if it must wait until its source
    /// address is learned.
    pub(in crate::thread) fn serve(
        &mut self,
        input: usize,
        waiting: WaitingPacket,
        key: &mut FlowKey,
    ) -> Option<WaitingPacket> {
        let WaitingPacket { packet, received_before, flow, since, source } = waiting;
        let layers = self.parse_waiting(input, &packet, key);
        let upcalls = self.upcalls;
        match self.resolve(packet, ParsedPacket { key, layers }, source) {
            Ok(pending) => {
                self.finish(pending);
                if self.upcalls > upcalls {
                    self.note_set_up(since);
                }
                None
            }
            Err(Unserved { packet, source }) => {
                Some(WaitingPacket { packet, received_before, flow, since, source })
            }
        }
    }

    /// Counts the flow set-up time of a packet that was received at `since`.
    fn note_set_up(&self, since: Time) {
        if let Some(now) = self.stopwatch.read() {
            self.counters.set_up.add(now.since(since));
        }
    }

    /// Parses a packet of an upcall queue.
    pub(in crate::thread) fn parse_waiting(
        &self,
        input: usize,
        packet: &Packet,
        key: &mut FlowKey,
    ) -> Layers {
        let layers = extract(packet.frame(), self.config.vlan_limit, key);
        let port = &self.rx_ports.list[input];
        key.set_bridge(u64::from(port.bridge.number()));
        key.set_in_port(port.number);
        layers
    }

    /// Does all pending work on recirculated packets.
    pub(in crate::thread) fn finish(&mut self, pending: PendingWork) {
        pending.leave_to_callers_loop();
        let mut count = 0;
        while let Some(pending) = self.outputs.pop_pending() {
            match pending {
                Pending::Recirculate { packet, .. } if count == RECIRCULATIONS_MAX => {
                    self.outputs.drop(&mut self.pool, packet, DropReason::RecirculationLimit);
                }
                Pending::Recirculate { packet, in_port, continuation } => {
                    count += 1;
                    self.resume(packet, in_port, &continuation).leave_to_callers_loop();
                }
                Pending::ResumeActions { packet, actions, next, mut key, layers } => {
                    let parsed = ParsedPacket { key: &mut key, layers };
                    let lists = &[&actions];
                    self.outputs.execute_rest(&mut self.pool, packet, lists, next, parsed);
                }
            }
        }
    }

    /// Parses a recirculated packet again, and resumes the tables at a continuation.
    fn resume(
        &mut self,
        packet: Packet,
        in_port: PortNo,
        continuation: &Arc<Continuation>,
    ) -> PendingWork {
        let mut key = FlowKey::ZERO;
        let layers = extract(packet.frame(), self.config.vlan_limit, &mut key);
        key.set_in_port(in_port);
        continuation.enter(&mut key);
        let parsed = ParsedPacket { key: &mut key, layers };
        let start = Some(continuation);
        let source = SourceLearning::SentAtOnce;
        let done = if self.caches.is_bypassed() {
            self.decide_and_execute(packet, parsed, start, source)
        } else {
            match self.find_and_execute(packet, parsed, start) {
                Ok(pending) => Ok(pending),
                Err(missed) => self.translate_and_execute(missed, start, source),
            }
        };
        done.unwrap_or_else(|Unserved { packet, .. }| {
            debug_assert!(false, "a recirculated packet does not wait");
            self.outputs.refuse(&mut self.pool, packet, DropReason::UpcallQueueFull)
        })
    }

    /// Looks up a packet, translates it if it missed, and executes its actions.
    ///
    /// Returns the packet if no translation is left for it in this iteration, or if it must wait
    /// until its source address is learned.
    fn resolve(
        &mut self,
        packet: Packet,
        parsed: ParsedPacket<'_>,
        source: SourceLearning,
    ) -> Result<PendingWork, Unserved> {
        if self.caches.is_bypassed() {
            return self.decide_and_execute(packet, parsed, None, source);
        }
        match self.find_and_execute(packet, parsed, None) {
            Ok(pending) => Ok(pending),
            Err(missed) if self.translations_left == 0 => {
                Err(Unserved { packet: missed.packet, source })
            }
            Err(missed) => self.translate_and_execute(missed, None, source),
        }
    }

    /// Looks up a packet, and executes the actions of the entries that it hits.
    ///
    /// Returns a packet that misses.
    #[expect(clippy::result_large_err, reason = "a box would be an allocation for each miss")]
    fn find_and_execute<'k>(
        &mut self,
        packet: Packet,
        parsed: ParsedPacket<'k>,
        start: Option<&Arc<Continuation>>,
    ) -> Result<PendingWork, Missed<'k>> {
        let (hit, is_sampled) = match self.caches.find(parsed.key) {
            Lookup::Hit { slots, is_sampled } => (slots, is_sampled),
            Lookup::Miss(partial) => return Err(Missed { packet, parsed, partial }),
        };
        if self.verifier.chooses() && !self.is_right(&hit, &packet, &parsed) {
            // The wrong entries are removed: a second lookup finds how far the packet gets in the
            // chain now.
            let partial = match self.caches.find(parsed.key) {
                Lookup::Hit { .. } => PartialLookup::default(),
                Lookup::Miss(partial) => partial,
            };
            return Err(Missed { packet, parsed, partial });
        }
        if is_sampled && self.translations_left > 0 {
            self.translations_left -= 1;
            let (pipeline, version) = (&self.pipeline, self.caches.owner.version());
            let upcall = Upcall { pipeline, key: parsed.key, start, version, now: self.now };
            self.caches.observe(upcall);
        }
        self.count(&hit, packet.len() as u64);
        if start.is_none() && !self.netflow.is_empty() {
            self.note_egress_of_entries(parsed.key, packet.ingress, &hit);
        }
        let entries = self.caches.owner.entries();
        let pending = if let Some(lists) = ActionLists::of_entries(entries, hit.slots()) {
            let cause = || drop_reason(drops(entries, &hit));
            self.outputs.execute(&mut self.pool, packet, lists.as_slice(), parsed, cause)
        } else {
            let reason = drop_reason(drops(entries, &hit));
            self.outputs.refuse(&mut self.pool, packet, reason)
        };
        Ok(pending)
    }

    /// Counts a packet for each entry that it hit.
    fn count(&mut self, hit: &HitSlots, bytes: u64) {
        let entries = self.caches.owner.entries_mut();
        for slot in hit.slots() {
            entries.hit(*slot, bytes, self.now);
        }
    }

    /// Passes a sampled hit of the burst to the wildcard index, which learns from it.
    pub(in crate::thread) fn observe(&mut self, position: usize) {
        if self.translations_left > 0 {
            self.translations_left -= 1;
            let (pipeline, version) = (&self.pipeline, self.caches.owner.version());
            let key = &self.batch.keys[position];
            self.caches.observe(Upcall { pipeline, key, start: None, version, now: self.now });
        }
    }

    /// Translates a packet that missed, installs entries, and executes its actions.
    ///
    /// Sends the learn request if the packet learns, and counts the packet once.
    ///
    /// Returns the packet if it must wait until its source address is learned.
    pub(in crate::thread) fn translate_and_execute(
        &mut self,
        missed: Missed<'_>,
        start: Option<&Arc<Continuation>>,
        source: SourceLearning,
    ) -> Result<PendingWork, Unserved> {
        let Missed { packet, parsed, partial } = missed;
        self.upcalls += 1;
        self.free_slots();
        let (pipeline, version) = (&self.pipeline, self.caches.owner.version());
        let upcall = Upcall { pipeline, key: parsed.key, start, version, now: self.now };
        let measured = self.forecasts.as_ref().and_then(|own| own.start_of_miss(self.upcalls));
        let UpcallResult { traversals, entry, translations } =
            self.caches.handle_miss(upcall, partial);
        if let (Some(began), Some(own)) = (measured, &self.forecasts) {
            own.end_miss(began);
        }
        // A count beyond `usize` uses up the whole budget.
        let spent = usize::try_from(translations).unwrap_or(usize::MAX);
        self.translations_left = self.translations_left.saturating_sub(spent);
        let learning = traversals.iter().find(|own| !own.learnings.is_empty());
        let learnings: &[Learning] = learning.map_or(&[][..], |own| &own.learnings[..]);
        match self.request_learning(packet.ingress, learnings, source) {
            LearnOutcome::Execute => {}
            LearnOutcome::Wait(source) => return Err(Unserved { packet, source }),
            LearnOutcome::Drop(reason) => {
                return Ok(self.outputs.refuse(&mut self.pool, packet, reason));
            }
        }
        // An offload device never looks up a recirculated packet.
        if start.is_none()
            && let Some(candidates) = &mut self.candidates
        {
            candidates.offer(parsed.key, self.now);
        }
        if start.is_none() {
            self.observe_miss(parsed.key, &traversals);
        }
        if start.is_none() && !self.netflow.is_empty() {
            let actions = traversals.iter().flat_map(|own| own.actions.iter());
            self.note_egress_of_tables(parsed.key, packet.ingress, actions);
        }
        let bytes = packet.len() as u64;
        match entry {
            Some(entry) => {
                self.caches.owner.entries_mut().hit(entry.slot, bytes, self.now);
            }
            None => {
                traversals.iter().for_each(|own| self.pipeline.credit(own, 1, bytes, self.now));
            }
        }
        Ok(self.execute_traversals(packet, &traversals, parsed))
    }

    /// Passes a miss to the predictors and to the control group of their forecasts.
    fn observe_miss(&mut self, key: &FlowKey, traversals: &[Arc<Traversal>]) {
        let Some(forecasts) = &mut self.forecasts else { return };
        forecasts.control.note_miss(key, traversals.first().map(|own| &own.mask));
        if !forecasts.is_learning() {
            return;
        }
        let actions = || traversals.iter().map(|own| &own.actions);
        forecasts.observe(FlowObservation {
            key: SparseKey::from(key),
            egress: self.port_bindings.egress_of(actions()),
            actions: actions().map(Arc::clone).collect(),
            forecast: None,
        });
    }

    /// Sends the learn request of a packet, if the packet learns something.
    pub(in crate::thread) fn request_learning(
        &mut self,
        ingress: DatapathPort,
        learnings: &[Learning],
        source: SourceLearning,
    ) -> LearnOutcome {
        if learnings.is_empty() {
            return LearnOutcome::Execute;
        }
        let owner = &mut self.caches.owner;
        if let Err(reason) = self.rx_ports.learn(owner, ingress, learnings, self.now) {
            return LearnOutcome::Drop(reason);
        }
        self.counters.learn_requests.add(1);
        if source == SourceLearning::MayWait && Learning::precede_packet(learnings) {
            return LearnOutcome::Wait(SourceLearning::SentAtOnce);
        }
        LearnOutcome::Execute
    }

    /// Frees slots for the entries of a packet that misses now.
    fn free_slots(&mut self) {
        self.make_room_for_miss();
        if self.caches.needs_reclaims() {
            abandon(&mut self.caches, &self.counters, None);
            self.caches.reclaim_some(&self.pipeline);
        }
    }

    /// Executes the actions of the sub-traversals of a packet.
    pub(in crate::thread) fn execute_traversals(
        &mut self,
        packet: Packet,
        traversals: &[Arc<Traversal>],
        parsed: ParsedPacket<'_>,
    ) -> PendingWork {
        if let Some(lists) = ActionLists::of(traversals.iter().map(|own| &own.actions)) {
            let cause = || drop_reason(traversals.iter().map(|own| TraversalDrop::of(own)));
            self.outputs.execute(&mut self.pool, packet, lists.as_slice(), parsed, cause)
        } else {
            let reason = drop_reason(traversals.iter().map(|own| TraversalDrop::of(own)));
            self.outputs.refuse(&mut self.pool, packet, reason)
        }
    }
}

/// Returns the drop reason of each entry that a packet hit.
fn drops(entries: &Entries, hit: &HitSlots) -> impl Iterator<Item = TraversalDrop> {
    hit.slots().iter().map(|slot| entries.drop_of(*slot))
}

impl<'k> Missed<'k> {
    /// Creates a miss without a lookup in the caches.
    pub(in crate::thread) fn uncached(packet: Packet, parsed: ParsedPacket<'k>) -> Self {
        Self { packet, parsed, partial: PartialLookup::default() }
    }
}
