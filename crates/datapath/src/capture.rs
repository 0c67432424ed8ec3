//! Captures: copies of packets for people, at a port or where packets are dropped.
//!
//! A capture has a bounded ring for each packet thread. The thread copies frames into it while
//! there is room and counts what found none; it never waits. Without a capture a burst pays for one
//! look at an empty list.

use std::fmt;

use rtrb::Producer;
use shunt_pipeline::{DatapathPort, Time};

use crate::packet::{buffer::Packet, virtio};

/// Packets of one thread that a capture holds until they are read.
pub const CAPTURE_RING: usize = 1024;

/// Where a capture looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePlace {
    /// At a port: what comes in by it, and what goes out of it.
    Port(DatapathPort),
    /// Where packets are dropped: by rules, by a bound, or by a full transmit queue. What an output
    /// port cannot take at all (too long, not to be segmented) is counted and not captured.
    Drops,
}

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When.
    pub time: Time,
    /// The frame; its checksums are complete.
    pub frame: Vec<u8>,
}

/// One thread's end of a capture.
pub struct Tap {
    /// Number of the capture.
    pub id: u64,
    /// Where it looks.
    pub place: CapturePlace,
    /// Where copies go.
    pub packets: Producer<Captured>,
    /// Copies that found no room.
    pub lost: u64,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("id", &self.id)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// The captures of one packet thread.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    taps: Vec<Tap>,
    now: Time,
}

impl Taps {
    pub(crate) const fn new() -> Self {
        Self { taps: Vec::new(), now: Time::ZERO }
    }

    pub(crate) const fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    pub(crate) fn add(&mut self, tap: Tap) {
        self.taps.push(tap);
    }

    /// Ends a capture; answers how many copies found no room.
    pub(crate) fn remove(&mut self, id: u64) -> u64 {
        let place = self.taps.iter().position(|tap| tap.id == id);
        place.map_or(0, |place| self.taps.swap_remove(place).lost)
    }

    /// Packets that come in by a port or go out of it.
    #[inline]
    pub(crate) fn at_port(&mut self, port: DatapathPort, packets: &[Packet]) {
        if !self.taps.is_empty() {
            self.copy(CapturePlace::Port(port), packets);
        }
    }

    /// Packets that are dropped.
    #[inline]
    pub(crate) fn at_drop(&mut self, packets: &[Packet]) {
        if !self.taps.is_empty() {
            self.copy(CapturePlace::Drops, packets);
        }
    }

    #[cold]
    fn copy(&mut self, place: CapturePlace, packets: &[Packet]) {
        for tap in self.taps.iter_mut().filter(|tap| tap.place == place) {
            for packet in packets {
                if tap.packets.is_full() {
                    tap.lost += 1;
                    continue;
                }
                let mut frame = packet.frame().to_vec();
                let offload = &packet.offload;
                if offload.needs_checksum {
                    let (start, offset) = (offload.checksum_start, offload.checksum_offset);
                    virtio::complete_checksum(&mut frame, start.into(), offset.into());
                }
                let pushed = tap.packets.push(Captured { time: self.now, frame });
                debug_assert!(pushed.is_ok(), "only this end fills the ring");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rtrb::RingBuffer;

    use super::*;
    use crate::packet::buffer::Pool;

    #[test]
    fn a_capture_sees_its_place_alone_and_counts_what_found_no_room() {
        let (packets, mut captured) = RingBuffer::new(2);
        let (mut taps, port) = (Taps::new(), DatapathPort::new(7));
        taps.set_time(Time::from_nanoseconds(5));
        taps.add(Tap { id: 1, place: CapturePlace::Port(port), packets, lost: 0 });
        let packet = Pool::new().take(60, port).unwrap();
        let packet = std::slice::from_ref(&packet);
        taps.at_drop(packet);
        taps.at_port(DatapathPort::new(8), packet);
        assert!(captured.pop().is_err());
        (0..3).for_each(|_| taps.at_port(port, packet));
        let first = captured.pop().unwrap();
        assert_eq!((first.time.nanoseconds(), first.frame.len()), (5, 60));
        assert_eq!(taps.remove(1), 1);
        taps.at_port(port, packet);
        assert_eq!(captured.slots(), 1);
    }
}
