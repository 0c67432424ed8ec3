//! The receiver and the sender of a device, for a thread that moves frames.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use shunt_shared_memory::{PolledFrames, SendEnd, SentFrames};

use crate::{
    announcement::announcement,
    features::VirtioFeatures,
    net_queue::{DiscardingSink, FramePut, FrameSink, NetHeader},
    queues::DeviceQueues,
};

/// The receiver and the sender of one worker, which is a thread that moves frames.
#[derive(Debug)]
pub struct Worker {
    /// Takes frames from the guest.
    pub receiver: FrameReceiver,
    /// Sends frames to the guest.
    pub sender: FrameSender,
}

impl Worker {
    /// Returns the receiver and sender with number `worker`.
    pub(crate) fn new(queues: &Arc<DeviceQueues>, worker: u16) -> Self {
        let receiver = FrameReceiver {
            queues: Arc::clone(queues),
            worker,
            turn: 0,
            idle_polls: 0,
            waits_for_kicks: false,
        };
        let sender = FrameSender { queues: Arc::clone(queues), worker };
        Self { receiver, sender }
    }
}

/// Takes frames from the queues of a guest that belong to one worker.
#[derive(Debug)]
pub struct FrameReceiver {
    queues: Arc<DeviceQueues>,
    worker: u16,
    /// The queue of this worker to poll first.
    turn: u16,
    /// Number of polls since the last frame.
    idle_polls: u32,
    /// True while a request for kicks is active.
    waits_for_kicks: bool,
}

/// Number of polls without a frame before the guest is requested to kick.
///
/// A kick costs the guest a microsecond or more. A guest that sends without a pause should not need
/// to kick.
const IDLE_POLLS: u32 = 64;

impl FrameReceiver {
    /// Takes at most `max` frames; never waits.
    ///
    /// The queues of this worker are polled in turn.
    pub fn receive(&mut self, max: usize, sink: &mut impl FrameSink) -> PolledFrames {
        let own = self.own_queues();
        if std::mem::take(&mut self.waits_for_kicks) {
            for turn in 0..own {
                let mut queue = self.queues.try_queue(self.queue(turn));
                if let Some(running) = queue.as_mut().and_then(|queue| queue.as_mut()) {
                    running.ring.suppress_kicks();
                }
            }
        }
        let (mut frames, mut is_contended) = (0, false);
        if max > 0
            && let Some(mac) = self.queues.take_announcement(self.worker)
        {
            announce(mac, sink);
            frames += 1;
        }
        for step in 0..own {
            let queue = self.queue((self.turn.wrapping_add(step)) % own);
            match self.take(queue, max - frames, sink) {
                Some(taken) => frames += taken,
                None => is_contended = true,
            }
        }
        self.turn = self.turn.wrapping_add(1);
        if frames > 0 || is_contended {
            self.idle_polls = 0;
            return PolledFrames { frames, may_have_more: true };
        }
        self.idle_polls = self.idle_polls.saturating_add(1);
        PolledFrames { frames, may_have_more: self.idle_polls < IDLE_POLLS || self.request_kicks() }
    }

    /// Returns a descriptor that is readable while frames may wait.
    ///
    /// The descriptor is reliable after a poll with `may_have_more` unset.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.queues.wake_set(self.worker).as_fd()
    }

    /// Returns the number of queues that belong to the worker.
    fn own_queues(&self) -> u16 {
        let pairs = self.queues.pairs_from_guest();
        pairs.saturating_sub(self.worker).div_ceil(self.queues.workers())
    }

    /// Returns the number of the queue that the worker polls in a turn.
    fn queue(&self, turn: u16) -> u16 {
        2 * (self.worker + turn * self.queues.workers()) + 1
    }

    /// Takes frames from a queue; `None` if the control thread has locked it.
    fn take(&self, queue: u16, max: usize, sink: &mut impl FrameSink) -> Option<usize> {
        let mut slot = self.queues.try_queue(queue)?;
        let Some(running) = slot.as_mut() else { return Some(0) };
        let (taken, result) = if running.is_enabled {
            running.take(max, sink)
        } else {
            running.take(max, &mut DiscardingSink)
        };
        running.publish();
        if let Err(error) = result {
            self.queues.break_queue(&mut slot, queue, error);
        }
        Some(taken)
    }

    /// Requests kicks from the guest; returns whether a queue must still be polled.
    fn request_kicks(&mut self) -> bool {
        self.waits_for_kicks = true;
        self.queues.wake_set(self.worker).clear_wake();
        let mut must_poll = self.queues.has_announcement(self.worker);
        // The queues are counted again: the control thread may have started a queue before the wake
        // event was cleared.
        for queue in (0..self.own_queues()).map(|turn| self.queue(turn)) {
            let Some(mut slot) = self.queues.try_queue(queue) else {
                must_poll = true;
                continue;
            };
            let Some(running) = slot.as_mut() else { continue };
            // The kick event is cleared before the request, so that a kick after the request is
            // kept.
            running.clear_kick();
            // Without a kick descriptor the guest does not kick, and the queue must be polled.
            must_poll |= running.kick.is_none();
            match running.ring.request_kick() {
                Ok(has_frames) => must_poll |= has_frames,
                Err(error) => {
                    self.queues.break_queue(&mut slot, queue, error);
                }
            }
        }
        must_poll
    }
}

/// Sends frames to a guest.
#[derive(Debug)]
pub struct FrameSender {
    queues: Arc<DeviceQueues>,
    worker: u16,
}

impl FrameSender {
    /// Returns the features that the guest accepted.
    ///
    /// A sent frame may need only offloads that are among these features.
    #[must_use]
    pub fn features(&self) -> VirtioFeatures {
        self.queues.features()
    }

    /// Sends frames, each with its header; never waits.
    ///
    /// The queue is full also while the guest does not run. The queue is busy while another worker
    /// sends by it, or the control thread changes it.
    ///
    /// The function sets the number of buffers in the headers.
    pub fn send<'a>(
        &mut self,
        frames: impl IntoIterator<Item = (NetHeader, &'a [u8]), IntoIter: ExactSizeIterator>,
    ) -> SentFrames {
        let pairs = self.queues.pairs_to_guest();
        let Some(pair) = self.worker.checked_rem(pairs) else {
            return SentFrames::none(SendEnd::Full);
        };
        let queue = 2 * pair;
        let Some(mut slot) = self.queues.try_queue(queue) else {
            return SentFrames::none(SendEnd::Busy);
        };
        let Some(running) = slot.as_mut().filter(|running| running.is_enabled) else {
            return SentFrames::none(SendEnd::Full);
        };
        let (frames, result) = running.put(frames.into_iter());
        running.publish();
        let end = match result {
            Ok(FramePut::Done) => SendEnd::All,
            Ok(FramePut::Full) => SendEnd::Full,
            Ok(FramePut::Refused) => SendEnd::Refused,
            Err(error) => {
                self.queues.break_queue(&mut slot, queue, error);
                SendEnd::Full
            }
        };
        SentFrames { frames, end }
    }
}

/// Passes the announcement of a guest to `sink`, as if the guest had sent it.
fn announce(mac: [u8; 6], sink: &mut impl FrameSink) {
    let frame = announcement(mac);
    if let Some(buffer) = sink.buffer(frame.len()) {
        buffer.copy_from_slice(&frame);
        sink.take(NetHeader::default());
    }
}
