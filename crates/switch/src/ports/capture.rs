//! Captures: copies of packets at a port, or of dropped packets, kept until they are read.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rtrb::{Consumer, RingBuffer};
use serde::Serialize;
use shunt_datapath::{
    Command,
    capture::{CAPTURE_RING, CapturePoint, CaptureTap, Captured},
};
use shunt_pipeline::{DatapathPort, Time};

use crate::{error::SwitchError, ports::registry::BridgeRegistry, threads::data_plane::DataPlane};

/// Maximum number of captures at a time.
const CAPTURES_MAX: usize = 16;

/// A captured packet in machine-readable form.
#[derive(Clone, Debug, Serialize)]
pub struct CapturedPacket {
    /// Unix time in nanoseconds of the poll loop iteration that processed the packet.
    pub time_ns: u64,
    /// The frame in hexadecimal.
    pub frame: String,
}

/// Time after which an unread capture ends, because its client has gone.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Number of frame bytes after which a reply ends; the next reply continues.
const READ_BYTES_MAX: usize = 1 << 20;

/// The captures in progress.
pub(crate) struct Captures {
    plane: Arc<DataPlane>,
    /// The captures in progress, by number.
    running: Mutex<HashMap<u64, RunningCapture>>,
    /// The number of the last capture.
    last: Mutex<u64>,
}

/// A capture in progress.
struct RunningCapture {
    /// The packets to capture: of a port and direction, or drops.
    place: CapturePoint,
    /// The ring of captured packets of each packet thread.
    readers: Vec<Consumer<Captured>>,
    /// Time of the last read.
    read: Time,
    /// Unix time at [`Time::ZERO`], by the system clock at the start of the capture.
    ///
    /// The offset is constant, so the times of a capture never go back.
    unix_time_at_zero: Duration,
}

impl Captures {
    /// Returns a store without captures.
    pub(crate) fn new(plane: Arc<DataPlane>) -> Self {
        Self { plane, running: Mutex::default(), last: Mutex::default() }
    }

    /// Parses the place to capture: a port with a device, or `drops`.
    pub(crate) fn place(
        bridges: &BridgeRegistry,
        place: &str,
    ) -> Result<CapturePoint, SwitchError> {
        if place == "drops" {
            return Ok(CapturePoint::Drops);
        }
        let datapath = bridges.find_port(place)?.1.datapath;
        datapath.map(CapturePoint::Port).ok_or_else(|| SwitchError::PortSetting {
            port: place.to_owned(),
            problem: "it has no device, so no packet can be captured: capture at a port of another type",
        })
    }

    /// Starts a capture; returns its number.
    ///
    /// The port must not be removed before this call returns.
    pub(crate) async fn start(&self, place: CapturePoint) -> Result<u64, SwitchError> {
        if self.running.lock().len() >= CAPTURES_MAX {
            return Err(SwitchError::Range {
                setting: "captures",
                value: (CAPTURES_MAX + 1).to_string(),
                range: "at most 16 at a time: stop one first",
            });
        }
        let id = {
            let mut last = self.last.lock();
            *last += 1;
            *last
        };
        let mut readers = Vec::new();
        for thread in 0..usize::from(self.plane.threads_count()) {
            let (packets, reader) = RingBuffer::new(CAPTURE_RING);
            let tap = CaptureTap { id, point: place, packets, lost: 0 };
            self.plane.send(thread, Command::StartCapture(tap)).await;
            readers.push(reader);
        }
        let unix_time_at_zero = self.plane.clock().unix_time_at_zero();
        let running = RunningCapture { place, readers, read: self.plane.now(), unix_time_at_zero };
        self.running.lock().insert(id, running);
        Ok(id)
    }

    /// Returns the packets that were captured since the last call, in order of time.
    ///
    /// One call returns as many packets as fit one reply. `None` if the capture does not exist.
    pub(crate) fn read(&self, id: u64) -> Option<Vec<CapturedPacket>> {
        let mut captures = self.running.lock();
        let running = captures.get_mut(&id)?;
        running.read = self.plane.now();
        let (mut packets, mut bytes) = (Vec::new(), 0);
        while bytes < READ_BYTES_MAX
            && let Some(packet) = next_captured(&mut running.readers)
        {
            bytes += packet.frame.len();
            packets.push(to_captured_packet(&packet, running.unix_time_at_zero));
        }
        Some(packets)
    }

    /// Ends captures that no client reads.
    pub(crate) async fn end_unread(&self) {
        let now = self.plane.now();
        self.end(|capture| now.since(capture.read) > UNREAD_MAX).await;
    }

    /// Ends the captures at a removed port, because another port may get its number.
    pub(crate) async fn end_at(&self, port: DatapathPort) {
        self.end(|capture| capture.place == CapturePoint::Port(port)).await;
    }

    /// Ends the captures that `is_over` accepts.
    async fn end(&self, is_over: impl Fn(&RunningCapture) -> bool) {
        let over: Vec<u64> = {
            let running = self.running.lock();
            let over = running.iter().filter(|(_, capture)| is_over(capture));
            over.map(|(id, _)| *id).collect()
        };
        for id in over {
            self.stop(id).await;
        }
    }

    /// Ends a capture and frees its rings.
    ///
    /// Returns the number of packets that the capture lost, or `None` if it does not exist.
    pub(crate) async fn stop(&self, id: u64) -> Option<u64> {
        self.running.lock().remove(&id)?;
        let lost = self.plane.ask(|_, reply| Command::StopCapture(id, reply)).await;
        Some(lost.into_iter().sum())
    }
}

/// Removes and returns the oldest packet of all threads.
fn next_captured(readers: &mut [Consumer<Captured>]) -> Option<Captured> {
    let full = readers.iter_mut().filter_map(|reader| {
        let time = reader.peek().ok()?.time;
        Some((time, reader))
    });
    full.min_by_key(|(time, _)| *time)?.1.pop().ok()
}

/// Returns a captured packet in machine-readable form.
fn to_captured_packet(packet: &Captured, unix_time_at_zero: Duration) -> CapturedPacket {
    let frame = packet.frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let zero = u64::try_from(unix_time_at_zero.as_nanos()).unwrap_or_default();
    CapturedPacket { time_ns: zero.saturating_add(packet.time.nanoseconds()), frame }
}
