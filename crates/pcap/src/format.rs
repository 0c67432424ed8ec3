//! The constants of the classic pcap format.

/// Length in bytes of the file header.
pub(crate) const HEADER_BYTES: usize = 24;
/// The magic number of files with time stamps in microseconds.
pub(crate) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// The magic number of files with time stamps in nanoseconds.
pub(crate) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The first word of files in the newer format, pcapng.
pub(crate) const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
/// The link type of Ethernet frames.
pub(crate) const LINK_ETHERNET: u32 = 1;
/// The flag in the link type of files with frame check sequences.
pub(crate) const LINK_HAS_FCS: u32 = 1 << 26;
/// Maximum length of a frame in bytes, which the writer also states as snap length.
pub(crate) const FRAME_BYTES_MAX: u32 = 262_144;
/// Number of nanoseconds in a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
