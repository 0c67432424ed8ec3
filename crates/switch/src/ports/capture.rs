//! Captures: copies of packets, taken at a port or where packets are dropped, until they are read.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use rtrb::{Consumer, RingBuffer};
use serde::Serialize;
use shunt_datapath::{
    Command,
    capture::{CAPTURE_RING, CapturePlace, Captured, Tap},
};
use shunt_pipeline::{DatapathPort, Time};

use crate::{control::Control, error::SwitchError};

/// Captures that may run at a time.
const CAPTURES_MAX: usize = 16;

/// A captured packet, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct CapturedPacket {
    /// Nanoseconds since the switch started.
    pub time_ns: u64,
    /// The frame in hexadecimal.
    pub frame: String,
}

/// Time without a reader after which a capture ends: its reader is gone.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Bytes of frames after which an answer is long enough: the rest comes with the next.
const READ_BYTES_MAX: usize = 1 << 20;

/// The captures that run.
#[derive(Default)]
pub(crate) struct Captures {
    running: Mutex<HashMap<u64, Running>>,
    last: Mutex<u64>,
}

/// One capture.
struct Running {
    place: CapturePlace,
    readers: Vec<Consumer<Captured>>,
    /// When it was last read.
    read: Time,
}

impl Control {
    /// Starts a capture at a port, or at `drops`; answers with its number.
    pub(crate) async fn start_capture(&self, place: &str) -> Result<u64, SwitchError> {
        // The port stays while its capture starts.
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
            let tap = Tap { id, place, packets, lost: 0 };
            self.plane.send(thread, Command::StartCapture(tap)).await;
            readers.push(reader);
        }
        let running = Running { place, readers, read: self.plane.clock.now() };
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
            problem: "no packet passes a device there; capture at a port of another type",
        })
    }

    /// Takes what a capture has seen since the last time, in the order of time, as much as one
    /// answer holds; `None` without such a capture.
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

    /// Ends captures that nobody reads any more.
    pub(crate) async fn end_unread_captures(&self) {
        let now = self.plane.clock.now();
        self.end_captures(|capture| now.since(capture.read) > UNREAD_MAX).await;
    }

    /// Ends the captures at a port that goes: its number may become another's.
    pub(crate) async fn end_captures_at(&self, port: DatapathPort) {
        self.end_captures(|capture| capture.place == CapturePlace::Port(port)).await;
    }

    async fn end_captures(&self, is_over: impl Fn(&Running) -> bool) {
        let over: Vec<u64> = {
            let running = self.captures.running.lock();
            let over = running.iter().filter(|(_, capture)| is_over(capture));
            over.map(|(id, _)| *id).collect()
        };
        for id in over {
            self.stop_capture(id).await;
        }
    }

    /// Ends a capture; answers how many packets found no room, or `None` without such a capture.
    pub(crate) async fn stop_capture(&self, id: u64) -> Option<u64> {
        self.captures.running.lock().remove(&id)?;
        let lost = self.plane.ask(|_, reply| Command::StopCapture(id, reply)).await;
        Some(lost.into_iter().sum())
    }
}

/// The oldest packet that a thread has captured.
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
