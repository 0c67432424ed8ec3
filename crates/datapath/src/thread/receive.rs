//! A burst: received, parsed, looked up, executed.

use std::{collections::VecDeque, sync::Arc};

use shunt_flow::{PortNo, extract::extract};
use shunt_pipeline::{BridgeId, DatapathPort, TraversalError};

use super::{Batch, PacketThread, stall_budget::StallBudget};
use crate::{
    cache::ActionLists,
    metrics::{DropReason, PortTraffic},
    packet::buffer::Packet,
    port::RxQueue,
    thread::execute::{Parsed, TxPlace, is_cut},
};

/// The receive side of one port.
pub(super) struct RxPort {
    pub(super) port: DatapathPort,
    pub(super) bridge: BridgeId,
    pub(super) number: PortNo,
    pub(super) queue: Box<dyn RxQueue>,
    pub(super) state: RxState,
    pub(super) traffic: Arc<PortTraffic>,
    /// Packets that missed, as they came in, oldest first.
    pub(super) waiting: VecDeque<Packet>,
    /// Whether it stands still, because one of its packets has taught.
    pub(super) patience: StallBudget,
}

/// What is to be done with a packet of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Send it as it is.
    Forward(TxPlace),
    /// Run the actions of its entry.
    Execute,
    /// No cache knows it, or it is behind such a packet.
    Wait,
}

/// Whether a queue is still asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RxState {
    Open,
    Exhausted,
    Broken,
}

impl PacketThread {
    /// Takes one burst from a receive queue all the way; answers how many packets came.
    pub(super) fn receive(&mut self, input: usize) -> usize {
        let count = self.fill_batch(input);
        if count > 0 {
            self.parse_batch(input, count);
            if let Some(offers) = &mut self.offers
                && let Some(place) = offers.draws(count)
            {
                offers.offer(&self.batch.keys[place], self.now);
            }
            self.outputs.taps.at_port(self.inputs[input].port, &self.batch.packets);
            let Batch { keys, hits, .. } = &mut self.batch;
            self.caches.hold_reclaims(true);
            let sampled = self.caches.find_burst(&keys[..count], hits);
            sampled.positions().for_each(|position| self.observe(position));
            if self.verifier.one_in > 0 {
                self.verify_burst(count);
            }
            self.execute_batch(input, count);
            self.caches.hold_reclaims(false);
        }
        count
    }

    fn fill_batch(&mut self, input: usize) -> usize {
        let input = &mut self.inputs[input];
        if input.state != RxState::Open || input.patience.is_waiting() {
            return 0;
        }
        match input.queue.rx(&mut self.pool, &mut self.batch.packets) {
            Ok(report) => {
                if report.refused > 0 {
                    input.traffic.rx_refused.add(u64::from(report.refused));
                }
                if report.exhausted {
                    input.state = RxState::Exhausted;
                    self.ports_changed += 1;
                }
            }
            Err(_) => {
                // Its descriptor may be readable for ever: whoever waits leaves it out from now on.
                input.state = RxState::Broken;
                input.traffic.rx_broken.set(1);
                self.ports_changed += 1;
            }
        }
        self.batch.packets.len()
    }

    fn parse_batch(&mut self, input: usize, count: usize) {
        let input = &self.inputs[input];
        let Batch { packets, keys, layers, .. } = &mut self.batch;
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
    }

    /// Executes what was found, in the order of arrival; the rest waits.
    fn execute_batch(&mut self, input: usize, count: usize) {
        self.decide(input, count);
        if let Fate::Forward(port) = self.batch.fates[0]
            && self.batch.fates[1..count].iter().all(|fate| *fate == Fate::Forward(port))
        {
            self.outputs.forward_all(&mut self.pool, port, &mut self.batch.packets);
            return;
        }
        let mut packets = std::mem::take(&mut self.batch.packets);
        for (place, packet) in packets.drain(..).enumerate() {
            match self.batch.fates[place] {
                Fate::Forward(port) => self.outputs.forward(&mut self.pool, port, packet),
                Fate::Execute => self.execute_found(place, packet),
                Fate::Wait => self.wait(input, packet),
            }
        }
        self.batch.packets = packets;
    }

    /// Executes the entry that was found for a packet of the burst, up to the end of everything
    /// that it is recirculated for: the packets behind it come after.
    fn execute_found(&mut self, place: usize, packet: Packet) {
        let Batch { keys, layers, hits, .. } = &mut self.batch;
        let (entries, slots) = (self.caches.owner.entries(), hits[place].slots());
        if let Some(lists) = ActionLists::of_entries(entries, slots) {
            let parsed = Parsed { key: &mut keys[place], layers: layers[place] };
            self.outputs.execute(&mut self.pool, packet, lists.as_slice(), parsed);
            self.recirculate();
        } else {
            let reason = drop_reason(slots.iter().find_map(|slot| entries.error(*slot)));
            self.outputs.drop(&mut self.pool, packet, reason);
        }
    }

    fn wait(&mut self, input: usize, packet: Packet) {
        let waiting = &mut self.inputs[input].waiting;
        if waiting.len() < self.config.waiting_per_port {
            waiting.push_back(packet);
        } else {
            self.outputs.drop(&mut self.pool, packet, DropReason::UpcallQueueFull);
        }
    }

    /// Counts the hits of a burst, and says what is to be done with each packet.
    ///
    /// A miss may turn out to teach, once it is translated: what is behind it waits too, if there
    /// is anything to teach; and so may a hit whose packet is recirculated. Elsewhere hits overtake
    /// misses.
    fn decide(&mut self, input: usize, count: usize) {
        let Batch { packets, hits, fates, .. } = &mut self.batch;
        let entries = self.caches.owner.entries_mut();
        let is_ordered = self.pipeline.learns();
        let mut waits = is_ordered && !self.inputs[input].waiting.is_empty();
        let mut puts_off = false;
        for ((packet, hit_slots), fate) in packets.iter().zip(hits).zip(fates).take(count) {
            if waits || hit_slots.is_miss() {
                waits = is_ordered;
                puts_off |= !hit_slots.is_miss();
                *fate = Fate::Wait;
                continue;
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
            *fate = ready.map_or(Fate::Execute, Fate::Forward);
            let mut lists = hit_slots.slots().iter().map(|slot| entries.actions(*slot));
            waits = is_ordered && ready.is_none() && lists.any(|list| list.iter().any(is_cut));
        }
        if puts_off {
            let Batch { hits, fates, .. } = &self.batch;
            for (position, (hit, fate)) in hits.iter().zip(fates).take(count).enumerate() {
                if *fate == Fate::Wait && !hit.is_miss() {
                    self.caches.uncount_hit(position, hit);
                }
            }
        }
    }
}

/// Why a packet without actions is dropped.
pub(super) const fn drop_reason(error: Option<TraversalError>) -> DropReason {
    match error {
        None => DropReason::Policy,
        Some(TraversalError::NoSuchPort) => DropReason::BridgeNotFound,
        Some(TraversalError::TooDeep(_)) => DropReason::RecursionTooDeep,
        Some(TraversalError::TooManyResubmits(_)) => DropReason::TooManyResubmits,
        Some(TraversalError::TooManyActions(_)) => DropReason::TooManyActions,
        Some(TraversalError::StackTooDeep(_)) => DropReason::StackTooDeep,
        Some(TraversalError::TooManyLearnedRules(_)) => DropReason::TooManyLearnedRules,
        Some(TraversalError::TooManyMplsLabels(_)) => DropReason::TooManyMplsLabels,
        Some(TraversalError::TooManyRecirculations(_)) => DropReason::RecirculationTooDeep,
    }
}
