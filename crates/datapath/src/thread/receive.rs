//! Processes one burst of a receive queue: receive, parse, look up, execute.

use std::{sync::Arc, time::Duration};

use shunt_flow::{FlowKey, PortNo, extract::extract};
use shunt_pipeline::{BridgeId, DatapathPort, DropCause, Learning, Time};

use super::{
    PacketThread, RxBatch,
    readiness::{PortEvents, ReadyList},
    release::PendingRelease,
    sample::BurstLookup,
    translations::{
        stall_budget::StallBudget,
        waiting::{SourceLearning, WaitingPacket, WaitingPackets, flow_of},
    },
};
use crate::{
    cache::{ActionLists, TraversalDrop},
    evict::owner::Owner,
    metrics::{DropReason, PortTraffic, RxLoad},
    packet::{
        buffer::{BURST, Packet},
        ingress_policer::IngressPolicer,
    },
    port::RxQueue,
    thread::{
        execute::{ParsedPacket, recirculates},
        tx_port::TxPortIndex,
    },
};

/// A receive queue of a port, and its upcall queue.
pub(super) struct RxPort {
    pub(super) port: DatapathPort,
    pub(super) bridge: BridgeId,
    pub(super) number: PortNo,
    pub(super) queue: Box<dyn RxQueue>,
    /// The state of the queue: open, exhausted, broken or leaving.
    pub(super) state: RxState,
    /// True if the last poll may have left packets in the receive queue.
    pub(super) may_have_more: bool,
    pub(super) traffic: Arc<PortTraffic>,
    /// The rate limit of received packets (ingress policing).
    pub(super) policer: Option<Arc<IngressPolicer>>,
    /// The upcall queue: packets that missed the caches, unchanged.
    pub(super) waiting: WaitingPackets,
    /// Number of frames that polls returned, including refused frames.
    pub(super) received: u64,
    /// Value of `received` before the current burst.
    pub(super) burst_start: u64,
    /// Number of received frames that were reported to the queue as finished.
    pub(super) finished: u64,
    /// The stall of the queue for a learn request, and its time budget.
    pub(super) stall_budget: StallBudget,
    /// Number of the queue among the receive queues of the port.
    pub(super) number_in_port: u16,
    /// The measured load of the queue.
    pub(super) load: Arc<RxLoad>,
    /// Value of `received` of which the time was counted in `load`.
    pub(super) counted: u64,
    /// The request to release the queue, while its state is [`RxState::Leaving`].
    pub(super) release: Option<PendingRelease>,
}

/// The receive queues of a packet thread, with their upcall queues.
pub(super) struct RxPorts {
    pub(super) list: Vec<RxPort>,
    /// The receive queues that may have packets.
    pub(super) ready: ReadyList,
    pub(super) events: PortEvents,
    /// True after a change of ports or port numbers, until the change is published.
    pub(super) is_changed: bool,
    /// Number of packets in all upcall queues.
    queued: usize,
    /// Indices of receive queues with frames that are not reported as finished.
    unfinished: Vec<u32>,
    /// Indices of receive queues with frames, for which no time is counted yet.
    pub(super) loaded: Vec<u32>,
    /// Number of receive queues that wait for their release.
    pub(super) releasing: usize,
    /// Index of the upcall queue to serve next.
    next_served: usize,
    /// Index of the device to check next, and the time of the last checks.
    next_checked: (usize, Time),
}

/// The next step for a packet of a burst after the cache lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Send the packet unchanged to a port.
    Forward(TxPortIndex),
    /// Execute the actions of the entries that the packet hit.
    Execute,
    /// Queue a packet that missed, or that must not overtake a packet that missed.
    Wait,
    /// Queue the packet, a hit, after earlier packets of its flow; serve this flow.
    WaitForFlow,
}

/// The state of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RxState {
    Open,
    Exhausted,
    Broken,
    /// The queue will be released for another packet thread.
    Leaving,
}

/// Time between two rounds of checks whether devices were removed.
const REMOVAL_CHECK_PERIOD: Duration = Duration::from_millis(500);

/// Maximum number of devices checked in one round.
const CHECKS_MAX: usize = 64;

impl RxPorts {
    /// Creates an empty list of receive queues.
    pub(super) fn new(events: PortEvents) -> Self {
        Self {
            list: Vec::new(),
            ready: ReadyList::default(),
            events,
            is_changed: false,
            queued: 0,
            unfinished: Vec::new(),
            loaded: Vec::new(),
            releasing: 0,
            next_served: 0,
            next_checked: (0, Time::ZERO),
        }
    }

