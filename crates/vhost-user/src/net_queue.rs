//! Frames in the buffers of a virtqueue, each after a `virtio_net_hdr`.
//!
//! Source: Virtual I/O Device 1.2, 5.1.6.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use crate::{
    error::RingError,
    features::VirtioFeatures,
    ring::{Direction, VirtqueueLayout},
};

/// The header in front of a frame: `struct virtio_net_hdr_v1`, little-endian.
pub type NetHeader = [u8; 12];

/// Length of the header of old drivers, `struct virtio_net_hdr`.
const OLD_HEADER: usize = 10;

/// Returns the length of the header in front of a frame.
///
/// Old drivers omit the last field of the header, the number of buffers (Virtual I/O Device 1.2,
/// 5.1.6.1).
const fn header_length(features: VirtioFeatures) -> usize {
    let is_whole = features.contains(VirtioFeatures::VERSION_1)
        || features.contains(VirtioFeatures::MRG_RXBUF);
    if is_whole { size_of::<NetHeader>() } else { OLD_HEADER }
}

/// Bit of the first byte of a header (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CSUM: u8 = 1;
/// The flag of a checked checksum (`VIRTIO_NET_HDR_F_DATA_VALID`).
const DATA_VALID: u8 = 2;

/// Kinds of segmentation, in the second byte of a header.
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// A consumer of the frames that a guest sends.
pub trait FrameSink {
    /// Returns the memory for a frame of `length` bytes; `None` refuses the frame.
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Takes the frame that was copied into the last buffer, and its header.
    fn take(&mut self, header: NetHeader);
}

/// A sink that refuses every frame, for a queue that the guest has disabled.
pub(crate) struct DiscardingSink;

impl FrameSink for DiscardingSink {
    fn buffer(&mut self, _length: usize) -> Option<&mut [u8]> {
        None
    }

    fn take(&mut self, _header: NetHeader) {}
}

/// Moves at most `max` frames from a guest to `sink`.
///
/// Returns the number of frames, including refused frames, and the rule that the guest broke after
/// these frames.
pub(crate) fn take_frames(
    ring: &mut impl VirtqueueLayout,
    features: VirtioFeatures,
    max: usize,
    sink: &mut impl FrameSink,
) -> (usize, Result<(), RingError>) {
    let header_length = header_length(features);
    let are_all_read = ring.read_ahead(max, Direction::FromGuest, 0);
    for taken in 0..max {
        // The guest writes the index of its ring meanwhile, and each reading of the index waits for
        // the other processor. Later frames are taken by the next call, ahead as well.
        if are_all_read && ring.chains().unreturned() == 0 {
            return (taken, Ok(()));
        }
        ring.begin_frame();
        let length = match ring.chain_length(0, Direction::FromGuest) {
            Ok(Some(length)) => length,
            Ok(None) => return (taken, Ok(())),
            Err(error) => return (taken, Err(error)),
        };
        let length = length.checked_sub(header_length).filter(|length| *length > 0);
        if let Some(buffer) = length.and_then(|length| sink.buffer(length)) {
            ring.chains().copy_out(header_length, buffer);
            let header = if header_length == HEADER_MAX {
                HeaderWord::new(ring.chains().copy_first_out())
            } else {
                HeaderWord::of_old_driver(ring.chains().copy_first_out())
            };
            sink.take(header.bytes());
        }
        ring.put_used(1, 0);
    }
    (max, Ok(()))
}

/// The result of sending a frame to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramePut {
    /// The frame is in the buffers of the guest.
    Done,
    /// The guest has no buffers.
    Full,
    /// The guest can never accept the frame.
    ///
    /// The frame is too long, or has an offload that was not negotiated.
    Refused,
}

/// The limits of a guest for the frames that it receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestLimits {
    pub(crate) features: VirtioFeatures,
    /// Maximum length of a frame that is not to be segmented, without its header.
    pub(crate) frame_max: usize,
}

impl GuestLimits {
    /// Length of an Ethernet header with two VLAN tags, which an MTU does not count.
    const ETHERNET_MAX: usize = 22;

    /// Returns the limits of a guest with an MTU, if the front-end has set one.
    pub(crate) fn new(features: VirtioFeatures, mtu: Option<u16>) -> Self {
        let mtu = mtu.filter(|_| features.contains(VirtioFeatures::MTU));
        let frame_max =
            mtu.map_or(usize::MAX, |mtu| usize::from(mtu).saturating_add(Self::ETHERNET_MAX));
        Self { features, frame_max }
    }
}

/// Copies frames into the buffers of a guest, until one is not sent.
///
/// Returns the number of sent frames, and the result of the last one.
pub(crate) fn put_frames<'a>(
    ring: &mut impl VirtqueueLayout,
    limits: GuestLimits,
    frames: impl ExactSizeIterator<Item = (NetHeader, &'a [u8])>,
) -> (usize, Result<FramePut, RingError>) {
    let mut frames = frames.peekable();
    // The frames of a burst usually have similar lengths.
    let length = frames.peek().map_or(0, |(_, frame)| frame.len());
    ring.read_ahead(frames.len(), Direction::ToGuest, length.saturating_add(HEADER_MAX));
    let mut sent = 0_usize;
    for (header, frame) in frames {
        match put_frame(ring, limits, header, frame) {
            Ok(FramePut::Done) => sent = sent.saturating_add(1),
            result => return (sent, result),
        }
    }
    (sent, Ok(FramePut::Done))
}

/// Length of the longest header in front of a frame.
const HEADER_MAX: usize = size_of::<NetHeader>();

