//! The listener thread: forwards packet-ins from packet threads to the OpenFlow servers.
//!
//! Frames of LACP come the same way, and go to the inbox of the task of LACP.
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

use crate::{
    ports::lacp_inbox::LacpInbox,
    threads::worker::{SLEEP_MAX_MS, WorkerThread},
};

/// Maximum number of waiting packet-ins, for all bridges together.
const PACKET_INS_MAX: usize = 4096;

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
        let lacp_frames = Arc::<LacpInbox>::default();
        let dropped = Arc::new(AtomicU64::new(0));
        let lacp = Arc::clone(&lacp_frames);
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
    pub(crate) lacp_frames: Arc<LacpInbox>,
}

struct PuntCollector {
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    controllers: mpsc::Sender<PuntedPacket>,
    lacp: Arc<LacpInbox>,
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
                    PuntReceiver::Lacp(port) => {
                        self.lacp.add(packet.punt.bridge, port, packet.frame);
                    }
                }
            }
        }
        worked
    }
}
