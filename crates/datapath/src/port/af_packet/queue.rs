//! Received frames come from the receive queue of a socket, or from a ring.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, getsockopt, recv, sockopt::SocketError},
};
use shunt_pipeline::DatapathPort;

use super::{
    message::{MessageRoom, ReadMessage, read_messages},
    ring::{Filled, Ring, SlotContent},
    socket::PacketSocket,
    switchover::{FrameSource, RingSource},
};
use crate::{
    metrics::RxLoss,
    packet::{
        buffer::{BURST, Packet, Pool},
        virtio::VirtioHeader,
    },
    port::{CopyCounters, FrameCopies, RxReport, sys},
};

/// The receive queue of a socket: one system call for several frames.
pub(super) struct SocketQueue {
    /// The packet socket that is read.
    socket: Arc<PacketSocket>,
    /// True if the last read filled all of its buffers, so that many frames may wait.
    is_busy: bool,
    /// The counters of copies of frames that needed two buffers.
    copies: Arc<CopyCounters>,
}

/// Number of frames that one read of an idle queue can take.
///
/// To prepare buffers for a whole burst would take too long for a single frame.
const IDLE_BURST: usize = 4;

impl SocketQueue {
    /// Creates the queue of a socket.
    pub(super) const fn new(socket: Arc<PacketSocket>, copies: Arc<CopyCounters>) -> Self {
        Self { socket, is_busy: false, copies }
    }

    /// Reads at most `count` frames; returns their number, including refused frames.
    fn read<const N: usize>(
        &self,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        count: usize,
        report: &mut RxReport,
    ) -> usize {
        let mut buffers: [Option<MessageBuffers>; N] = [const { None }; N];
        for buffer in buffers.iter_mut().take(count) {
            *buffer = MessageBuffers::take(pool);
        }
        let mut rooms = buffers.iter_mut().flatten().map(MessageBuffers::room);
        let mut rooms: [MessageRoom<'_>; N] = std::array::from_fn(|_| {
            rooms.next().unwrap_or(MessageRoom { front: &mut [], rest: &mut [] })
        });
        let filled = count.min(rooms.iter().take_while(|room| !room.front.is_empty()).count());
        if filled == 0 {
            // Every frame needs a small buffer, and none is left.
            if !discard(self.socket.fd()) {
                return 0;
            }
            report.refuse(RxLoss::NoBuffer);
            return 1;
        }
        // The periodic check of the device finds errors of the socket.
        let mut messages = read_messages::<N>(self.socket.fd(), &mut rooms[..filled]).ok();
        let (mut read, mut copies) = (0, FrameCopies::default());
        for buffers in buffers.into_iter().flatten() {
            let Some(message) = messages.as_mut().and_then(Iterator::next) else {
                buffers.return_to(pool);
                continue;
            };
            read += 1;
            match buffers.into_packet(message, pool, &mut copies) {
                Ok(packet) => burst.push(packet),
                Err(reason) => report.refuse(reason),
            }
        }
        self.copies.add(copies);
        read
    }
}

impl FrameSource for SocketQueue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        max: usize,
        report: &mut RxReport,
    ) -> bool {
        let room = max.saturating_sub(burst.len());
        if room == 0 {
            return false;
        }
        let count = if self.is_busy { room.min(BURST) } else { room.min(IDLE_BURST) };
        let read = if self.is_busy {
            self.read::<BURST>(pool, burst, count, report)
        } else {
            self.read::<IDLE_BURST>(pool, burst, count, report)
        };
        self.is_busy = read >= count.min(IDLE_BURST);
        read < count
    }

    fn is_empty(&mut self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        // If a frame waits, the call returns another error, because the buffer has no room.
        recv(self.socket.fd().as_raw_fd(), &mut [], flags) == Err(Errno::EAGAIN)
    }
}

/// A receive ring, which needs system calls only for long frames.
pub(super) struct RingQueue {
    /// The packet socket of the ring.
    socket: Arc<PacketSocket>,
    /// The ring that the kernel fills.
    ring: Ring,
    /// The counters of copied frames.
    copies: Arc<CopyCounters>,
}

impl RingQueue {
    /// Creates the queue of a ring.
    pub(super) const fn new(
        socket: Arc<PacketSocket>,
        ring: Ring,
        copies: Arc<CopyCounters>,
    ) -> Self {
        Self { socket, ring, copies }
    }
}

