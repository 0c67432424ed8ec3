//! The size of datagrams.

/// Maximum number of bytes of a datagram.
///
/// It fits a frame of 1500 bytes, with the headers of IPv6 and UDP.
pub const DATAGRAM_MAX: usize = 1400;