    /// Returns the number of packets in all upcall queues.
    pub(super) const fn queued(&self) -> usize {
        self.queued
    }

    /// Adds the receive queue of a port.
    pub(super) fn add(&mut self, port: RxPort) {
        let index = self.list.len();
        let source = self.events.add(port.queue.wait_fd(), index);
        self.ready.add(source);
        self.is_changed = true;
        self.list.push(port);
        self.unfinished.reserve(self.list.len() - self.unfinished.len());
        self.loaded.reserve(self.list.len() - self.loaded.len());
    }

    /// Appends a packet to the upcall queue of a port.
    pub(super) fn push_waiting(&mut self, index: usize, waiting: WaitingPacket) {
        self.queued += 1;
        self.list[index].waiting.push(waiting);
    }

    /// Takes the packet at a position of an upcall queue; position 0 is the oldest.
    pub(super) fn take_waiting(&mut self, index: usize, position: usize) -> Option<WaitingPacket> {
        let taken = self.list[index].waiting.take(position)?;
        self.queued -= 1;
        Some(taken)
    }

    /// Returns a packet to its position in an upcall queue.
    pub(super) fn return_waiting(&mut self, index: usize, position: usize, packet: WaitingPacket) {
        self.queued += 1;
        self.list[index].waiting.insert(position, packet);
    }

