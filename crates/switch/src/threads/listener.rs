//! The listener thread: forwards packet-ins from packet threads to the OpenFlow servers.
//!
//! Packet threads put packet-ins into bounded rings and wake this thread if it is parked. The
//! thread passes them to an asynchronous channel. Neither end waits for the other: packets that do
//! not fit are dropped and counted.

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

use crate::threads::worker::{SLEEP_MAX_MS, WorkerThread};

/// Maximum number of waiting packet-ins, for all bridges together.
const PACKET_INS_MAX: usize = 4096;

/// The listener thread and its drop counter.
pub(crate) struct PacketInListener {
    pub(crate) worker: WorkerThread,
    dropped: Arc<AtomicU64>,
}

impl PacketInListener {
    /// Starts the thread; the receiver returns the packet-ins.
    pub(crate) fn start(
        waker: Arc<Waker>,
        threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    ) -> io::Result<(Self, mpsc::Receiver<PuntedPacket>)> {
        let (sender, receiver) = mpsc::channel(PACKET_INS_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let taker = PacketInCollector { threads, sender, dropped: Arc::clone(&dropped) };
        let worker =
            WorkerThread::start("shunt-listener", waker, SLEEP_MAX_MS, move || taker.take())?;
        Ok((Self { worker, dropped }, receiver))
    }

    /// Returns the number of packet-ins that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

struct PacketInCollector {
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    sender: mpsc::Sender<PuntedPacket>,
    dropped: Arc<AtomicU64>,
}

impl PacketInCollector {
    /// Forwards the waiting packet-ins; returns whether there were any.
    fn take(&self) -> bool {
        let mut worked = false;
        for ends in self.threads.lock().iter_mut().flatten() {
            // Bounded by the current content: commands need the same lock, and a flood of packets
            // must not block them.
            for _ in 0..ends.packet_ins.len() {
                let Some(packet) = ends.packet_ins.pop() else { break };
                worked = true;
                if self.sender.try_send(packet).is_err() {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        worked
    }
}
