//! The queues of a device, which receive and send bursts of frames.

use crate::shim::{BURST, FrameBuffer, RawOffload, RxHandle, TxHandle};

/// Maximum number of frames in a burst.
pub const BURST_MAX: usize = BURST;

/// A receive queue of a device, for one thread at a time.
#[derive(Debug)]
pub struct DpdkReceiver {
    // Declared before the handle, so that the buffers return while the device is open.
    /// The buffers of a burst.
    frames: FrameBuffer,
    /// The right to receive from the queue.
    handle: RxHandle,
}

/// Received frames; their buffers return to the pool when this value is dropped.
#[derive(Debug)]
pub struct ReceivedFrames<'a>(&'a mut FrameBuffer);

impl DpdkReceiver {
    /// Creates a receiver with an empty buffer.
    pub(crate) const fn new(handle: RxHandle) -> Self {
        Self { frames: FrameBuffer::new(), handle }
    }

    /// Receives at most `max` frames, and at most [`BURST_MAX`]; never blocks.
    pub fn receive(&mut self, max: usize) -> ReceivedFrames<'_> {
        self.frames.receive(&mut self.handle, max);
        ReceivedFrames(&mut self.frames)
    }
}

impl ReceivedFrames<'_> {
    /// Returns the number of frames.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no frame.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length of a frame; true if the device has verified its checksum.
    ///
    /// The device verifies only transport checksums.
    #[must_use]
    pub fn describe(&self, position: usize) -> Option<(usize, bool)> {
        self.0.describe(position)
    }

    /// Copies a frame to `to`; returns false if the lengths differ.
    #[must_use]
    pub fn read(&self, position: usize, to: &mut [u8]) -> bool {
        self.0.read(position, to)
    }
}

impl Drop for ReceivedFrames<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A transmit queue of a device, for one thread at a time.
#[derive(Debug)]
pub struct DpdkSender {
    // Declared before the handle, as in `DpdkReceiver`.
    /// The buffers of a burst.
    frames: FrameBuffer,
    /// The right to send to the queue.
    handle: TxHandle,
}

/// The reason why a burst ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstEnd {
    /// The device took all frames.
    All,
    /// The queue is full, or the pool has no free buffer.
    Full,
    /// The device refuses the next frame, also in later bursts.
    Refused,
}

impl DpdkSender {
    /// Creates a sender with an empty buffer.
    pub(crate) const fn new(handle: TxHandle) -> Self {
        Self { frames: FrameBuffer::new(), handle }
    }

    /// Copies frames to the device; never blocks.
    ///
    /// Each frame comes with the offloads that the device must apply.
    ///
    /// Returns the number of frames sent.
    pub fn send<'a>(
        &mut self,
        mut frames: impl ExactSizeIterator<Item = (&'a [u8], FrameOffload)>,
    ) -> (usize, BurstEnd) {
        let mut sent = 0;
        while frames.len() > 0 {
            let (count, end) = self.send_burst(&mut frames);
            sent += count;
            if end != BurstEnd::All {
                return (sent, end);
            }
        }
        (sent, BurstEnd::All)
    }

    /// Copies and sends one burst; returns the number of sent frames.
    fn send_burst<'a>(
        &mut self,
        frames: &mut impl ExactSizeIterator<Item = (&'a [u8], FrameOffload)>,
    ) -> (usize, BurstEnd) {
        let count = frames.len().min(BURST_MAX);
        if !self.frames.allocate(&self.handle, count) {
            return (0, BurstEnd::Full);
        }
        for (position, (bytes, offload)) in frames.take(count).enumerate() {
            if !self.frames.write(&self.handle, position, bytes, offload.encode()) {
                break;
            }
        }
        let (sent, is_refused) = self.frames.send(&mut self.handle);
        let end = match sent {
            sent if sent == count => BurstEnd::All,
            _ if is_refused => BurstEnd::Refused,
            _ => BurstEnd::Full,
        };
        (sent, end)
    }
}

/// The offloads of a frame that the device must apply; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameOffload {
    /// The checksum to complete.
    /// The checksum field contains the sum of the pseudo-header.
    pub checksum: Option<FrameChecksum>,
    /// The segments to make, which require `checksum`.
    pub segments: Option<FrameSegments>,
}

/// A transport checksum that the device must complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameChecksum {
    /// The transport protocol of the checksum.
    pub transport: Transport,
    /// True for IPv6, false for IPv4.
    pub is_ipv6: bool,
    /// Length in bytes of the headers before IP.
    pub l2_length: u16,
    /// Length in bytes of the IP headers.
    pub l3_length: u16,
}

/// The segments that the device must make of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSegments {
    /// Length in bytes of the transport header.
    pub l4_length: u16,
    /// Bytes of payload in each segment.
    pub size: u16,
}

/// A transport protocol with offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The frame has a TCP header.
    Tcp,
    /// The frame has a UDP header.
    Udp,
}

impl FrameOffload {
    /// Returns the offload work as the shim reads it.
    fn encode(self) -> RawOffload {
        let Some(checksum) = self.checksum else { return RawOffload::default() };
        let mut flags = match checksum.transport {
            Transport::Tcp => RawOffload::TCP_CHECKSUM,
            Transport::Udp => RawOffload::UDP_CHECKSUM,
        };
        if checksum.is_ipv6 {
            flags |= RawOffload::IPV6;
        }
        let FrameChecksum { l2_length, l3_length, .. } = checksum;
        let mut raw = RawOffload { flags, segment_size: 0, l2_length, l3_length, l4_length: 0 };
        if let Some(FrameSegments { l4_length, size }) = self.segments {
            raw.flags |= RawOffload::TCP_SEGMENTS;
            (raw.l4_length, raw.segment_size) = (l4_length, size);
        }
        raw
    }
}