/// Copies a frame into the next buffers of a guest.
///
/// # Errors
///
/// If the guest broke a rule.
fn put_frame(
    ring: &mut impl VirtqueueLayout,
    limits: GuestLimits,
    header: NetHeader,
    frame: &[u8],
) -> Result<FramePut, RingError> {
    let GuestLimits { features, frame_max } = limits;
    let Some(header) = accepted_header(HeaderWord::new(header), features) else {
        return Ok(FramePut::Refused);
    };
    if frame.len() > frame_max && header.segmentation() == 0 {
        return Ok(FramePut::Refused);
    }
    let header_length = header_length(features);
    let needed = frame.len().saturating_add(header_length);
    let is_mergeable = features.contains(VirtioFeatures::MRG_RXBUF);
    let (mut room, mut count) = (0_usize, 0_u16);
    ring.begin_frame();
    while room < needed {
        if count == ring.size() || count > 0 && !is_mergeable {
            return Ok(FramePut::Refused);
        }
        let Some(length) = ring.chain_length(usize::from(count), Direction::ToGuest)? else {
            return Ok(FramePut::Full);
        };
        // Virtio has this minimum. The minimum limits the number of buffers that a frame takes, and
        // so the time that a guest can cost.
        if is_mergeable && length < HEADER_MAX {
            return Err(RingError::ShortBuffer(length));
        }
        room = room.saturating_add(length);
        count = count.saturating_add(1);
    }
    let chains = usize::from(count);
    if header_length == HEADER_MAX {
        ring.chains().copy_first_in(chains, header.with_buffers(count).bytes());
    } else {
        ring.chains().copy_first_in(chains, header.bytes_for_old_driver());
    }
    ring.chains().copy_in(chains, header_length, frame);
    ring.put_used(count, needed);
    Ok(FramePut::Done)
}

/// Returns the header with only the flags that the guest has negotiated.
///
/// The result is `None` if the frame needs an offload that was not negotiated.
#[inline]
fn accepted_header(header: HeaderWord, features: VirtioFeatures) -> Option<HeaderWord> {
    let (mut flags, segmentation) = (header.flags(), header.segmentation());
    if !features.contains(VirtioFeatures::GUEST_CSUM) {
        if flags & NEEDS_CSUM != 0 {
            return None;
        }
        flags &= !DATA_VALID;
    }
    if segmentation != 0 && !takes_segmentation(features, segmentation) {
        return None;
    }
    Some(header.with_flags(flags))
}

/// A header in one word, its first byte lowest.
///
/// A field that is written alone would delay a later copy of the whole header: the processor waits
/// until such a write has reached its cache.
#[derive(Clone, Copy)]
struct HeaderWord(u128);

impl HeaderWord {
    /// Position of the number of buffers in the word.
    const BUFFERS: u32 = 80;

    /// Returns the word of a header, with zeros above it.
    #[inline]
    fn new(bytes: NetHeader) -> Self {
        let mut word = [0; size_of::<u128>()];
        word.split_at_mut(bytes.len()).0.copy_from_slice(&bytes);
        Self(u128::from_le_bytes(word))
    }

    /// Returns the header of an old driver, which has no number of buffers.
    #[inline]
    fn of_old_driver(bytes: [u8; OLD_HEADER]) -> Self {
        let mut word = [0; size_of::<u128>()];
        word.split_at_mut(bytes.len()).0.copy_from_slice(&bytes);
        Self(u128::from_le_bytes(word))
    }

    /// Returns the flags of the header, its first byte.
    #[expect(clippy::cast_possible_truncation, reason = "the flags are the lowest byte")]
    const fn flags(self) -> u8 {
        self.0 as u8
    }

    /// Returns the field `gso_type`.
    #[expect(clippy::cast_possible_truncation, reason = "the field has one byte")]
    const fn segmentation(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Returns the header with other flags.
    const fn with_flags(self, flags: u8) -> Self {
        Self(self.0 & !0xff | flags as u128)
    }

    /// Sets the number of buffers of a frame.
    const fn with_buffers(self, count: u16) -> Self {
        let others = self.0 & !(0xffff << Self::BUFFERS);
        Self(others | (count as u128) << Self::BUFFERS)
    }

    /// Returns the header as bytes.
    #[inline]
    fn bytes(self) -> NetHeader {
        let mut bytes = NetHeader::default();
        bytes.copy_from_slice(self.0.to_le_bytes().split_at(size_of::<NetHeader>()).0);
        bytes
    }

    /// Returns the part of the header that an old driver has.
    #[inline]
    fn bytes_for_old_driver(self) -> [u8; OLD_HEADER] {
        let mut bytes = [0; OLD_HEADER];
        bytes.copy_from_slice(self.0.to_le_bytes().split_at(OLD_HEADER).0);
        bytes
    }
}

/// Returns whether a guest accepts packets that are not segmented.
///
/// `gso_type` is the field of the header with the kind of segmentation.
#[must_use]
pub const fn takes_segmentation(features: VirtioFeatures, gso_type: u8) -> bool {
    let with_ecn = gso_type & GSO_ECN == 0 || features.contains(VirtioFeatures::GUEST_ECN);
    with_ecn
        && match gso_type & !GSO_ECN {
            GSO_TCPV4 => features.contains(VirtioFeatures::GUEST_TSO4),
            GSO_TCPV6 => features.contains(VirtioFeatures::GUEST_TSO6),
            GSO_UDP_L4 => {
                features.contains(VirtioFeatures::GUEST_USO4)
                    && features.contains(VirtioFeatures::GUEST_USO6)
            }
            _ => false,
        }
}
