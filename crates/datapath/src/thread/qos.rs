//! The quality of service (QoS) of the ports to which a packet thread sends.

use std::{slice, sync::Arc, time::Duration};

use shunt_pipeline::{DatapathPort, QueueId, Time};

use super::{execute::Outputs, tally::Tally, tx_port::TxPort};
use crate::{
    capture::Taps,
    egress::{
        PortQos,
        queues::{EgressQueues, QUEUE_MAX},
    },
    metrics::DropReason,
    packet::{
        buffer::{BURST, Pool},
        egress_policer::EgressPolicer,
    },
};

/// The quality of service of a port, on one packet thread.
#[derive(Debug)]
pub(super) enum TxQos {
    /// Drops packets above a rate.
    Policer(Arc<EgressPolicer>),
    /// Delays packets above a rate in egress queues.
    Queues(Box<EgressQueues>),
}

/// Longest sleep of the thread while a device has not taken all packets.
const UNFLUSHED_SLEEP: Duration = Duration::from_millis(1);

/// The thread does not sleep if a packet is due within this time.
///
/// A sleep may end a millisecond late.
const AWAKE_BEFORE_DUE: Duration = Duration::from_millis(2);

/// Maximum number of bursts that a port sends in a row: a whole egress queue.
const BURSTS_MAX: usize = QUEUE_MAX.div_ceil(BURST);

impl From<PortQos> for TxQos {
    fn from(qos: PortQos) -> Self {
        match qos {
            PortQos::Policer(policer) => Self::Policer(policer),
            PortQos::Queues(scheduler) => Self::Queues(Box::new(EgressQueues::new(scheduler))),
        }
    }
}

impl TxPort {
    /// Drops or delays packets of the batch by QoS, and sends all due packets.
    #[inline(never)]
    pub(super) fn send_with_qos(
        &mut self,
        now: Time,
        pool: &mut Pool,
        tally: &mut Tally,
        taps: &mut Taps,
    ) {
        if !matches!(self.qos, Some(TxQos::Queues(_))) {
            self.drop_exceeding(now, pool, tally, taps);
            return self.transmit(pool, tally, taps);
        }
        self.move_to_queue(0, QueueId::DEFAULT, pool, tally, taps);
        for _ in 0..BURSTS_MAX {
            let Some(TxQos::Queues(queues)) = &mut self.qos else { return };
            queues.take_due(now, &mut self.batch);
            let taken = self.batch.len();
            self.transmit(pool, tally, taps);
            if taken < BURST {
                return;
            }
        }
    }

    /// Moves the packets of the batch, from `start` on, to an egress queue.
    ///
    /// Does nothing if the port has no egress queues.
    pub(super) fn move_to_queue(
        &mut self,
        start: usize,
        queue: QueueId,
        pool: &mut Pool,
        tally: &mut Tally,
        taps: &mut Taps,
    ) {
        let Self { qos: Some(TxQos::Queues(queues)), batch, traffic, .. } = self else { return };
        for packet in batch.drain(start..) {
            if let Err(packet) = queues.push(queue, packet, pool) {
                traffic.drop_many(DropReason::EgressQueueFull, 1);
                tally.dropped[DropReason::EgressQueueFull as usize] += 1;
                taps.at_drop(slice::from_ref(&packet));
                pool.put_back(packet);
            }
        }
    }

    /// Drops the packets of the batch that exceed the egress rate limit of the port.
    fn drop_exceeding(&mut self, now: Time, pool: &mut Pool, tally: &mut Tally, taps: &mut Taps) {
        let Some(TxQos::Policer(policer)) = &self.qos else { return };
        let packets = self.batch.len();
        for packet in self.batch.extract_if(.., |packet| !policer.admit(now, packet.len())) {
            taps.at_drop(slice::from_ref(&packet));
            pool.put_back(packet);
        }
        let dropped = (packets - self.batch.len()) as u64;
        self.traffic.drop_many(DropReason::EgressPoliced, dropped);
        tally.dropped[DropReason::EgressPoliced as usize] += dropped;
    }

