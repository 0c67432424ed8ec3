//! The execution of action lists, and the transmit side of the ports.
//!
//! The last output, punt or recirculation of a list takes the packet itself; earlier outputs take
//! copies. Header changes after the last output have no effect. So a packet with one output, which
//! is nearly every packet, is moved and never copied.
//!
//! A recirculation interrupts its list: the rest of the list is pushed on the stack of pending
//! work, below the recirculated packet. So copies are sent in the order of the actions, at any
//! depth of recirculation.
//!
//! Each port has a batch of packets to send. A full batch is sent at once, other batches at the end
//! of the iteration. If the pool runs out of buffers for copies, all batches are sent earlier. So a
//! flood to many ports causes no loss: a port loses packets only when its own queue is full.
//! Checksums and segments that a port cannot make are made in software when a packet enters the
//! batch of the port.

use std::{iter, sync::Arc};

use shunt_flow::{FieldId, FlowKey, Layers, PortNo, rewrite};
use shunt_pipeline::{Continuation, DatapathAction, DatapathPort, QueueId, Time};

use crate::{
    capture::Taps,
    command::DATAPATH_PORT_MAX,
    metrics::DropReason,
    packet::{
        buffer::{BURST, Packet, Pool},
        change::change,
        meter,
        segment::SEGMENTS_MAX,
        virtio,
    },
    rule_sample::RuleSamples,
    thread::{
        packet_in::PacketInSender,
        tally::Tally,
        tx_port::{TxPort, TxPortIndex},
    },
};

/// The transmit queues of one packet thread, and its queue to the control plane.
pub(crate) struct Outputs {
    /// The ports, in the order in which they were added.
    pub(super) ports: Vec<TxPort>,
    /// Index into `ports` for each port number; [`ABSENT`] for an unused number.
    index_by_port: Vec<u32>,
    /// Indices into `ports` of the ports that must be flushed.
    pub(super) unflushed: Vec<u32>,
    /// The queue of packets for the control plane.
    pub(super) packet_ins: PacketInSender,
    /// The stack of pending work on recirculated packets; its top is at the end.
    pending: Vec<Pending>,
    /// Scratch: the frames of one packet-in after segmentation.
    pub(super) wire: Vec<Packet>,
    /// Time of this iteration.
    pub(crate) now: Time,
    /// The packet counts of this iteration.
    pub(crate) tally: Tally,
    /// The captures of packets in progress.
    pub(crate) taps: Taps,
    /// The samples that rules request.
    pub(crate) rule_samples: RuleSamples,
}

/// The parsed headers of a packet.
pub(crate) struct ParsedPacket<'a> {
    /// The header fields, which header changes update.
    pub(crate) key: &'a mut FlowKey,
    /// The offsets of the headers in the frame.
    pub(crate) layers: Layers,
}

/// Work that is left for a packet or for its copy after a recirculation.
#[expect(
    clippy::large_enum_variant,
    reason = "a list keeps its memory, and boxes would be allocated again"
)]
pub(crate) enum Pending {
    /// Parse the packet again, look it up, and resume the tables at the continuation.
    Recirculate {
        /// The packet that is parsed again.
        packet: Packet,
        /// The OpenFlow ingress port in the previous lookup.
        in_port: PortNo,
        /// The tables and registers with which the lookup resumes.
        continuation: Arc<Continuation>,
    },
    /// Execute the rest of an action list.
    ResumeActions {
        /// The packet on which the actions are executed.
        packet: Packet,
        /// The action list of which the rest is executed.
        actions: Arc<[DatapathAction]>,
        /// Index of the next action.
        next: usize,
        /// The key of the packet.
        key: FlowKey,
        /// The offsets of the headers of the packet.
        layers: Layers,
    },
}

/// A token that forces callers to do the work on the stack of pending work.
///
/// Every execution of actions returns a token, and only [`PacketThread::finish`] consumes it. So no
/// caller can forget recirculated packets.
///
/// [`PacketThread::finish`]: super::PacketThread::finish
#[derive(Debug)]
#[must_use = "pass it to `PacketThread::finish`, or recirculated packets stay behind"]
pub(crate) struct PendingWork(());

/// A list of actions: of a cache entry, or of the decision about one packet.
pub(crate) trait ActionList {
    /// Returns the actions to execute on a packet.
    fn actions(&self) -> &[DatapathAction];

    /// Returns shared actions, which pending work can own.
    fn share(&self) -> Arc<[DatapathAction]>;
}

