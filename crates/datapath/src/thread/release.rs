//! Receive queues that move between packet threads, and their measured load.
//!
//! The control plane asks a thread to release a queue, and gives the queue to another thread. The
//! first thread stops to poll the queue. The thread releases the queue between two iterations, when
//! it has no packet of the queue any more. Then none waits for a translation, and no output holds
//! one: neither an egress queue, nor a transmit queue with packets that the device has not taken.
//! The kernel queues the packets that arrive meanwhile. So the other thread sends the next packet of
//! each flow after all earlier ones.
//!
//! Outputs that hold only packets of other ports do not count. A packet names the port that received
//! it, and not the queue. So packets of another queue of the same port count too, if that queue is
//! at the same thread.
//!
//! While an output with packets of the queue stays full, the thread would never release the queue.
//! So it polls the queue again before the device can lose packets ([`RxQueue::may_overflow`]). The
//! control plane repeats the request.
//!
//! [`RxQueue::may_overflow`]: crate::port::RxQueue::may_overflow
//!
//! The load of a queue is the time of the iterations that returned packets of it. An iteration with
//! packets of several queues counts for each queue by its part of the packets. So no clock is read
//! for each burst.

use std::time::Duration;

use shunt_pipeline::{DatapathPort, Time};

use super::{
    PacketThread,
    receive::{RxPort, RxPorts, RxState},
};
use crate::command::{ReleasedReceiver, Reply, RxQueueState};

/// The request to release a receive queue.
pub(super) struct PendingRelease {
    /// Time of the request.
    since: Time,
    /// The channel that gets the released receive queue.
    reply: Reply<Option<ReleasedReceiver>>,
}

impl PacketThread {
    /// Releases the receive queues of which the thread has no packet any more.
    pub(super) fn finish_releases(&mut self) {
        if self.rx_ports.is_releasing() {
            let outputs = &self.outputs;
            self.rx_ports.finish_releases(self.now, |port| outputs.hold_packets_of(port));
        }
    }
}

impl RxPorts {
    /// Returns whether a receive queue waits for its release.
    pub(super) const fn is_releasing(&self) -> bool {
        self.releasing > 0
    }

    /// Ends the polls of a receive queue, and releases the queue in a later iteration.
    ///
    /// The reply is `None` if the thread has no such queue, or cannot release it.
    pub(super) fn begin_release(
        &mut self,
        port: DatapathPort,
        number: u16,
        now: Time,
        reply: Reply<Option<ReleasedReceiver>>,
    ) {
        let is_selected = |own: &RxPort| {
            own.port == port && own.number_in_port == number && own.state == RxState::Open
        };
        let Some(index) = self.list.iter().position(is_selected) else {
            reply(None);
            return;
        };
        let own = &mut self.list[index];
        own.state = RxState::Leaving;
        own.may_have_more = false;
        own.release = Some(PendingRelease { since: now, reply });
        self.events.remove(own.queue.wait_fd());
        self.ready.close(index);
        self.releasing += 1;
    }

    /// Releases the queues without packets, and polls queues again that may overflow.
    ///
    /// `is_held` returns whether an output holds packets that a port received.
    fn finish_releases(&mut self, now: Time, is_held: impl Fn(DatapathPort) -> bool) {
        let mut index = 0;
        while let Some(own) = self.list.get_mut(index) {
            let is_sent = own.finished == own.received;
            let is_unused = own.release.is_some() && is_sent && !is_held(own.port);
            let queue = &own.queue;
            let is_due = |pending: &mut PendingRelease| {
                is_unused || queue.may_overflow(now.since(pending.since))
            };
            let Some(PendingRelease { reply, .. }) = own.release.take_if(is_due) else {
                index += 1;
                continue;
            };
            self.releasing -= 1;
            if is_unused {
                // The last receive queue moves to this index.
                let RxPort { queue, number_in_port: number, received, load, .. } = self.take(index);
                let state = RxQueueState { number, received, load };
                reply(Some(ReleasedReceiver { queue, state }));
            } else {
                own.state = RxState::Open;
                let source = self.events.add(own.queue.wait_fd(), index);
                self.ready.open(index, source);
                reply(None);
                index += 1;
            }
        }
    }

    /// Counts the time of the last iteration for the queues with packets in it.
    #[inline]
    pub(super) fn count_time(&mut self, elapsed: Duration) {
        if self.loaded.is_empty() {
            return;
        }
        let Self { list, loaded, .. } = self;
        let indices = loaded.iter().map(|index| &list[*index as usize]);
        let total: u64 = indices.map(|port| port.received - port.counted).sum();
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        for index in loaded.drain(..) {
            let port = &mut list[index as usize];
            let count = port.received - port.counted;
            port.load.busy_ns.add(elapsed.saturating_mul(count) / total.max(1));
            port.load.packets.add(count);
            port.load.bursts.add(1);
            port.counted = port.received;
        }
    }
}