    /// Returns whether the egress queues got a whole burst since the last send.
    pub(super) fn has_new_burst(&self) -> bool {
        self.queues().is_some_and(EgressQueues::has_new_burst)
    }

    /// Returns the number of packets in the egress queues of the port.
    pub(super) fn queued(&self) -> usize {
        self.queues().map_or(0, EgressQueues::len)
    }

    /// Returns whether the port holds packets that the port `ingress` received.
    ///
    /// Packets that are not sent wait in egress queues, or the device has not taken them.
    fn holds_packets_of(&self, ingress: DatapathPort) -> bool {
        self.queue.holds_packets_of(ingress)
            || self.queues().is_some_and(|queues| queues.holds_packets_of(ingress))
    }

    /// Returns the time before which no packet is due; `None` without packets.
    fn due(&self) -> Option<Time> {
        self.queues()?.due()
    }

    /// Returns the egress queues of the port, if it has any.
    fn queues(&self) -> Option<&EgressQueues> {
        match &self.qos {
            Some(TxQos::Queues(queues)) => Some(queues),
            Some(TxQos::Policer(_)) | None => None,
        }
    }
}

impl Outputs {
    /// Sets the quality of service of a port; `None` removes it.
    ///
    /// Waiting packets move to the new queues with the same numbers. If the port no longer has
    /// queues, the packets are sent.
    pub(crate) fn set_qos(&mut self, pool: &mut Pool, port: DatapathPort, qos: Option<PortQos>) {
        let Some(tx_index) = self.find_index(port) else { return };
        let tx = &mut self.ports[tx_index.index()];
        tx.send(self.now, pool, &mut self.tally, &mut self.taps);
        let old = std::mem::replace(&mut tx.qos, qos.map(TxQos::from));
        let Some(TxQos::Queues(mut old)) = old else { return };
        for (queue, packet) in old.take_all() {
            let start = tx.batch.len();
            tx.batch.push(packet);
            tx.move_to_queue(start, queue, pool, &mut self.tally, &mut self.taps);
            if tx.batch.len() >= BURST {
                tx.send(self.now, pool, &mut self.tally, &mut self.taps);
            }
        }
        tx.send(self.now, pool, &mut self.tally, &mut self.taps);
        tx.mark(tx_index, &mut self.unflushed);
    }

    /// Drops the packets in the egress queues of a removed port.
    pub(crate) fn drop_queued(&mut self, pool: &mut Pool, tx: &mut TxPort) {
        let Some(TxQos::Queues(mut queues)) = tx.qos.take() else { return };
        for (_, packet) in queues.take_all() {
            tx.traffic.drop_many(DropReason::PortRemoved, 1);
            self.drop_counted(pool, packet, DropReason::PortRemoved);
        }
    }

    /// Returns the number of packets in the egress queues of all ports.
    pub(crate) fn queued(&self) -> usize {
        self.unflushed_ports().map(TxPort::queued).sum()
    }

    /// Returns whether an output holds packets that the port `ingress` received.
    ///
    /// Valid between two iterations, after [`Self::flush`].
    pub(super) fn hold_packets_of(&self, ingress: DatapathPort) -> bool {
        self.unflushed_ports().any(|tx| tx.holds_packets_of(ingress))
    }

    /// Returns the time that the thread may sleep; `None` if a packet is due soon.
    pub(crate) fn sleep_max(&self) -> Option<Duration> {
        let wait = |tx: &TxPort| {
            let device = if tx.queue.is_pending() { UNFLUSHED_SLEEP } else { Duration::MAX };
            let Some(due) = tx.due() else { return Some(device) };
            let wait = due.since(self.now).checked_sub(AWAKE_BEFORE_DUE)?;
            Some(device.min(wait))
        };
        self.unflushed_ports().try_fold(Duration::MAX, |limit, tx| Some(limit.min(wait(tx)?)))
    }

    /// Returns the ports with packets that a later flush must send.
    fn unflushed_ports(&self) -> impl Iterator<Item = &TxPort> {
        self.unflushed.iter().map(|tx_index| &self.ports[*tx_index as usize])
    }
}
