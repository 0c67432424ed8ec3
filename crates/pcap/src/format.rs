//! Numbers of the format.

/// Bytes of the header of a file.
pub(crate) const HEADER_BYTES: usize = 24;
/// First word of a file with microseconds.
pub(crate) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// First word of a file with nanoseconds.
pub(crate) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// First word of a file in the newer format, pcapng.
pub(crate) const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
/// The link type of Ethernet frames.
pub(crate) const LINK_ETHERNET: u32 = 1;
/// The flag of the link type for frames that end with their check sequence.
pub(crate) const LINK_HAS_FCS: u32 = 1 << 26;
/// Bytes that a frame may have, and the snap length that the writer states.
pub(crate) const FRAME_BYTES_MAX: u32 = 262_144;
/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
