//! The port [`Pcap`], its receive queue and its transmit queue.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use shunt_pcap::{PcapWriter, RECORD_BYTES};

use super::Capture;
use crate::metrics::RxLoss;
use crate::packet::buffer::{BURST, Packet, Pool};
use crate::port::{
    Capabilities, CopyCounters, FrameCopies, Port, PortCopies, PortCounters, PortError,
    QueueCopies, Queues, Repeat, RxQueue, RxReport, TxQueue, spec::local_mac,
};

/// Length of the longest file that is replayed, because the file is held in memory.
pub const FILE_MAX: u64 = 1 << 30;

/// A port of capture files.
pub struct Pcap {
    /// The MAC address of the port.
    mac: [u8; 6],
    /// The name of the port.
    name: String,
    /// The frames to receive; `None` for a port that only sends.
    rx: Option<Replay>,
    /// True if the port replays a file, so that a queue must be polled.
    receives: bool,
    /// The file to write; `None` for a port that only receives.
    tx: Option<File>,
    /// True after the queues were taken.
    is_split: bool,
    /// Number of frames that could not be written.
    lost: Arc<AtomicU64>,
    /// The copies of the queues.
    copies: QueueCopies,
}

impl Pcap {
    /// Reads the file to replay, and creates the file to write.
    ///
    /// # Errors
    ///
    /// If `rx` cannot be read or is not a capture of Ethernet frames, or `tx` cannot be written.
    pub fn open(
        rx: Option<&Path>,
        tx: Option<&Path>,
        repeat: Repeat,
        seed: u64,
    ) -> Result<Self, PortError> {
        let name = rx.or(tx).map_or_else(|| "pcap".to_owned(), |path| path.display().to_string());
        let rx = rx.map(read).transpose()?;
        let mut copies = QueueCopies::default();
        let rx = rx.map(|capture| Replay { capture, next: 0, repeat, copies: copies.add_rx() });
        let tx = tx.map(create).transpose()?;
        Ok(Self {
            mac: local_mac(seed),
            name,
            receives: rx.is_some(),
            rx,
            tx,
            is_split: false,
            lost: Arc::default(),
            copies,
        })
    }
}

/// Reads a whole capture file.
fn read(path: &Path) -> Result<Capture, PortError> {
    let name = path.display().to_string();
    let failed = |source| PortError::system("read", name.clone(), source);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > FILE_MAX {
        return Err(PortError::CaptureTooLong { name, length });
    }
    Ok(Capture::parse(&name, std::fs::read(path).map_err(failed)?)?)
}

/// Replaces the file by a capture file without packets.
fn create(path: &Path) -> Result<File, PortError> {
    let failed = |source| PortError::system("write", path.display().to_string(), source);
    File::create(path).map_err(failed)?;
    let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
    Ok(PcapWriter::new(file).map_err(failed)?.into_inner())
}

impl Port for Pcap {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: false,
            tx_segmentation: false,
            tx_tunnel_segmentation: false,
            frame_max: Pool::LARGE,
            can_wait: !self.receives,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        if std::mem::replace(&mut self.is_split, true) {
            return Err(PortError::AlreadySplit { name: self.name.clone() });
        }
        let mut queues = Vec::with_capacity(threads.into());
        for _ in 0..threads {
            let rx = self.rx.take().map(|replay| Box::new(replay) as Box<dyn RxQueue>);
            let file = self.tx.as_ref().map(File::try_clone).transpose();
            let file =
                file.map_err(|source| PortError::system("share", self.name.clone(), source))?;
            let writer = Writer::new(file, Arc::clone(&self.lost), self.copies.add_tx());
            queues.push(Queues { rx, tx: Box::new(writer) });
        }
        Ok(queues)
    }

    fn link_up(&self) -> bool {
        true
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        PortCounters { tx_dropped: self.lost.load(Relaxed), ..PortCounters::default() }
    }

    fn copies(&self) -> PortCopies {
        self.copies.total()
    }
}

