//! Datagrams for collectors, and their maximum size.

/// Maximum number of bytes of the UDP payload of a datagram.
///
/// A datagram of this size fits into a frame of 1500 bytes, with the headers of IPv6 and UDP.
pub const DATAGRAM_MAX: usize = 1400;

/// An encoded datagram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportDatagram {
    /// The bytes of the datagram, without the UDP header.
    pub bytes: Vec<u8>,
    /// Number of flows, or of samples of packets, in the datagram.
    ///
    /// A collector lacks these records if the datagram is lost.
    pub records: u32,
}
