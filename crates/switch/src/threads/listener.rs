//! The thread that takes packets for controllers from packet threads.
//!
//! Packet threads put them into bounded rings and wake this thread if it sleeps; it hands them to
//! the asynchronous side of control. Neither end waits for the other: what does not fit is dropped
//! and counted.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use shunt_datapath::{Waker, thread::ControlEnds};
use shunt_pipeline::PuntedPacket;
use tokio::sync::mpsc;

use crate::threads::worker::Worker;

/// Packets that may wait for controllers' connections, all bridges together.
const PACKET_INS_MAX: usize = 4096;

/// The thread, and what it shares with control.
pub(crate) struct Listener {
    pub(crate) worker: Worker,
    dropped: Arc<AtomicU64>,
}

impl Listener {
    /// Starts the thread; packets come out of the receiver.
    pub(crate) fn start(
        waker: Arc<Waker>,
        threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    ) -> io::Result<(Self, mpsc::Receiver<PuntedPacket>)> {
        let (sender, receiver) = mpsc::channel(PACKET_INS_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let taker = Taker { threads, sender, dropped: Arc::clone(&dropped) };
        let worker = Worker::start("shunt-listener", waker, move || taker.take())?;
        Ok((Self { worker, dropped }, receiver))
    }

    /// Packets that found no room on their way to controllers.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

struct Taker {
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    sender: mpsc::Sender<PuntedPacket>,
    dropped: Arc<AtomicU64>,
}

impl Taker {
    /// Takes what there is; answers whether there was anything.
    fn take(&self) -> bool {
        let mut worked = false;
        for ends in self.threads.lock().iter_mut().flatten() {
            // Bounded by what is there now: commands go through the same lock, and a flood of
            // packets must not keep them out.
            for _ in 0..ends.packet_ins.slots() {
                let Ok(packet) = ends.packet_ins.pop() else { break };
                worked = true;
                if self.sender.try_send(packet).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        worked
    }
}
