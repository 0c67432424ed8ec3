//! Packet captures: copies of packets at a port, or of dropped packets.
//!
//! A capture has a bounded ring for each packet thread. The thread copies frames into the ring, and
//! counts frames that do not fit, but never waits. Without a capture, a burst costs one check of an
//! empty list.

use std::fmt;

use rtrb::Producer;
use shunt_pipeline::{DatapathPort, Time};

use crate::packet::buffer::Packet;

/// Capacity of the ring between one thread and the reader of a capture.
pub const CAPTURE_RING: usize = 1024;

/// The packets that a capture copies: those of a port, or dropped packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// A port: packets received and sent.
    Port(DatapathPort),
    /// Drops: by rules, by a limit, or by a full transmit queue.
    ///
    /// Packets that an output port cannot send at all (too long, not segmentable) are counted and
    /// not captured.
    Drops,
}

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Time of the iteration that copied the packet.
    pub time: Time,
    /// The frame, with complete checksums.
    pub frame: Vec<u8>,
}

/// The state of a capture in one packet thread.
pub struct CaptureTap {
    /// Number of the capture.
    pub id: u64,
    /// The packets to copy.
    pub point: CapturePoint,
    /// The ring for copies.
    pub packets: Producer<Captured>,
    /// Number of copies for which the ring was full.
    pub lost: u64,
}

impl fmt::Debug for CaptureTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureTap")
            .field("id", &self.id)
            .field("point", &self.point)
            .finish_non_exhaustive()
    }
}

/// The captures of one packet thread.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    /// The captures, each with its filter and ring.
    taps: Vec<CaptureTap>,
    /// Time of this iteration.
    now: Time,
}

impl Taps {
    /// Creates a list without captures.
    pub(crate) const fn new() -> Self {
        Self { taps: Vec::new(), now: Time::ZERO }
    }

    /// Sets the time that captured frames get.
    pub(crate) const fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    /// Adds a capture to the running captures.
    pub(crate) fn add(&mut self, tap: CaptureTap) {
        self.taps.push(tap);
    }

    /// Ends a capture. Returns the number of copies for which its ring was full.
    pub(crate) fn remove(&mut self, id: u64) -> u64 {
        let index = self.taps.iter().position(|tap| tap.id == id);
        index.map_or(0, |index| self.taps.swap_remove(index).lost)
    }

    /// Captures packets that were received or sent on a port.
    #[inline]
    pub(crate) fn at_port(&mut self, port: DatapathPort, packets: &[Packet]) {
        if !self.taps.is_empty() {
            self.copy(CapturePoint::Port(port), packets);
        }
    }

    /// Captures packets that are dropped.
    #[inline]
    pub(crate) fn at_drop(&mut self, packets: &[Packet]) {
        if !self.taps.is_empty() {
            self.copy(CapturePoint::Drops, packets);
        }
    }

    /// Copies packets to the captures at a point.
    #[cold]
    fn copy(&mut self, point: CapturePoint, packets: &[Packet]) {
        for tap in self.taps.iter_mut().filter(|tap| tap.point == point) {
            for packet in packets {
                if tap.packets.is_full() {
                    tap.lost += 1;
                    continue;
                }
                let mut frame = packet.frame().to_vec();
                packet.virtio.complete_checksums(&mut frame);
                let pushed = tap.packets.push(Captured { time: self.now, frame });
                debug_assert!(pushed.is_ok(), "the ring has room, because only this end fills it");
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
    fn a_capture_has_only_packets_of_its_point() {
        let (packets, mut captured) = RingBuffer::new(2);
        let (mut taps, port) = (Taps::new(), DatapathPort::new(7));
        taps.set_time(Time::from_nanoseconds(5));
        taps.add(CaptureTap { id: 1, point: CapturePoint::Port(port), packets, lost: 0 });
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
