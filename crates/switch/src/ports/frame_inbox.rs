//! Received frames of a protocol that wait for its task: the newest frames of each port.
//!
//! A flood on one link does not displace frames of other links. Of the flooded link the newest
//! frames are kept, because each LACPDU or BFD packet replaces the information of earlier ones.
//!
//! Each frame has the time of its arrival. So a delay of the task does not look like silence of the
//! partner.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use parking_lot::Mutex;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, Time};
use tokio::sync::Notify;

/// The waiting frames, by port.
///
/// Packet threads add frames only for ports that use the protocol.
#[derive(Debug, Default)]
pub(crate) struct FrameInbox {
    ports: Mutex<WaitingFrames>,
    came: Notify,
}

/// Waiting frames by bridge and port.
pub(crate) type WaitingFrames = BTreeMap<(BridgeId, PortNo), PortFrames>;

/// The waiting frames of one port, the oldest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PortFrames {
    pub(crate) frames: VecDeque<ArrivedFrame>,
    /// Number of older frames that were dropped.
    pub(crate) removed: u64,
}

/// A frame with the time of its arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArrivedFrame {
    pub(crate) arrived: Time,
    pub(crate) frame: Vec<u8>,
}

/// Maximum number of waiting frames of a port:
/// a second of LACPDUs and marker requests.
const FRAMES_MAX: usize = 8;

impl FrameInbox {
    /// Adds a frame that a port received, and wakes the task.
    pub(crate) fn add(&self, bridge: BridgeId, port: PortNo, frame: ArrivedFrame) {
        let mut ports = self.ports.lock();
        let own = ports.entry((bridge, port)).or_default();
        if own.frames.len() >= FRAMES_MAX {
            own.frames.pop_front();
            own.removed = own.removed.saturating_add(1);
        }
        own.frames.push_back(frame);
        drop(ports);
        self.came.notify_one();
    }

    /// Waits until there are frames.
    pub(crate) async fn wait(&self) {
        while self.ports.lock().is_empty() {
            self.came.notified().await;
        }
    }

    /// Takes the waiting frames.
    ///
    /// A caller that reads the clock first gets every frame that arrived before that time. So no
    /// timeout expires for a partner that has sent in time.
    pub(crate) fn take(&self) -> WaitingFrames {
        mem::take(&mut *self.ports.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use tokio::{
        runtime::Builder,
        time::{Duration, timeout},
    };

    use super::*;

    const BRIDGE: BridgeId = BridgeId::new(1);

    #[test]
    fn the_newest_frames_of_each_port_wait() {
        let inbox = FrameInbox::default();
        let frame = |number: u8| ArrivedFrame {
            arrived: Time::ZERO.after(Duration::from_secs(number.into())),
            frame: vec![number],
        };
        inbox.add(BRIDGE, PortNo::new(2), frame(7));
        for number in 0..20 {
            inbox.add(BRIDGE, PortNo::new(1), frame(number));
        }
        let mut taken = inbox.take();
        let own = taken.remove(&(BRIDGE, PortNo::new(1))).unwrap();
        assert_eq!(own.frames, (12..20).map(frame).collect::<Vec<_>>());
        assert_eq!(own.removed, 12);
        let other = PortFrames { frames: [frame(7)].into(), removed: 0 };
        assert_eq!(taken, BTreeMap::from([((BRIDGE, PortNo::new(2)), other)]));
    }

    /// Every frame is either taken or counted, however adding and taking interleave.
    #[test]
    fn each_frame_is_taken_or_counted() {
        const EACH: u32 = 2000;
        let inbox = Arc::new(FrameInbox::default());
        let senders = (1..=3).map(|port| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                for _frame in 0..EACH {
                    let frame = ArrivedFrame { arrived: Time::ZERO, frame: Vec::new() };
                    inbox.add(BRIDGE, PortNo::new(port), frame);
                }
            })
        });
        let senders: Vec<_> = senders.collect();
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let mut count = 0;
        while count < u64::from(3 * EACH) {
            let soon = async { timeout(Duration::from_secs(20), inbox.wait()).await };
            runtime.block_on(soon).expect("a frame that was added wakes the task");
            let taken = inbox.take();
            count += taken.values().map(|own| own.frames.len() as u64 + own.removed).sum::<u64>();
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(inbox.ports.lock().is_empty());
    }
}
