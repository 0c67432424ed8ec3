//! The receiver and the sender of an interface, for one thread that moves frames.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use shunt_shared_memory::{PolledFrames, SendEnd, SentFrames};

use crate::{queues::InterfaceQueues, ring::MemifPut};

/// The receiver and the sender of one worker thread.
#[derive(Debug)]
pub struct MemifWorker {
    /// Takes frames from the peer.
    pub receiver: MemifReceiver,
    /// Sends frames to the peer.
    pub sender: MemifSender,
}

impl MemifWorker {
    /// Returns the receiver and sender with number `worker`.
    pub(crate) fn new(queues: &Arc<InterfaceQueues>, worker: u16) -> Self {
        let receiver = MemifReceiver {
            queues: Arc::clone(queues),
            worker,
            turn: 0,
            idle_polls: 0,
            waits_for_events: false,
        };
        Self { receiver, sender: MemifSender { queues: Arc::clone(queues), worker } }
    }
}

/// A consumer of frames.
pub trait MemifSink {
    /// Returns the memory for a frame of `length` bytes; `None` refuses the frame.
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Takes the frame that was copied into the last buffer.
    fn take(&mut self);
}

/// Takes frames from the rings that belong to one worker.
#[derive(Debug)]
pub struct MemifReceiver {
    queues: Arc<InterfaceQueues>,
    worker: u16,
    /// The ring that this worker polls first next time.
    turn: u16,
    /// Number of polls in a row without a frame.
    idle_polls: u32,
    /// True while notifications are requested from the peer.
    waits_for_events: bool,
}

/// Number of polls without a frame after which notifications are requested.
///
/// A notification costs the peer a system call, which a peer that sends without pause should not
/// need.
const IDLE_POLLS: u32 = 64;

/// Number of further polls without a frame after which the worker may sleep.
///
/// A peer may store an index, and load the flag before the processor makes the index visible,
/// because `net_memif` and libmemif have no fence between both. With such an order, the peer would
/// send no notification, and the frame would wait for the next frame. Processors make an index
/// visible long before these polls are over, but their specifications do not guarantee it.
const SETTLE_POLLS: u32 = 64;

impl MemifReceiver {
    /// Takes at most `max` frames; never waits.
    ///
    /// The rings of this worker are polled round robin.
    pub fn receive(&mut self, max: usize, sink: &mut impl MemifSink) -> PolledFrames {
        if self.waits_for_events && self.clear_events() {
            // The control thread has started or stopped rings.
            self.set_interrupts(false);
            self.idle_polls = 0;
        }
        let own = self.own_queues();
        let (mut frames, mut is_contended) = (0, false);
        for step in 0..own {
            let queue = self.queue((self.turn.wrapping_add(step)) % own);
            match self.take(queue, max - frames, sink) {
                Some(taken) => frames += taken,
                None => is_contended = true,
            }
        }
        self.turn = self.turn.wrapping_add(1);
        if frames > 0 || is_contended {
            if self.waits_for_events {
                self.set_interrupts(false);
            }
            self.idle_polls = 0;
            return PolledFrames { frames, may_have_more: true };
        }
        self.idle_polls = self.idle_polls.saturating_add(1);
        if self.idle_polls >= IDLE_POLLS && !self.waits_for_events {
            self.set_interrupts(true);
            self.idle_polls = IDLE_POLLS;
        }
        let may_sleep = self.idle_polls >= IDLE_POLLS + SETTLE_POLLS && self.are_watched();
        PolledFrames { frames, may_have_more: !may_sleep }
    }

    /// Returns a descriptor that is readable while frames may wait.
    ///
    /// After a poll with `may_have_more` unset, the descriptor becomes readable for the next frame.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.queues.wake_set(self.worker).as_fd()
    }

    /// Returns the number of rings that belong to the worker.
    fn own_queues(&self) -> u16 {
        self.queues.receive_count().saturating_sub(self.worker).div_ceil(self.queues.workers())
    }

    /// Returns the number of the queue that the worker polls in a turn.
    fn queue(&self, turn: u16) -> u16 {
        self.worker + turn * self.queues.workers()
    }

    /// Takes frames from a ring; `None` if the control thread has locked it.
    fn take(&self, queue: u16, max: usize, sink: &mut impl MemifSink) -> Option<usize> {
        let mut slot = self.queues.try_receive(queue)?;
        let Some(running) = slot.as_mut() else { return Some(0) };
        let (taken, result) = running.ring.take_frames(max, sink);
        if let Err(error) = result {
            self.queues.fail_receive(&mut slot, queue, error);
        }
        Some(taken)
    }

    /// Resets the events that wake the worker.
    ///
    /// The next poll finds frames that were announced before. Returns whether the control thread
    /// has changed the rings.
    fn clear_events(&self) -> bool {
        let is_changed = self.queues.wake_set(self.worker).clear_wake();
        for queue in (0..self.own_queues()).map(|turn| self.queue(turn)) {
            let slot = self.queues.try_receive(queue);
            if let Some(running) = slot.as_ref().and_then(|slot| slot.as_ref()) {
                running.clear_event();
            }
        }
        is_changed
    }

    /// Requests notifications from the peer, or requests to omit them.
    fn set_interrupts(&mut self, are_wanted: bool) {
        self.waits_for_events = are_wanted;
        if are_wanted {
            // Rings that are started from now on set the wake event again.
            self.clear_events();
        }
        for queue in (0..self.own_queues()).map(|turn| self.queue(turn)) {
            let mut slot = self.queues.try_receive(queue);
            if let Some(running) = slot.as_mut().and_then(|slot| slot.as_mut()) {
                running.ring.set_interrupts(are_wanted);
            }
        }
    }

    /// Returns whether the events of all rings of this worker can wake it.
    fn are_watched(&self) -> bool {
        (0..self.own_queues()).all(|turn| {
            let slot = self.queues.try_receive(self.queue(turn));
            slot.is_some_and(|slot| slot.as_ref().is_none_or(|running| running.is_watched()))
        })
    }
}

/// Sends frames to the peer.
#[derive(Debug)]
pub struct MemifSender {
    queues: Arc<InterfaceQueues>,
    worker: u16,
}

impl MemifSender {
    /// Sends frames; never waits.
    ///
    /// The result is [`SendEnd::Full`] also while no peer is connected. The result is
    /// [`SendEnd::Busy`] while another worker uses the ring, or the control thread changes it.
    pub fn send<'a>(
        &mut self,
        frames: impl IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator>,
    ) -> SentFrames {
        let Some(queue) = self.worker.checked_rem(self.queues.transmit_count()) else {
            return SentFrames::none(SendEnd::Full);
        };
        let Some(mut slot) = self.queues.try_transmit(queue) else {
            return SentFrames::none(SendEnd::Busy);
        };
        let Some(running) = slot.as_mut() else {
            return SentFrames::none(SendEnd::Full);
        };
        let frames = frames.into_iter();
        let mut sent = SentFrames::none(SendEnd::All);
        let mut result = running.ring.look(frames.len());
        if result.is_ok() {
            for frame in frames {
                match running.ring.put_frame(frame) {
                    Ok(MemifPut::Done) => {
                        sent.frames += 1;
                        continue;
                    }
                    Ok(MemifPut::Full) => sent.end = SendEnd::Full,
                    Ok(MemifPut::Refused) => sent.end = SendEnd::Refused,
                    Err(error) => result = Err(error),
                }
                break;
            }
        }
        running.publish();
        if let Err(error) = result {
            sent.end = SendEnd::Full;
            self.queues.fail_transmit(&mut slot, error);
        }
        sent
    }
}
