//! Captures: copies of packets at a port, or of dropped packets, kept until they are read.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use rtrb::{Consumer, RingBuffer};
use serde::Serialize;
use shunt_datapath::{
    Command,
    capture::{CAPTURE_RING, CapturePlace, CaptureTap, Captured},
};
use shunt_pipeline::{DatapathPort, Time};

use crate::{control::ControlPlane, error::SwitchError};

/// Maximum number of captures at a time.
const CAPTURES_MAX: usize = 16;

/// A captured packet, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct CapturedPacket {
    /// Time in nanoseconds since the switch started.
    pub time_ns: u64,
    /// The frame in hexadecimal.
    pub frame: String,
}

/// Time after which an unread capture ends: its client is gone.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Frame bytes after which a reply is complete; the next reply continues.
const READ_BYTES_MAX: usize = 1 << 20;

/// The running captures.
#[derive(Default)]
pub(crate) struct Captures {
    running: Mutex<HashMap<u64, RunningCapture>>,
    last: Mutex<u64>,
}

/// One capture.
struct RunningCapture {
    place: CapturePlace,
    readers: Vec<Consumer<Captured>>,
    /// Time of the last read.
    read: Time,
}

impl ControlPlane {
    /// Starts a capture at a port, or at `drops`; returns its number.
    pub(crate) async fn start_capture(&self, place: &str) -> Result<u64, SwitchError> {
        // The port must not be removed while its capture starts.
        let _structure = self.structure.lock().await;
        let place = self.capture_place(place)?;
        if self.captures.running.lock().len() >= CAPTURES_MAX {
            return Err(SwitchError::Range {
                setting: "captures",
                value: (CAPTURES_MAX + 1).to_string(),
                range: "at most 16 at a time: stop one first",
            });
        }
        let id = {
            let mut last = self.captures.last.lock();
            *last += 1;
            *last
        };
        let mut readers = Vec::new();
        for thread in 0..usize::from(self.plane.threads_count()) {
            let (packets, reader) = RingBuffer::new(CAPTURE_RING);
            let tap = CaptureTap { id, place, packets, lost: 0 };
            self.plane.send(thread, Command::StartCapture(tap)).await;
            readers.push(reader);
        }
        let running = RunningCapture { place, readers, read: self.plane.clock.now() };
        self.captures.running.lock().insert(id, running);
        Ok(id)
    }

    fn capture_place(&self, place: &str) -> Result<CapturePlace, SwitchError> {
        if place == "drops" {
            return Ok(CapturePlace::Drops);
        }
        let datapath = self.bridges.lock().find_port(place)?.1.datapath;
        datapath.map(CapturePlace::Port).ok_or_else(|| SwitchError::PortSetting {
            port: place.to_owned(),
            problem: "it has no device, so no packet can be captured: capture at a port of another type",
        })
    }

    /// Returns the packets since the last call, in order of time.
    ///
    /// They are as many as fit one reply. `None` if the capture does not exist.
    pub(crate) fn read_capture(&self, id: u64) -> Option<Vec<CapturedPacket>> {
        let mut captures = self.captures.running.lock();
        let running = captures.get_mut(&id)?;
        running.read = self.plane.clock.now();
        let (mut packets, mut bytes) = (Vec::new(), 0);
        while bytes < READ_BYTES_MAX
            && let Some(packet) = next_captured(&mut running.readers)
        {
            bytes += packet.frame.len();
            packets.push(shown(&packet));
        }
        Some(packets)
    }

    /// Ends captures that no client reads.
    pub(crate) async fn end_unread_captures(&self) {
        let now = self.plane.clock.now();
        self.end_captures(|capture| now.since(capture.read) > UNREAD_MAX).await;
    }

    /// Ends the captures at a removed port: another port may get its number.
    pub(crate) async fn end_captures_at(&self, port: DatapathPort) {
        self.end_captures(|capture| capture.place == CapturePlace::Port(port)).await;
    }

    async fn end_captures(&self, is_over: impl Fn(&RunningCapture) -> bool) {
        let over: Vec<u64> = {
            let running = self.captures.running.lock();
            let over = running.iter().filter(|(_, capture)| is_over(capture));
            over.map(|(id, _)| *id).collect()
        };
        for id in over {
            self.stop_capture(id).await;
        }
    }

    /// Ends a capture.
    ///
    /// Returns the number of packets that did not fit, or `None` if it does not exist.
    pub(crate) async fn stop_capture(&self, id: u64) -> Option<u64> {
        self.captures.running.lock().remove(&id)?;
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

fn shown(packet: &Captured) -> CapturedPacket {
    let frame = packet.frame.iter().map(|byte| format!("{byte:02x}")).collect();
    CapturedPacket { time_ns: packet.time.nanoseconds(), frame }
}