    /// Counts frames that a poll returned, including refused frames.
    pub(super) fn count_received(&mut self, index: usize, count: u64) {
        let port = &mut self.list[index];
        if port.received == port.finished {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the number is at most DATAPATH_PORT_MAX + 1"
            )]
            self.unfinished.push(index as u32);
        }
        if port.received == port.counted {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the number is at most DATAPATH_PORT_MAX + 1"
            )]
            self.loaded.push(index as u32);
        }
        port.received += count;
    }

    /// Ends the polls of a receive queue for good.
    ///
    /// The descriptor of the queue may stay readable forever, so it leaves the epoll set.
    fn close(&mut self, index: usize, state: RxState) {
        let port = &mut self.list[index];
        port.state = state;
        port.may_have_more = false;
        if state == RxState::Broken {
            port.traffic.rx_broken.set(1);
        }
        self.events.remove(port.queue.wait_fd());
        self.ready.close(index);
    }

    /// Closes the receive queues of removed devices that caused no event.
    pub(super) fn check_devices(&mut self, now: Time) {
        let (next, checked_at) = self.next_checked;
        if now.since(checked_at) < REMOVAL_CHECK_PERIOD {
            return;
        }
        let count = self.list.len();
        for step in 0..count.min(CHECKS_MAX) {
            let index = (next + step) % count;
            let port = &mut self.list[index];
            if port.state == RxState::Open && port.queue.check().is_err() {
                self.close(index, RxState::Broken);
            }
        }
        self.next_checked = (next.wrapping_add(CHECKS_MAX) % count.max(1), now);
    }

    /// Takes a packet from the upcall queues, round robin, with the index of its queue.
    ///
    /// Skips queues that stall for a learn request.
    pub(super) fn next_upcall(&mut self) -> Option<(usize, WaitingPacket)> {
        if self.queued == 0 {
            return None;
        }
        let count = self.list.len();
        for step in 0..count {
            let index = (self.next_served + step) % count;
            if self.list[index].stall_budget.is_stalled() {
                continue;
            }
            if let Some(packet) = self.take_waiting(index, 0) {
                self.next_served = (index + 1) % count;
                return Some((index, packet));
            }
        }
        None
    }

    /// Returns a packet to the front of its upcall queue, which is served next.
    pub(super) fn put_back(&mut self, index: usize, packet: WaitingPacket) {
        self.return_waiting(index, 0, packet);
        self.next_served = index;
    }

    /// Reports finished frames to their receive queues, after all batches were sent.
    pub(super) fn report_finished(&mut self) {
        let Self { list, unfinished, .. } = self;
        unfinished.retain(|index| {
            let port = &mut list[*index as usize];
            let waiting = port.waiting.oldest();
            let count = waiting.map_or(port.received, |oldest| oldest.received_before);
            if count > port.finished {
                port.finished = count;
                port.queue.finished(count);
            }
            port.finished != port.received
        });
    }

    /// Sets the bridge of a port and its OpenFlow port number.
    pub(super) fn bind(&mut self, port: DatapathPort, bridge: BridgeId, number: PortNo) {
        self.is_changed = true;
        for own in self.list.iter_mut().filter(|own| own.port == port) {
            (own.bridge, own.number) = (bridge, number);
        }
    }

    /// Removes a receive queue of a port.
    ///
    /// A pending request to release the queue is cancelled.
    pub(super) fn remove(&mut self, port: DatapathPort) -> Option<RxPort> {
        let index = self.list.iter().position(|own| own.port == port)?;
        let mut removed = self.take(index);
        self.releasing -= usize::from(removed.release.take().is_some());
        Some(removed)
    }

    /// Removes the receive queue at an index; the last queue gets this index.
    ///
    /// Called between iterations, when the time of the last one is counted.
    pub(super) fn take(&mut self, index: usize) -> RxPort {
        debug_assert!(self.loaded.is_empty(), "all times are counted between iterations");
        self.next_served = 0;
        self.events.remove(self.list[index].queue.wait_fd());
        self.ready.swap_remove(index);
        self.is_changed = true;
        let removed = self.list.swap_remove(index);
        self.queued -= removed.waiting.len();
        // The last receive queue has moved to the index of the removed queue.
        if let Some(moved) = self.list.get(index).filter(|moved| moved.state == RxState::Open) {
            self.events.renumber(moved.queue.wait_fd(), index);
        }
        let last = self.list.len();
        self.unfinished.retain(|unfinished| *unfinished as usize != index);
        for unfinished in self.unfinished.iter_mut().filter(|own| **own as usize == last) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the number is at most DATAPATH_PORT_MAX + 1"
            )]
            {
                *unfinished = index as u32;
            }
        }
        removed
    }

    /// Sends a learn request for a packet, and stalls the receive queues of its port.
    ///
    /// # Errors
    ///
    /// If the stall budget is used up or the ring of requests is full. The packet must then be
    /// dropped for the returned reason.
    pub(super) fn learn(
        &mut self,
        owner: &mut Owner,
        ingress: DatapathPort,
        learnings: &[Learning],
        now: Time,
    ) -> Result<(), DropReason> {
        let is_own = |port: &&mut RxPort| port.port == ingress;
        if self.list.iter_mut().filter(is_own).any(|port| !port.stall_budget.allows(now)) {
            return Err(DropReason::LearnRateLimited);
        }
        let sent = owner.learn(learnings.to_vec());
        let request = sent.map_err(|_| DropReason::LearnQueueFull)?;
        let queues = self.list.iter_mut().filter(is_own);
        queues.for_each(|port| port.stall_budget.stall_for(request, now));
        Ok(())
    }

    /// Ends the stalls for learn requests that the thread's version contains.
    pub(super) fn end_learn_stalls(&mut self, owner: &Owner, now: Time) {
        for (index, port) in self.list.iter_mut().enumerate() {
            if port.stall_budget.is_stalled() {
                port.stall_budget.resume_if(|request| owner.has_learned(request), now);
                self.ready.list(index);
            }
        }
    }
}

impl PacketThread {
    /// Receives and processes one burst of a receive queue.
    ///
    /// Returns the number of packets of the burst, including packets that policing drops.
    pub(super) fn receive(&mut self, input: usize) -> usize {
        let received = self.fill_batch(input);
        if received > 0 {
            self.outputs.taps.at_port(self.rx_ports.list[input].port, &self.batch.packets);
            self.police_batch(input);
            let count = self.batch.packets.len();
            if count > 0 {
                self.process_batch(input, count);
            }
        }
        received
    }

    fn process_batch(&mut self, input: usize, count: usize) {
        self.parse_batch(input, count);
        if let Some(candidates) = &mut self.candidates
            && let Some(place) = candidates.next_sample(count)
        {
            candidates.offer(&self.batch.keys[place], self.now);
        }
        if self.caches.is_bypassed() {
            if !self.samplers.is_empty() {
                self.sample_burst(input, count, BurstLookup::None);
            }
            if !self.netflow.is_empty() {
                self.count_flows(input, count, BurstLookup::None);
            }
            self.decide_batch(input, count);
            return;
        }
        let RxBatch { keys, hits, .. } = &mut self.batch;
        self.caches.hold_reclaims(true);
        let sampled = self.caches.find_burst(&keys[..count], hits);
        sampled.positions().for_each(|position| self.observe(position));
        if self.verifier.one_in > 0 {
            self.verify_burst(count);
        }
        if !self.samplers.is_empty() {
            self.sample_burst(input, count, BurstLookup::Done);
        }
        if !self.netflow.is_empty() {
            self.count_flows(input, count, BurstLookup::Done);
        }
        self.execute_batch(input, count);
        self.caches.hold_reclaims(false);
    }