/// Marks a port number that no port of the thread has.
const ABSENT: u32 = u32::MAX;

impl PendingWork {
    /// The token without work, after a packet that was sent unchanged.
    pub(super) const NONE: Self = Self(());

    /// Consumes the token: the caller itself loops over the stack.
    pub(super) const fn leave_to_callers_loop(self) {}
}

impl Outputs {
    /// Creates outputs without ports.
    pub(crate) const fn new(packet_ins: PacketInSender) -> Self {
        Self {
            ports: Vec::new(),
            index_by_port: Vec::new(),
            unflushed: Vec::new(),
            packet_ins,
            pending: Vec::new(),
            wire: Vec::new(),
            now: Time::ZERO,
            tally: Tally::new(),
            taps: Taps::new(),
            rule_samples: RuleSamples::NONE,
        }
    }

    /// Adds a port; returns the replaced port with the same number.
    pub(crate) fn add(&mut self, port: TxPort) -> Option<TxPort> {
        debug_assert!(port.port.number() <= DATAPATH_PORT_MAX);
        let replaced = self.remove(port.port);
        let number = port.port.number() as usize;
        if self.index_by_port.len() <= number {
            self.index_by_port.resize(number + 1, ABSENT);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "there are at most DATAPATH_PORT_MAX + 1 ports"
        )]
        {
            self.index_by_port[number] = self.ports.len() as u32;
        }
        self.ports.push(port);
        // Reserves space for all ports, so that no packet allocates memory.
        self.unflushed.reserve(self.ports.len() - self.unflushed.len());
        replaced
    }

    /// Removes a port; its batch must have been sent.
    pub(crate) fn remove(&mut self, port: DatapathPort) -> Option<TxPort> {
        let tx_index = self.find_index(port)?;
        let removed = self.ports.swap_remove(tx_index.index());
        debug_assert!(removed.batch.is_empty(), "the batch of a removed port was sent before");
        self.index_by_port[port.number() as usize] = ABSENT;
        let last = self.ports.len();
        self.unflushed.retain(|unflushed| *unflushed != tx_index.0);
        for unflushed in self.unflushed.iter_mut().filter(|own| **own as usize == last) {
            *unflushed = tx_index.0;
        }
        if let Some(moved) = self.ports.get(tx_index.index()) {
            self.index_by_port[moved.port.number() as usize] = tx_index.0;
        }
        Some(removed)
    }

    /// Returns the index of a port if the port can send `packet` unchanged.
    #[inline]
    pub(crate) fn ready_port(&self, port: DatapathPort, packet: &Packet) -> Option<TxPortIndex> {
        let tx_index = self.find_index(port)?;
        self.ports[tx_index.index()].can_send_unchanged(packet).then_some(tx_index)
    }

    /// Adds a packet to the batch of a port, unchanged.
    ///
    /// The packet moves from its burst directly to the batch of the port. Each intermediate
    /// variable would copy the packet, and stall the processor until the previous copy is complete.
    #[inline]
    pub(crate) fn forward(&mut self, pool: &mut Pool, tx_index: TxPortIndex, packet: Packet) {
        self.tally.forwarded += 1;
        let tx = &mut self.ports[tx_index.index()];
        if tx.batch.is_empty() {
            tx.mark(tx_index, &mut self.unflushed);
        }
        tx.batch.push(packet);
        if tx.batch.len() >= BURST {
            tx.send(self.now, pool, &mut self.tally, &mut self.taps);
        }
    }

    /// Adds a burst to the batch of a port, if possible without touching a packet.
    pub(crate) fn forward_all(
        &mut self,
        pool: &mut Pool,
        tx_index: TxPortIndex,
        packets: &mut Vec<Packet>,
    ) {
        self.tally.forwarded += packets.len() as u64;
        let tx = &mut self.ports[tx_index.index()];
        tx.mark(tx_index, &mut self.unflushed);
        if tx.batch.is_empty() {
            std::mem::swap(&mut tx.batch, packets);
        } else {
            tx.batch.append(packets);
        }
        if tx.batch.len() >= BURST {
            tx.send(self.now, pool, &mut self.tally, &mut self.taps);
        }
    }

    /// Executes action lists in sequence on a packet; `lists` is not empty.
    ///
    /// `cause` returns the drop reason of a packet that no action outputs.
    pub(crate) fn execute(
        &mut self,
        pool: &mut Pool,
        packet: Packet,
        lists: &[&impl ActionList],
        parsed: ParsedPacket<'_>,
        cause: impl FnOnce() -> DropReason,
    ) -> PendingWork {
        let ingress = packet.ingress;
        let actions = || lists.iter().flat_map(|list| list.actions());
        if !actions().any(|action| emits(action, ingress)) {
            let is_output =
                |action: &DatapathAction| matches!(action, DatapathAction::Output { .. });
            let reason = if !meter::count(actions(), self.now, packet.len()) {
                DropReason::Metered
            } else if actions().any(is_output) {
                DropReason::Hairpin
            } else {
                cause()
            };
            self.rule_samples.take(&mut actions(), &packet);
            return self.refuse(pool, packet, reason);
        }
        let was_recirculated = parsed.key.field(FieldId::RecircId) != 0;
        let has_emitted = self.execute_rest(pool, packet, lists, 0, parsed);
        self.tally.forwarded += u64::from(has_emitted && !was_recirculated);
        PendingWork(())
    }

    /// Executes action lists from action `next` on; one action must output the packet.
    ///
    /// Returns whether any output took place, perhaps before a meter dropped the packet.
    pub(crate) fn execute_rest(
        &mut self,
        pool: &mut Pool,
        mut packet: Packet,
        lists: &[&impl ActionList],
        next: usize,
        mut parsed: ParsedPacket<'_>,
    ) -> bool {
        let ingress = packet.ingress;
        let mut has_emitted = false;
        let actions = || lists.iter().flat_map(|list| list.actions());
        let emitting = actions().enumerate().filter(|(_, action)| emits(action, ingress)).last();
        let Some((last, last_action)) = emitting else {
            self.drop(pool, packet, DropReason::RuleWithoutOutput);
            return false;
        };
        for (index, action) in actions().enumerate().take(last).skip(next) {
            if let DatapathAction::Meter(meter) = action {
                if !meter::pass(&mut packet, meter, &mut parsed, self.now) {
                    self.drop(pool, packet, DropReason::Metered);
                    return has_emitted;
                }
            } else if emits(action, ingress) {
                let Some(copy) = self.copy(pool, &packet, max_len(action)) else {
                    self.drop_copy(action, ingress);
                    continue;
                };
                self.tally.copied += 1;
                if recirculates(action) {
                    let (actions, next) = (join_lists(lists), index + 1);
                    let (key, layers) = (parsed.key.clone(), parsed.layers);
                    self.pending.push(Pending::ResumeActions {
                        packet,
                        actions,
                        next,
                        key,
                        layers,
                    });
                    self.emit(pool, copy, action, &parsed);
                    return true;
                }
                has_emitted |= self.emit(pool, copy, action, &parsed);
            } else if matches!(action, DatapathAction::Copy(_) | DatapathAction::Sample(_)) {
                meter::count(iter::once(action), self.now, packet.len());
                self.rule_samples.take(&mut iter::once(action), &packet);
            } else if !change(&mut packet, action, &mut parsed) {
                self.drop(pool, packet, DropReason::Malformed);
                return has_emitted;
            }
        }
        // Later actions have no output, but their meters count the packet, and they may sample it.
        meter::count(actions().skip(last + 1), self.now, packet.len());
        self.rule_samples.take(&mut actions().skip(last + 1), &packet);
        if let Some(length) = max_len(last_action) {
            packet.truncate(length);
        }
        self.emit(pool, packet, last_action, &parsed) | has_emitted
    }

    /// Copies a packet; sends all batches first if the pool has no buffer left.
    ///
    /// `None` if packets that cannot be sent yet occupy all buffers.
    fn copy(&mut self, pool: &mut Pool, packet: &Packet, max_len: Option<usize>) -> Option<Packet> {
        let copy = pool.copy(packet, max_len);
        if copy.is_some() {
            return copy;
        }
        self.send_batches(pool);
        pool.copy(packet, max_len)
    }

    /// Counts a copy for which the pool had no buffer, also at its output port.
    fn drop_copy(&mut self, action: &DatapathAction, ingress: DatapathPort) {
        self.tally.drop_copy(DropReason::NoBuffer);
        let port = match action {
            DatapathAction::Output { port, .. } => *port,
            DatapathAction::OutputIngress { .. } => ingress,
            _ => return self.count_forward_drop(ingress, DropReason::NoBuffer),
        };
        if let Some(tx_index) = self.find_index(port) {
            self.ports[tx_index.index()].traffic.drop_many(DropReason::NoBuffer, 1);
        }
    }

    /// Sends all batches if the pool may lack buffers for the segments of a packet.
    pub(super) fn make_room(&mut self, pool: &mut Pool, packet: &Packet) {
        if packet.virtio.is_segmented() && pool.left(0) < SEGMENTS_MAX {
            self.send_batches(pool);
        }
    }

    /// Outputs, punts, recirculates or copies `packet`.
    ///
    /// Returns false for a copy that is not output, because a meter drops it first.
    fn emit(
        &mut self,
        pool: &mut Pool,
        packet: Packet,
        action: &DatapathAction,
        parsed: &ParsedPacket<'_>,
    ) -> bool {
        match action {
            DatapathAction::Output { port, queue, .. } => self.output(pool, *port, *queue, packet),
            DatapathAction::OutputIngress { queue, .. } => {
                self.output(pool, packet.ingress, *queue, packet);
            }
            DatapathAction::Punt(punt) => self.punt(pool, packet, punt),
            DatapathAction::Recirculate(continuation) => {
                self.recirculate(packet, continuation, parsed);
            }
            DatapathAction::CheckLength { length, larger, other } => {
                let is_larger = packet.wire_len() > usize::from(*length);
                self.recirculate(packet, if is_larger { larger } else { other }, parsed);
            }
            DatapathAction::Copy(inner) => {
                let parsed = ParsedPacket { key: &mut parsed.key.clone(), layers: parsed.layers };
                return self.execute_rest(pool, packet, &[inner], 0, parsed);
            }
            DatapathAction::Meter(_)
            | DatapathAction::SetHeader(_)
            | DatapathAction::PushVlan { .. }
            | DatapathAction::PopVlan
            | DatapathAction::PushMpls { .. }
            | DatapathAction::PopMpls { .. }
            | DatapathAction::Sample(_) => self.drop(pool, packet, DropReason::Malformed),
        }
        true
    }

    /// Pushes the recirculation of a packet on the stack of pending work.
    fn recirculate(
        &mut self,
        mut packet: Packet,
        continuation: &Arc<Continuation>,
        parsed: &ParsedPacket<'_>,
    ) {
        if let (Some(copy), Some(payload)) = (continuation.ttl_copy(), parsed.layers.payload()) {
            rewrite::copy_ttl(packet.frame_mut(), payload, copy);
        }
        let (in_port, continuation) = (parsed.key.in_port(), Arc::clone(continuation));
        self.pending.push(Pending::Recirculate { packet, in_port, continuation });
    }

    /// Queues a packet for a port, or drops it.
    fn output(&mut self, pool: &mut Pool, port: DatapathPort, queue: QueueId, packet: Packet) {
        let Some(tx_index) = self.find_index(port) else {
            return self.drop(pool, packet, DropReason::NoTxQueue);
        };
        self.make_room(pool, &packet);
        let tx = &mut self.ports[tx_index.index()];
        tx.mark(tx_index, &mut self.unflushed);
        let before = tx.batch.len();
        let finished = virtio::finish(packet, &tx.capabilities, pool, &mut tx.batch);
        if let Some(reason) = self.tally.finish(finished, tx.batch.len() - before) {
            tx.traffic.drop_many(reason, 1);
        }
        let mut is_burst = tx.batch.len() >= BURST;
        if queue != QueueId::DEFAULT {
            tx.move_to_queue(before, queue, pool, &mut self.tally, &mut self.taps);
            is_burst = tx.batch.len() >= BURST || tx.has_new_burst();
        }
        if is_burst {
            tx.send(self.now, pool, &mut self.tally, &mut self.taps);
        }
    }

    /// Drops a packet without executing its actions.
    pub(crate) fn refuse(
        &mut self,
        pool: &mut Pool,
        packet: Packet,
        reason: DropReason,
    ) -> PendingWork {
        self.drop(pool, packet, reason);
        PendingWork(())
    }

    /// Pops the top of the stack of pending work.
    #[inline]
    pub(crate) fn pop_pending(&mut self) -> Option<Pending> {
        self.pending.pop()
    }

    /// Drops a packet; counts the reason for the thread and for the ingress port.
    pub(crate) fn drop(&mut self, pool: &mut Pool, packet: Packet, reason: DropReason) {
        self.count_forward_drop(packet.ingress, reason);
        self.drop_counted(pool, packet, reason);
    }

    /// Counts a packet, dropped between receive and transmit, at its ingress port.
    ///
    /// Counts nothing if the port was removed, or if a packet-out names no ingress port.
    pub(super) fn count_forward_drop(&self, ingress: DatapathPort, reason: DropReason) {
        if let Some(tx_index) = self.find_index(ingress) {
            self.ports[tx_index.index()].traffic.forward_dropped.add(reason, 1);
        }
    }

    /// Drops a packet that a port has counted; counts the reason for the thread.
    pub(super) fn drop_counted(&mut self, pool: &mut Pool, packet: Packet, reason: DropReason) {
        self.tally.dropped[reason as usize] += 1;
        self.taps.at_drop(std::slice::from_ref(&packet));
        pool.put_back(packet);
    }

    /// Sends all batches, so that their buffers return to the pool.
    pub(crate) fn send_batches(&mut self, pool: &mut Pool) {
        for tx in self.ports.iter_mut().filter(|tx| !tx.batch.is_empty()) {
            tx.send(self.now, pool, &mut self.tally, &mut self.taps);
        }
    }

    /// Sends all batches and all due packets of egress queues; flushes transmit queues.
    pub(crate) fn flush(&mut self, pool: &mut Pool) {
        let Self { ports, unflushed, tally, taps, now, .. } = self;
        unflushed.retain(|tx_index| {
            let tx = &mut ports[*tx_index as usize];
            if !tx.batch.is_empty() || tx.qos.is_some() {
                tx.send(*now, pool, tally, taps);
            }
            tx.queue.flush();
            tx.is_unflushed = tx.queue.is_pending() || tx.queued() > 0;
            tx.is_unflushed
        });
    }

    /// Returns the index of a port of this thread.
    #[inline]
    pub(super) fn find_index(&self, port: DatapathPort) -> Option<TxPortIndex> {
        let tx_index = *self.index_by_port.get(port.number() as usize)?;
        (tx_index != ABSENT).then_some(TxPortIndex(tx_index))
    }
}

