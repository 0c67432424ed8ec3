//! Computational flows: the tables decide each packet, and no cache is in between.
//!
//! The tables decide a burst as a whole, under one shared lock; the thread executes the decisions
//! afterwards. So no lock is held while packets are sent. All packets of a burst have one version.
//! The thread adopts versions between bursts, so barriers hold: the new rules decide every packet
//! after the acknowledgement. Computational flows have no entries that could be stale.
//!
//! Packets stay in order, since each decision is executed at once. After a packet that learns,
//! later packets of its port wait until the thread has adopted the version with the learned rule or
//! address. Meanwhile they are in the upcall queue of the port, and leave it before any later
//! packet.

use std::{fmt, sync::Arc, time::Duration};

use shunt_flow::FlowKey;
use shunt_pipeline::{
    Continuation, DatapathAction, PacketDecider, PacketDecision, Pipeline, QueueId, Version,
};

use super::{
    PacketThread,
    table_trainings::{TableTrainings, TrainingRequest},
    translations::{
        upcall_queue::{LearnOutcome, Missed, Unserved},
        waiting::{SourceLearning, flow_of},
    },
    verify::CacheMismatch,
};
use crate::{
    metrics::DropReason,
    packet::buffer::{BURST, Packet},
    thread::execute::{ParsedPacket, PendingWork},
};

/// The table decisions of a thread that bypasses its caches, with packet counts.
#[derive(Default)]
pub(super) struct TableDecisions {
    /// Looks packets up in the tables; created for the first packet.
    decider: Option<Box<PacketDecider>>,
    /// Scratch: the decisions about the packets of one burst.
    burst: Vec<PacketDecision>,
    /// Scratch: the decision about a single packet.
    single: PacketDecision,
    /// Number of packets that the tables decided.
    pub(super) decided: u64,
    /// The trainings of learned indexes of tables.
    trainings: TableTrainings,
}

impl TableDecisions {
    /// Returns the number of packet counts that are not yet credited to rules.
    pub(super) fn dirty(&self) -> usize {
        self.decider.as_ref().map_or(0, |decider| decider.dirty())
    }

    /// Credits at most `count` of the oldest counts to rules; returns their number.
    ///
    /// Waits at most `wait` for the lock of the tables; see [`PacketDecider::credit`].
    pub(super) fn credit(&mut self, pipeline: &Pipeline, count: usize, wait: Duration) -> usize {
        self.decider.as_mut().map_or(0, |decider| decider.credit(pipeline, count, wait))
    }

    /// Returns the decider of the packets.
    fn decider(&mut self) -> &mut PacketDecider {
        self.decider.get_or_insert_default()
    }
}

impl fmt::Debug for TableDecisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableDecisions").field("decided", &self.decided).finish_non_exhaustive()
    }
}

impl PacketThread {
    /// Requests learned indexes over large tables; removes indexes no longer needed.
    ///
    /// A request with a training that failed is counted, and repeated after a pause.
    pub(super) fn train_tables(&mut self) {
        let (tables, version) = (self.caches.indexed_tables(), self.pipeline.version());
        let (caches, pipeline) = (&self.caches, &self.pipeline);
        let now = self.now;
        let start = |tables, reply: &_| caches.train_tables(pipeline, tables, now, reply);
        let reclaimed = pipeline.reclaimed_version();
        let request = TrainingRequest { tables, version, reclaimed };
        if let Err(failure) = self.decisions.trainings.run(request, now, start) {
            self.counters.table_trainings_failed[failure as usize].add(1);
        }
    }

    /// Decides and executes the received burst, in order.
    pub(super) fn decide_batch(&mut self, input: usize, count: usize) {
        self.serve_port(input);
        let is_first = self.rx_ports.list[input].waiting.is_empty();
        let mut decisions = std::mem::take(&mut self.decisions.burst);
        decisions.resize_with(BURST, PacketDecision::default);
        if is_first {
            let (keys, version) = (&self.batch.keys[..count], self.caches.owner.version());
            let decided = &mut decisions[..count];
            self.decisions.decider().decide_burst(&self.pipeline, keys, version, decided);
        }
        let mut packets = std::mem::take(&mut self.batch.packets);
        let mut keys = std::mem::take(&mut self.batch.keys);
        for (position, packet) in packets.drain(..).enumerate() {
            if !is_first || self.rx_ports.list[input].stall_budget.is_stalled() {
                self.wait(input, flow_of(&keys[position]), packet, SourceLearning::MayWait);
                continue;
            }
            let (layers, source) = (self.batch.layers[position], SourceLearning::MayWait);
            let parsed = ParsedPacket { key: &mut keys[position], layers };
            match self.execute_decision(packet, parsed, None, &decisions[position], source) {
                Ok(pending) => self.finish(pending),
                Err(Unserved { packet, source }) => {
                    self.wait(input, flow_of(&keys[position]), packet, source);
                }
            }
        }
        self.batch.keys = keys;
        self.batch.packets = packets;
        self.decisions.burst = decisions;
    }