    fn fill_batch(&mut self, input: usize) -> usize {
        if self.pool.is_low() {
            self.outputs.send_batches(&mut self.pool);
        }
        let port = &mut self.rx_ports.list[input];
        if port.stall_budget.is_stalled() {
            // `end_learn_stalls` lists the queue again.
            port.may_have_more = false;
            return 0;
        }
        port.burst_start = port.received;
        match port.queue.rx(&mut self.pool, &mut self.batch.packets) {
            Ok(report) => {
                port.may_have_more = !report.is_drained && !self.batch.packets.is_empty();
                port.may_have_more |= report.must_poll;
                if report.refused > 0 {
                    port.may_have_more = !report.is_drained;
                    report.count(&port.traffic.rx_lost);
                    self.rx_ports.count_received(input, report.refused.into());
                }
                if report.exhausted {
                    self.rx_ports.close(input, RxState::Exhausted);
                }
            }
            Err(_) => self.rx_ports.close(input, RxState::Broken),
        }
        self.batch.packets.len()
    }

    fn parse_batch(&mut self, index: usize, count: usize) {
        let input = &mut self.rx_ports.list[index];
        let RxBatch { packets, keys, layers, .. } = &mut self.batch;
        let mut bytes = 0;
        for ((packet, key), layers) in packets.iter_mut().zip(keys).zip(layers) {
            packet.ingress = input.port;
            bytes += packet.len();
            *layers = extract(packet.frame(), self.config.vlan_limit, key);
            key.set_bridge(u64::from(input.bridge.number()));
            key.set_in_port(input.number);
        }
        input.traffic.rx_packets.add(count as u64);
        input.traffic.rx_bytes.add(bytes as u64);
        self.outputs.tally.received += count as u64;
        self.rx_ports.count_received(index, count as u64);
    }

    /// Executes the hits of a burst in order, and queues the other packets.
    fn execute_batch(&mut self, input: usize, count: usize) {
        self.decide(input, count);
        if let Disposition::Forward(port) = self.batch.dispositions[0]
            && self.batch.dispositions[1..count]
                .iter()
                .all(|disposition| *disposition == Disposition::Forward(port))
        {
            self.outputs.forward_all(&mut self.pool, port, &mut self.batch.packets);
            return;
        }
        let mut packets = std::mem::take(&mut self.batch.packets);
        for (place, packet) in packets.drain(..).enumerate() {
            match self.batch.dispositions[place] {
                Disposition::Forward(port) => self.outputs.forward(&mut self.pool, port, packet),
                Disposition::Execute => self.execute_found(place, packet),
                Disposition::Wait => {
                    let flow = flow_of(&self.batch.keys[place]);
                    self.wait(input, flow, packet, SourceLearning::MayWait);
                }
                Disposition::WaitForFlow => {
                    let flow = flow_of(&self.batch.keys[place]);
                    self.wait(input, flow, packet, SourceLearning::MayWait);
                    self.serve_flow(input, flow);
                }
            }
        }
        self.batch.packets = packets;
    }

    /// Executes the actions for a packet that hit, and then all its recirculations.
    ///
    /// So later packets of the burst do not overtake its recirculations.
    fn execute_found(&mut self, place: usize, packet: Packet) {
        let RxBatch { keys, layers, hits, .. } = &mut self.batch;
        let (entries, slots) = (self.caches.owner.entries(), hits[place].slots());
        if let Some(lists) = ActionLists::of_entries(entries, slots) {
            let parsed = ParsedPacket { key: &mut keys[place], layers: layers[place] };
            let cause = || drop_reason(slots.iter().map(|slot| entries.drop_of(*slot)));
            let lists = lists.as_slice();
            let pending = self.outputs.execute(&mut self.pool, packet, lists, parsed, cause);
            self.finish(pending);
        } else {
            let reason = drop_reason(slots.iter().map(|slot| entries.drop_of(*slot)));
            self.outputs.drop(&mut self.pool, packet, reason);
        }
    }

