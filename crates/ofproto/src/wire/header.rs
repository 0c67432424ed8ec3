//! The message header, which is the same in every version (OpenFlow 1.3.5, 7.1).

use super::ByteReader;
use crate::message::Xid;

/// `ofp_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Wire version: 4 for OpenFlow 1.3.
    pub version: u8,
    /// The type of the message.
    pub kind: u8,
    /// Length of the message in bytes, including this header.
    pub length: u16,
    /// Transaction id, which relates a reply to its request.
    pub xid: Xid,
}

impl Header {
    /// `OFPT_HELLO`, in every version.
    pub(crate) const HELLO: u8 = 0;
    /// `OFPT_ECHO_REQUEST`, in every version.
    pub(crate) const ECHO_REQUEST: u8 = 2;
    /// `OFPT_ECHO_REPLY`, in every version.
    pub(crate) const ECHO_REPLY: u8 = 3;

    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    /// Parses the header at the start of `bytes`; `None` if it is incomplete.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes.get(..Self::LEN)?);
        let (version, kind) = (reader.u8().ok()?, reader.u8().ok()?);
        let (length, xid) = (reader.u16().ok()?, reader.u32().ok()?);
        Some(Self { version, kind, length, xid: Xid::new(xid) })
    }

    /// Returns the encoded header.
    #[must_use]
    pub const fn emit(&self) -> [u8; Self::LEN] {
        let [length_high, length_low] = self.length.to_be_bytes();
        let [x0, x1, x2, x3] = self.xid.number().to_be_bytes();
        [self.version, self.kind, length_high, length_low, x0, x1, x2, x3]
    }
}
