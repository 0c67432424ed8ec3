//! The listener thread: forwards packet-ins from packet threads to the OpenFlow servers.
//!
//! Frames of LACP come the same way, and go to the task of LACP.
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
use shunt_pipeline::{PuntReceiver, PuntedPacket};
use tokio::sync::mpsc;

use crate::threads::worker::{SLEEP_MAX_MS, WorkerThread};

/// Maximum number of waiting packet-ins, for all bridges together.
const PACKET_INS_MAX: usize = 4096;

/// Maximum number of waiting frames of LACP.
///
/// A member receives one in a second, or fewer.
const LACP_FRAMES_MAX: usize = 256;

/// The listener thread and its drop counter.
pub(crate) struct PacketInListener {
    pub(crate) worker: WorkerThread,
    dropped: Arc<AtomicU64>,
}

impl PacketInListener {
    /// Starts the thread; the receivers return its packets.
    pub(crate) fn start(
        waker: Arc<Waker>,
        threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    ) -> io::Result<(Self, PuntReceivers)> {
        let (controllers, packet_ins) = mpsc::channel(PACKET_INS_MAX);
        let (lacp, lacp_frames) = mpsc::channel(LACP_FRAMES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let taker = PuntCollector { threads, controllers, lacp, dropped: Arc::clone(&dropped) };
        let worker =
            WorkerThread::start("shunt-listener", waker, SLEEP_MAX_MS, move || taker.take())?;
        Ok((Self { worker, dropped }, PuntReceivers { packet_ins, lacp_frames }))
    }

    /// Returns the number of packet-ins that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The packets that leave the packet threads for the control plane.
pub(crate) struct PuntReceivers {
    /// Packets for controllers.
    pub(crate) packet_ins: mpsc::Receiver<PuntedPacket>,
    /// Frames for the LACP actors of bonds.
    pub(crate) lacp_frames: mpsc::Receiver<PuntedPacket>,
}

struct PuntCollector {
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    controllers: mpsc::Sender<PuntedPacket>,
    lacp: mpsc::Sender<PuntedPacket>,
    dropped: Arc<AtomicU64>,
}

impl PuntCollector {
    /// Forwards the waiting packets; returns whether there were any.
    fn take(&self) -> bool {
        let mut worked = false;
        for ends in self.threads.lock().iter_mut().flatten() {
            // Bounded by the current content: commands need the same lock, and a flood of packets
            // must not block them.
            for _ in 0..ends.packet_ins.len() {
                let Some(packet) = ends.packet_ins.pop() else { break };
                worked = true;
                match packet.punt.receiver {
                    PuntReceiver::Controllers => {
                        if self.controllers.try_send(packet).is_err() {
                            self.dropped.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    // A partner repeats its frames, and too many of them are no loss.
                    PuntReceiver::Lacp(_) => drop(self.lacp.try_send(packet)),
                }
            }
        }
        worked
    }
}