/// The frames of a file, in order.
struct Replay {
    /// The capture file to replay.
    capture: Capture,
    /// The position of the next frame.
    next: usize,
    /// Number of times that the file is replayed.
    repeat: Repeat,
    /// The counters of copied frames.
    copies: Arc<CopyCounters>,
}

impl RxQueue for Replay {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let (mut report, mut copies) = (RxReport::default(), FrameCopies::default());
        for _ in 0..BURST {
            if self.next == self.capture.len() && self.repeat == Repeat::Endless {
                self.next = 0;
            }
            if self.next == self.capture.len() {
                report.exhausted = true;
                break;
            }
            let frame = self.capture.frame(self.next);
            self.next += 1;
            let length = frame.map_or(0, <[u8]>::len);
            match frame.map(|frame| packet_with_frame(pool, frame)) {
                Some(Some(packet)) => {
                    copies.record(length);
                    burst.push(packet);
                }
                Some(None) => report.refuse(RxLoss::without_buffer(length)),
                None => report.refuse(RxLoss::Refused),
            }
        }
        self.copies.add(copies);
        Ok(report)
    }
}

/// Copies a frame to a packet of the pool; `None` if the pool is empty.
fn packet_with_frame(pool: &mut Pool, frame: &[u8]) -> Option<Packet> {
    let mut packet = pool.take(frame.len(), shunt_pipeline::DatapathPort::default())?;
    packet.frame_mut().copy_from_slice(frame);
    Some(packet)
}

/// Number of collected bytes at which records are written, unless flushed before.
const WRITE_AT: usize = 64 * 1024;

/// Appends the packets that one thread sends to the file.
struct Writer {
    /// The file; `None` if the port writes none, or after a failed write.
    file: Option<File>,
    /// Whole records that are not written yet.
    buffer: Vec<u8>,
    /// Number of records in `buffer`.
    pending: u64,
    /// Number of packets of all threads that were taken and not written.
    lost: Arc<AtomicU64>,
    /// The counters of copied frames.
    copies: Arc<CopyCounters>,
}

impl Writer {
    /// Creates the writer of a file; `lost` counts frames not written.
    fn new(file: Option<File>, lost: Arc<AtomicU64>, copies: Arc<CopyCounters>) -> Self {
        let room = if file.is_some() { WRITE_AT + RECORD_BYTES + Pool::LARGE } else { 0 };
        Self { file, buffer: Vec::with_capacity(room), pending: 0, lost, copies }
    }

    /// Writes the pending records, or counts them as lost if that fails.
    fn write(&mut self) {
        if self.pending == 0 {
            return;
        }
        let written = match &mut self.file {
            Some(file) => file.write_all(&self.buffer),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_err() {
            // Part of a record may be in the file: a reader could not parse later records.
            self.file = None;
            self.lost.fetch_add(self.pending, Relaxed);
        }
        self.buffer.clear();
        self.pending = 0;
    }
}

impl Writer {
    /// Appends packets to the records; returns the number taken.
    fn append(&mut self, packets: &[Packet], copies: &mut FrameCopies) -> usize {
        let now = nanoseconds_since_1970();
        for (taken, packet) in packets.iter().enumerate() {
            if self.file.is_none() {
                return taken;
            }
            // A write to memory does not fail, but timestamps of the format end in 2106.
            if PcapWriter::append(&mut self.buffer).write(now, packet.frame()).is_err() {
                return taken;
            }
            copies.record(packet.len());
            self.pending += 1;
            if self.buffer.len() >= WRITE_AT {
                self.write();
            }
        }
        packets.len()
    }
}

impl TxQueue for Writer {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        let mut copies = FrameCopies::default();
        let taken = self.append(packets, &mut copies);
        self.copies.add(copies);
        taken
    }

    fn flush(&mut self) {
        self.write();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.write();
    }
}

/// Returns the time that is written with packets, once per burst.
///
/// People compare captures by these times. The switch does not use them, so the system clock is
/// read instead of the clock of the thread.
#[expect(clippy::disallowed_methods, reason = "captures carry the time of day")]
fn nanoseconds_since_1970() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // 64 bits of nanoseconds suffice until the year 2554.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