impl FrameSource for RingQueue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        max: usize,
        report: &mut RxReport,
    ) -> bool {
        if !self.ring.is_next_known() && !self.ring.find_next() {
            return true;
        }
        let (mut is_drained, mut copies) = (false, FrameCopies::default());
        for _ in burst.len()..max {
            let Some(slot) = self.ring.next() else {
                is_drained = true;
                break;
            };
            let received = match slot.content() {
                SlotContent::Whole(filled) => {
                    copy_slot(&filled, pool).inspect(|_| copies.record(filled.frame.len()))
                }
                SlotContent::Queued { length, tag } => queued(self.socket.fd(), length, tag, pool),
                SlotContent::Truncated { length } => Err(RxLoss::truncated(length)),
                SlotContent::Invalid => Err(RxLoss::Refused),
            };
            match received {
                Ok(packet) => burst.push(packet),
                Err(reason) => report.refuse(reason),
            }
        }
        self.copies.add(copies);
        is_drained
    }

    fn is_empty(&mut self) -> bool {
        (!self.ring.is_next_known() && !self.ring.find_next()) || !self.ring.is_filled()
    }
}

impl RingSource for RingQueue {
    fn clear_error(&self) {
        // Reading the error clears it.
        let _ = getsockopt(&self.socket.fd(), SocketError);
    }
}

/// Offset of the VLAN tag in a frame: after the addresses.
const TAG_OFFSET: usize = 12;
/// Length of a VLAN tag.
const TAG: usize = 4;

/// The buffers of a frame that is read from a socket.
struct MessageBuffers {
    /// The buffer that receives the start of the frame.
    small: Packet,
    /// The buffer that completes a frame which is longer than the small buffer.
    large: Option<Packet>,
}

impl MessageBuffers {
    /// Takes the buffers for one message; `None` if the pool is empty.
    fn take(pool: &mut Pool) -> Option<Self> {
        let none = DatapathPort::default();
        let small = pool.take(Pool::SMALL, none)?;
        Some(Self { small, large: pool.take(Pool::LARGE, none) })
    }

    /// Returns the memory for a frame, with room for a tag in front.
    fn room(&mut self) -> MessageRoom<'_> {
        let rest = self.large.as_mut().map_or(&mut [][..], |large| {
            large.frame_mut().get_mut(Pool::SMALL..).unwrap_or_default()
        });
        MessageRoom { front: self.small.frame_mut().get_mut(TAG..).unwrap_or_default(), rest }
    }

    /// Returns the unused buffers to the pool.
    fn return_to(self, pool: &mut Pool) {
        self.large.into_iter().chain([self.small]).for_each(|packet| pool.put_back(packet));
    }

    /// Returns the packet of a frame that was read, and inserts its VLAN tag again.
    fn into_packet(
        self,
        message: ReadMessage,
        pool: &mut Pool,
        copies: &mut FrameCopies,
    ) -> Result<Packet, RxLoss> {
        let ReadMessage { virtio_header, length, tag, is_truncated } = message;
        if is_truncated {
            let reason = if self.large.is_some() { RxLoss::Refused } else { RxLoss::NoBuffer };
            self.return_to(pool);
            return Err(reason);
        }
        let mut packet = self.packet_of(TAG + length, pool, copies);
        let frame = packet.frame().get(TAG..).unwrap_or_default();
        // The offsets of the virtio header refer to the frame without the tag.
        let virtio = VirtioHeader::receive(virtio_header, frame);
        let Some(virtio) = virtio.ok().filter(|_| tag.is_none() || length >= TAG_OFFSET) else {
            pool.put_back(packet);
            return Err(RxLoss::Refused);
        };
        if let Some(tag) = tag {
            insert_tag(&mut packet, tag);
            packet.virtio = virtio;
            packet.virtio.moved_back(4);
        } else {
            packet.pop_front(TAG);
            packet.virtio = virtio;
        }
        Ok(packet)
    }

    /// Returns the buffer with the whole frame, and gives the other buffer back.
    ///
    /// `length` includes the tag.
    fn packet_of(self, length: usize, pool: &mut Pool, copies: &mut FrameCopies) -> Packet {
        let Self { small, large } = self;
        let mut packet = match large {
            Some(mut large) if length > Pool::SMALL => {
                large.frame_mut()[..Pool::SMALL].copy_from_slice(small.frame());
                copies.record(Pool::SMALL);
                pool.put_back(small);
                large
            }
            large => {
                large.into_iter().for_each(|large| pool.put_back(large));
                small
            }
        };
        packet.truncate(length);
        packet
    }
}

/// Moves the MAC addresses to the front of a packet, and writes a tag after them.
///
/// Before the call, the frame begins after free room for a tag.
fn insert_tag(packet: &mut Packet, tag: [u8; TAG]) {
    let frame = packet.frame_mut();
    frame.copy_within(TAG..TAG + TAG_OFFSET, 0);
    frame[TAG_OFFSET..TAG_OFFSET + TAG].copy_from_slice(&tag);
}

