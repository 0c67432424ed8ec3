//! The header that every message of every version begins with (OpenFlow 1.3.5, 7.1).

use super::ByteReader;
use crate::message::Xid;

/// `ofp_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version on the wire: 4 for OpenFlow 1.3.
    pub version: u8,
    /// The type of the message.
    pub kind: u8,
    /// Length of the message with this header.
    pub length: u16,
    /// What ties replies to requests.
    pub xid: Xid,
}

impl Header {
    /// `OFPT_HELLO`, in every version.
    pub(crate) const HELLO: u8 = 0;
    /// `OFPT_ECHO_REQUEST`, in every version.
    pub(crate) const ECHO_REQUEST: u8 = 2;
    /// `OFPT_ECHO_REPLY`, in every version.
    pub(crate) const ECHO_REPLY: u8 = 3;

    /// Its length in bytes.
    pub const LEN: usize = 8;

    /// Reads the header at the beginning of `bytes`; `None` if they are fewer than [`Self::LEN`].
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes.get(..Self::LEN)?);
        let (version, kind) = (reader.u8().ok()?, reader.u8().ok()?);
        let (length, xid) = (reader.u16().ok()?, reader.u32().ok()?);
        Some(Self { version, kind, length, xid: Xid::new(xid) })
    }

    /// The bytes.
    #[must_use]
    pub const fn emit(&self) -> [u8; Self::LEN] {
        let [length_high, length_low] = self.length.to_be_bytes();
        let [x0, x1, x2, x3] = self.xid.number().to_be_bytes();
        [self.version, self.kind, length_high, length_low, x0, x1, x2, x3]
    }
}