    /// Puts a packet of the burst into the upcall queue; drops it if the queue is full.
    pub(super) fn wait(&mut self, input: usize, flow: u32, packet: Packet, source: SourceLearning) {
        if !self.pool.may_keep(&packet) {
            self.outputs.send_batches(&mut self.pool);
        }
        let may_keep = self.pool.may_keep(&packet);
        let port = &self.rx_ports.list[input];
        if may_keep && port.waiting.len() < self.config.waiting_per_port {
            let received_before = port.burst_start;
            let since = self.now;
            let waiting = WaitingPacket { packet, received_before, flow, since, source };
            self.rx_ports.push_waiting(input, waiting);
        } else {
            self.outputs.drop(&mut self.pool, packet, DropReason::UpcallQueueFull);
        }
    }

    /// Counts the hits of a burst, and decides the next step for each packet.
    ///
    /// The translation of a miss may send a learn request, and so may the recirculation of a hit.
    /// If packets of the bridge can learn, the packets after such a packet must wait. Otherwise a
    /// hit overtakes misses of other flows.
    fn decide(&mut self, input: usize, count: usize) {
        let RxBatch { packets, keys, hits, dispositions, missed, .. } = &mut self.batch;
        let entries = self.caches.owner.entries_mut();
        let RxPort { bridge, waiting, .. } = &self.rx_ports.list[input];
        let is_ordered = self.pipeline.learns(*bridge);
        let mut waits = is_ordered && !waiting.is_empty();
        missed.count = 0;
        // True while a hit may belong to a flow that has waiting packets.
        let mut has_waiting = !waiting.is_empty();
        let mut puts_off = false;
        for (((packet, key), hit_slots), disposition) in
            packets.iter().zip(keys.iter()).zip(hits).zip(dispositions).take(count)
        {
            if waits || hit_slots.is_miss() {
                waits = is_ordered;
                puts_off |= !hit_slots.is_miss();
                *disposition = Disposition::Wait;
                missed.add(key);
                has_waiting = true;
                continue;
            }
            if has_waiting {
                let flow = flow_of(key);
                if missed.has(flow) || waiting.has_flow(flow) {
                    puts_off = true;
                    *disposition = Disposition::WaitForFlow;
                    continue;
                }
            }
            let (mut port, mut lists_count) = (None, 0);
            for slot in hit_slots.slots() {
                let hit = entries.hit(*slot, packet.len() as u64, self.now);
                if !hit.actions.is_empty() {
                    (port, lists_count) = (hit.forward(packet.ingress), lists_count + 1);
                }
            }
            let port = port.filter(|_| lists_count == 1);
            let ready = port.and_then(|port| self.outputs.ready_port(port, packet));
            *disposition = ready.map_or(Disposition::Execute, Disposition::Forward);
            let mut lists = hit_slots.slots().iter().map(|slot| entries.actions(*slot));
            waits =
                is_ordered && ready.is_none() && lists.any(|list| list.iter().any(recirculates));
        }
        if puts_off {
            let RxBatch { hits, dispositions, .. } = &self.batch;
            for (position, (hit, disposition)) in
                hits.iter().zip(dispositions).take(count).enumerate()
            {
                let waits = [Disposition::Wait, Disposition::WaitForFlow].contains(disposition);
                if waits && !hit.is_miss() {
                    self.caches.uncount_hit(position, hit);
                }
            }
        }
    }
}

/// The flows of a burst's packets that missed the caches.
#[derive(Default)]
pub(super) struct MissedFlows {
    flows: [u32; BURST],
    count: usize,
}

impl MissedFlows {
    fn add(&mut self, key: &FlowKey) {
        if let Some(place) = self.flows.get_mut(self.count) {
            *place = flow_of(key);
            self.count += 1;
        }
    }

    fn has(&self, flow: u32) -> bool {
        self.flows[..self.count].contains(&flow)
    }
}

/// Returns the drop reason of a packet with traversals that have no output action.
///
/// A traversal that failed with an error decides; otherwise the last traversal.
pub(super) fn drop_reason(traversals: impl Iterator<Item = TraversalDrop>) -> DropReason {
    let mut reason = DropReason::from(DropCause::default());
    for drop in traversals {
        reason = drop.reason;
        if drop.is_error {
            break;
        }
    }
    reason
}