impl RxLoss {
    /// Returns the reason why the kernel truncated a frame of `length` bytes.
    const fn truncated(length: usize) -> Self {
        if length > Pool::LARGE { Self::Refused } else { Self::RingFull }
    }
}

/// Takes a buffer for a received frame.
fn take_buffer(pool: &mut Pool, length: usize) -> Result<Packet, RxLoss> {
    pool.take(length, DatapathPort::default()).ok_or_else(|| RxLoss::without_buffer(length))
}

/// Copies the frame of a slot into a packet, and inserts its VLAN tag again.
fn copy_slot(filled: &Filled<'_>, pool: &mut Pool) -> Result<Packet, RxLoss> {
    let Filled { virtio_header, frame, tag } = *filled;
    let Some(tag) = tag else {
        let virtio = VirtioHeader::receive(virtio_header, frame).map_err(|_| RxLoss::Refused)?;
        let mut packet = take_buffer(pool, frame.len())?;
        packet.frame_mut().copy_from_slice(frame);
        packet.virtio = virtio;
        return Ok(packet);
    };
    let (addresses, rest) = frame.split_at_checked(TAG_OFFSET).ok_or(RxLoss::Refused)?;
    // The offsets of the virtio header refer to the frame without the tag.
    let virtio = VirtioHeader::receive(virtio_header, frame).map_err(|_| RxLoss::Refused)?;
    let mut packet = take_buffer(pool, frame.len() + tag.len())?;
    let (front, back) = packet.frame_mut().split_at_mut(TAG_OFFSET + tag.len());
    front[..TAG_OFFSET].copy_from_slice(addresses);
    front[TAG_OFFSET..].copy_from_slice(&tag);
    back.copy_from_slice(rest);
    packet.virtio = virtio;
    packet.virtio.moved_back(4);
    Ok(packet)
}

/// Takes a frame of the receive queue as a packet, and inserts its VLAN tag again.
fn queued(
    socket: BorrowedFd<'_>,
    length: usize,
    tag: Option<[u8; 4]>,
    pool: &mut Pool,
) -> Result<Packet, RxLoss> {
    let tag_length = tag.map_or(0, |tag| tag.len());
    let mut packet = take_buffer(pool, length + tag_length).inspect_err(|_| {
        discard(socket);
    })?;
    let mut virtio_header = [0; VirtioHeader::ENCODED];
    // The offsets of the virtio header refer to the frame without the tag.
    let frame = &mut packet.frame_mut()[tag_length..];
    let read = sys::receive_queued(socket, &mut virtio_header, frame);
    let is_whole = read.is_ok_and(|read| read == VirtioHeader::ENCODED + length);
    let virtio = VirtioHeader::receive(virtio_header, frame);
    let Some(virtio) = virtio.ok().filter(|_| is_whole) else {
        pool.put_back(packet);
        return Err(RxLoss::Refused);
    };
    packet.virtio = virtio;
    if let Some(tag) = tag {
        insert_tag(&mut packet, tag);
        packet.virtio.moved_back(4);
    }
    Ok(packet)
}

/// Discards the next frame of the receive queue; returns whether there was one.
fn discard(socket: BorrowedFd<'_>) -> bool {
    let mut virtio_header = [0; VirtioHeader::ENCODED];
    sys::receive_queued(socket, &mut virtio_header, &mut []).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns why a received frame is lost, if it is.
    fn loss(pool: &mut Pool, length: usize, tag: Option<[u8; 4]>) -> Option<RxLoss> {
        let frame = vec![0; length];
        let filled = Filled { virtio_header: [0; VirtioHeader::ENCODED], frame: &frame, tag };
        copy_slot(&filled, pool).err()
    }

    /// The inserted tag may make a frame too long.
    #[test]
    fn a_frame_that_is_too_long_is_refused() {
        let mut pool = Pool::new();
        assert_eq!(loss(&mut pool, Pool::LARGE, None), None);
        assert_eq!(loss(&mut pool, Pool::LARGE + 1, None), Some(RxLoss::Refused));
        assert_eq!(loss(&mut pool, Pool::LARGE, Some([0x81, 0, 0, 1])), Some(RxLoss::Refused));
        let lengths = [Pool::LARGE, Pool::LARGE + 1].map(RxLoss::truncated);
        assert_eq!(lengths, [RxLoss::RingFull, RxLoss::Refused]);
        while pool.take(Pool::LARGE, DatapathPort::default()).is_some() {}
        assert_eq!(loss(&mut pool, Pool::LARGE, None), Some(RxLoss::NoBuffer));
    }
}