/// Returns whether an action outputs, punts or recirculates a packet.
fn emits(action: &DatapathAction, ingress: DatapathPort) -> bool {
    match action {
        DatapathAction::Output { port, unless_ingress, .. } => {
            !(*unless_ingress && *port == ingress)
        }
        DatapathAction::OutputIngress { .. }
        | DatapathAction::Punt(_)
        | DatapathAction::Recirculate(_)
        | DatapathAction::CheckLength { .. } => true,
        DatapathAction::Copy(inner) => inner.iter().any(|action| emits(action, ingress)),
        DatapathAction::Meter(_)
        | DatapathAction::SetHeader(_)
        | DatapathAction::PushVlan { .. }
        | DatapathAction::PopVlan
        | DatapathAction::PushMpls { .. }
        | DatapathAction::PopMpls { .. }
        | DatapathAction::Sample(_) => false,
    }
}

/// Returns action lists as one list.
///
/// A packet with a recirculation usually has one list, because traversals end at a recirculation.
fn join_lists(lists: &[&impl ActionList]) -> Arc<[DatapathAction]> {
    match lists {
        [one] => one.share(),
        many => many.iter().flat_map(|list| list.actions()).cloned().collect(),
    }
}

impl ActionList for Arc<[DatapathAction]> {
    #[inline]
    fn actions(&self) -> &[DatapathAction] {
        self
    }

    fn share(&self) -> Self {
        Self::clone(self)
    }
}

impl ActionList for Vec<DatapathAction> {
    #[inline]
    fn actions(&self) -> &[DatapathAction] {
        self
    }

    fn share(&self) -> Arc<[DatapathAction]> {
        self.as_slice().into()
    }
}

/// Returns whether an action recirculates the packet or a copy of it.
pub(crate) fn recirculates(action: &DatapathAction) -> bool {
    match action {
        DatapathAction::Recirculate(_) | DatapathAction::CheckLength { .. } => true,
        // Copies nest at most 64 deep.
        DatapathAction::Copy(inner) => inner.iter().any(recirculates),
        _ => false,
    }
}

/// Returns the length to which an output action truncates the packet.
const fn max_len(action: &DatapathAction) -> Option<usize> {
    match action {
        DatapathAction::Output { max_len: Some(length), .. }
        | DatapathAction::OutputIngress { max_len: Some(length), .. } => Some(*length as usize),
        _ => None,
    }
}
