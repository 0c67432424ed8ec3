//! The listener thread: forwards packet-ins from packet threads to the OpenFlow servers.
//!
//! LACPDUs, BFD packets, and IGMP and MLD messages use the same rings. The listener thread passes
//! these frames to the inboxes of the protocols.
//!
//! Packet threads put packet-ins into bounded rings and wake the listener thread if it is parked.
//! The listener thread passes them to an asynchronous channel. Sender and receiver never wait for
//! each other: packet-ins that do not fit are dropped and counted.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use shunt_datapath::{Waker, thread::ControlEnds};
use shunt_flow::PortNo;
use shunt_pipeline::{PuntReceiver, PuntedPacket};
use tokio::sync::mpsc;

use crate::{
    multicast::task::{SnoopedFrame, SnoopingInbox},
    ports::frame_inbox::{ArrivedFrame, FrameInbox},
    threads::{
        clock::DaemonClock,
        worker::{SLEEP_MAX_MS, WorkerThread},
    },
};

/// Maximum number of waiting packet-ins, summed over all bridges.
const PACKET_INS_MAX: usize = 4096;

/// The listener thread and its counter of dropped packet-ins.
pub(crate) struct PacketInListener {
    pub(crate) worker: WorkerThread,
    /// Number of dropped packet-ins.
    dropped: Arc<AtomicU64>,
}

impl PacketInListener {
    /// Starts the listener thread; the returned receivers deliver its packets.
    pub(crate) fn start(
        waker: Arc<Waker>,
        threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
        clock: DaemonClock,
    ) -> io::Result<(Self, PuntReceivers)> {
        let (controllers, packet_ins) = mpsc::channel(PACKET_INS_MAX);
        let [lacp_frames, bfd_packets] = [(); 2].map(|()| Arc::<FrameInbox>::default());
        let multicast_messages = Arc::<SnoopingInbox>::default();
        let dropped = Arc::new(AtomicU64::new(0));
        let taker = PuntCollector {
            threads,
            clock,
            controllers,
            lacp: Arc::clone(&lacp_frames),
            bfd: Arc::clone(&bfd_packets),
            multicast: Arc::clone(&multicast_messages),
            dropped: Arc::clone(&dropped),
        };
        let worker =
            WorkerThread::start("shunt-listener", waker, SLEEP_MAX_MS, move || taker.take())?;
        let receivers = PuntReceivers { packet_ins, lacp_frames, bfd_packets, multicast_messages };
        Ok((Self { worker, dropped }, receivers))
    }

    /// Returns the number of packet-ins that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The receivers of packets from the packet threads for the control plane.
pub(crate) struct PuntReceivers {
    /// Packets that are punted to controllers.
    pub(crate) packet_ins: mpsc::Receiver<PuntedPacket>,
    /// Frames for the LACP actors of bonds.
    pub(crate) lacp_frames: Arc<FrameInbox>,
    /// Packets for the BFD sessions of ports.
    pub(crate) bfd_packets: Arc<FrameInbox>,
    /// IGMP and MLD messages for multicast snooping.
    pub(crate) multicast_messages: Arc<SnoopingInbox>,
}

/// The receiver of punted packets, which passes them to their protocols.
struct PuntCollector {
    /// The queues of each packet thread; `None` after its end.
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    clock: DaemonClock,
    /// The queue of packet-ins to the OpenFlow servers.
    controllers: mpsc::Sender<PuntedPacket>,
    /// The received LACP frames, by port.
    lacp: Arc<FrameInbox>,
    /// The received BFD packets, by port.
    bfd: Arc<FrameInbox>,
    /// The received IGMP and MLD messages, by port.
    multicast: Arc<SnoopingInbox>,
    /// Number of packet-ins that the full queue to the servers dropped.
    dropped: Arc<AtomicU64>,
}

impl PuntCollector {
    /// Forwards the waiting packets; returns whether there were any packets.
    fn take(&self) -> bool {
        let mut worked = false;
        for ends in self.threads.lock().iter_mut().flatten() {
            // The present length bounds the loop. Commands need the same lock, so a flood of
            // packets must not hold it.
            for _ in 0..ends.packet_ins.len() {
                let Some(packet) = ends.packet_ins.pop() else { break };
                worked = true;
                match packet.punt.receiver {
                    PuntReceiver::Controllers => {
                        if self.controllers.try_send(packet).is_err() {
                            self.dropped.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    PuntReceiver::Lacp(port) => self.pass(&self.lacp, port, packet),
                    PuntReceiver::Bfd(port) => self.pass(&self.bfd, port, packet),
                    PuntReceiver::Multicast { port, vlan } => {
                        let message = SnoopedFrame { vlan, frame: packet.frame };
                        self.multicast.add(packet.punt.bridge, port, message);
                    }
                }
            }
        }
        worked
    }

    /// Passes a frame of a protocol to its task; the arrival time is the present time.
    fn pass(&self, inbox: &FrameInbox, port: PortNo, packet: PuntedPacket) {
        let frame = ArrivedFrame { arrived: self.clock.now(), frame: packet.frame };
        inbox.add(packet.punt.bridge, port, frame);
    }
}
