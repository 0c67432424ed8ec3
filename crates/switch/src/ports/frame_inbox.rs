//! Received frames of a protocol that wait for its task: the newest frames of each port.
//!
//! A flood on one link does not displace frames of other links. Of the flooded link, the newest
//! frames are kept: each LACPDU or BFD packet replaces the information of earlier frames, and hosts
//! repeat their reports of multicast groups.
//!
//! Each LACPDU and BFD packet has the time of its arrival. So a delay of the task does not look
//! like silence of the partner.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use parking_lot::Mutex;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, Time};
use tokio::sync::Notify;

/// The waiting frames, by port; at most `FRAMES_MAX` for each port.
///
/// Packet threads add frames only for ports that use the protocol.
#[derive(Debug)]
pub(crate) struct FrameInbox<F = ArrivedFrame, const FRAMES_MAX: usize = PARTNER_FRAMES_MAX> {
    /// The frames of each port.
    ports: Mutex<WaitingFrames<F>>,
    /// Notified when a frame is added.
    arrival: Notify,
}

/// Waiting frames by bridge and port.
pub(crate) type WaitingFrames<F = ArrivedFrame> = BTreeMap<(BridgeId, PortNo), PortFrames<F>>;

/// The waiting frames of one port, the oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PortFrames<F = ArrivedFrame> {
    /// The frames that wait, oldest first.
    pub(crate) frames: VecDeque<F>,
    /// Number of older frames that were dropped.
    pub(crate) removed: u64,
}

/// A frame with the time of its arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArrivedFrame {
    /// The time of arrival by the clock of the daemon.
    pub(crate) arrived: Time,
    /// The bytes of the frame.
    pub(crate) frame: Vec<u8>,
}

/// Maximum number of waiting frames of a partner.
///
/// A partner sends at most as many LACPDUs and marker requests in a second.
const PARTNER_FRAMES_MAX: usize = 8;

impl<F, const FRAMES_MAX: usize> Default for FrameInbox<F, FRAMES_MAX> {
    fn default() -> Self {
        Self { ports: Mutex::default(), arrival: Notify::new() }
    }
}

impl<F> Default for PortFrames<F> {
    fn default() -> Self {
        Self { frames: VecDeque::new(), removed: 0 }
    }
}

impl<F, const FRAMES_MAX: usize> FrameInbox<F, FRAMES_MAX> {
    /// Adds a frame that a port received, and wakes the task.
    pub(crate) fn add(&self, bridge: BridgeId, port: PortNo, frame: F) {
        let mut ports = self.ports.lock();
        let own = ports.entry((bridge, port)).or_default();
        if own.frames.len() >= FRAMES_MAX {
            own.frames.pop_front();
            own.removed = own.removed.saturating_add(1);
        }
        own.frames.push_back(frame);
        drop(ports);
        self.arrival.notify_one();
    }

    /// Waits until there are frames.
    pub(crate) async fn wait(&self) {
        while self.ports.lock().is_empty() {
            self.arrival.notified().await;
        }
    }

    /// Takes the waiting frames.
    ///
    /// A caller that reads the clock first gets every frame that arrived before that time. So no
    /// timeout expires for a partner that has sent in time.
    pub(crate) fn take(&self) -> WaitingFrames<F> {
        mem::take(&mut *self.ports.lock())
    }

    /// Takes the oldest frames of each port, at most `frames_max` for each port.
    ///
    /// So the ports are served round robin, and a port with many frames does not delay other ports.
    pub(crate) fn take_turn(&self, frames_max: usize) -> WaitingFrames<F> {
        let mut ports = self.ports.lock();
        let oldest = |own: &mut PortFrames<F>| {
            let count = own.frames.len().min(frames_max);
            let frames = own.frames.drain(..count).collect();
            PortFrames { frames, removed: mem::take(&mut own.removed) }
        };
        let turn = ports.iter_mut().map(|(place, own)| (*place, oldest(own))).collect();
        ports.retain(|_, own| !own.frames.is_empty());
        turn
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
        let inbox: FrameInbox = FrameInbox::default();
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

    #[test]
    fn packets_of_ports_are_handled_in_turn() {
        let inbox: FrameInbox<u32, 64> = FrameInbox::default();
        for number in 0..70 {
            inbox.add(BRIDGE, PortNo::new(1), number);
        }
        inbox.add(BRIDGE, PortNo::new(2), 100);
        let turn = |inbox: &FrameInbox<u32, 64>| {
            let of_port = |((_, port), own): ((BridgeId, PortNo), PortFrames<u32>)| {
                (port.number(), own.frames.into(), own.removed)
            };
            inbox.take_turn(40).into_iter().map(of_port).collect::<Vec<_>>()
        };
        let first: Vec<(u32, Vec<u32>, u64)> = turn(&inbox);
        let numbers = |from: u32, to: u32| (from..to).collect::<Vec<u32>>();
        assert_eq!(first, [(1, numbers(6, 46), 6), (2, vec![100], 0)]);
        inbox.add(BRIDGE, PortNo::new(2), 101);
        assert_eq!(turn(&inbox), [(1, numbers(46, 70), 0), (2, vec![101], 0)]);
        assert!(turn(&inbox).is_empty());
    }

    /// Every frame is either taken or counted, however adding and taking interleave.
    #[test]
    fn each_frame_is_received_or_counted() {
        /// Number of frames of each link.
        const EACH: u32 = 2000;
        let inbox = Arc::<FrameInbox>::default();
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