    /// Processes the packets that wait at a port until one of them learns.
    fn serve_port(&mut self, input: usize) {
        let mut key = FlowKey::ZERO;
        while !self.rx_ports.list[input].stall_budget.is_stalled()
            && let Some(waiting) = self.rx_ports.take_waiting(input, 0)
        {
            if let Some(waiting) = self.serve(input, waiting, &mut key) {
                self.rx_ports.return_waiting(input, 0, waiting);
            }
        }
    }

    /// Decides one packet by the tables, and executes the decision.
    ///
    /// Returns the packet if it waits until its source address is learned.
    pub(super) fn decide_and_execute(
        &mut self,
        packet: Packet,
        parsed: ParsedPacket<'_>,
        start: Option<&Arc<Continuation>>,
        source: SourceLearning,
    ) -> Result<PendingWork, Unserved> {
        let mut decision = std::mem::take(&mut self.decisions.single);
        let version = self.caches.owner.version();
        let decider = self.decisions.decider();
        decider.decide(&self.pipeline, parsed.key, start, version, &mut decision);
        let pending = self.execute_decision(packet, parsed, start, &decision, source);
        self.decisions.single = decision;
        pending
    }

    /// Executes the decision about a packet, and counts the packet for its rules.
    ///
    /// Returns the packet if it waits until its source address is learned.
    fn execute_decision(
        &mut self,
        packet: Packet,
        parsed: ParsedPacket<'_>,
        start: Option<&Arc<Continuation>>,
        decision: &PacketDecision,
        source: SourceLearning,
    ) -> Result<PendingWork, Unserved> {
        if self.verifier.chooses() && !self.is_right_decision(&parsed, start, decision) {
            let missed = Missed::uncached(packet, parsed);
            return self.translate_and_execute(missed, start, source);
        }
        match self.request_learning(packet.ingress, &decision.learnings, source) {
            LearnOutcome::Execute => {}
            LearnOutcome::Wait(source) => return Err(Unserved { packet, source }),
            LearnOutcome::Drop(reason) => {
                return Ok(self.outputs.refuse(&mut self.pool, packet, reason));
            }
        }
        self.decisions.decided += u64::from(start.is_none());
        if start.is_none() && !self.netflow.is_empty() {
            self.note_egress_of_tables(parsed.key, packet.ingress, decision.actions.iter());
        }
        self.decisions.decider().count(decision, packet.len() as u64, self.now);
        let cause = || match decision.error {
            Some(error) => DropReason::from(error),
            None => DropReason::from(decision.drop_cause),
        };
        Ok(match &decision.actions[..] {
            [] => self.outputs.refuse(&mut self.pool, packet, cause()),
            [
                DatapathAction::Output {
                    port,
                    queue: QueueId::DEFAULT,
                    unless_ingress,
                    max_len: None,
                },
            ] if start.is_none()
                && !(*unless_ingress && *port == packet.ingress)
                && let Some(ready) = self.outputs.ready_port(*port, &packet) =>
            {
                self.outputs.forward(&mut self.pool, ready, packet);
                PendingWork::NONE
            }
            _ => {
                let lists = &[&decision.actions];
                self.outputs.execute(&mut self.pool, packet, lists, parsed, cause)
            }
        })
    }

    /// Returns whether a decision is equal to that of a translation of the packet.
    ///
    /// Counts and reports a mismatch.
    fn is_right_decision(
        &mut self,
        parsed: &ParsedPacket<'_>,
        start: Option<&Arc<Continuation>>,
        decision: &PacketDecision,
    ) -> bool {
        let version: Version = self.caches.owner.version();
        let fresh = self.pipeline.translate_by_tuple_space(parsed.key, start, version);
        self.counters.verified.add(1);
        if decision.decides_like(&fresh) {
            return true;
        }
        self.counters.differences.add(1);
        self.verifier.report(CacheMismatch { cached: Vec::new(), fresh: Box::new(fresh) });
        false
    }
}
