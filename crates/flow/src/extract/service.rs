//! The network service header (RFC 8300).

use super::frame::Parser;
use crate::{
    Layers,
    bytes::{be16, be64},
    layout::word,
};

/// Bytes of the base header and the service path header.
const BASE: usize = 8;

/// Length in bytes of a header with a fixed-length context (metadata type 1).
const FIXED: usize = 24;
/// Metadata type of a header with a fixed-length context.
const FIXED_CONTEXT: u8 = 1;

impl Parser<'_> {
    /// Parses a service header (NSH) of version 0.
    /// The header length must fit the packet and the metadata type.
    ///
    /// The payload of the service header is not parsed.
    pub(super) fn service(&mut self) -> Option<Layers> {
        let offset = self.offset();
        let base: &[u8; BASE] = self.peek()?;
        let first = be16::<0, _>(base);
        let (version, flags, ttl) = (first >> 14, first >> 12 & 3, first >> 6 & 0x3f);
        let length = usize::from(first & 0x3f) << 2;
        let is_fixed = base[2] == FIXED_CONTEXT;
        if version != 0 || length < BASE || length > self.rest.len() || is_fixed && length != FIXED
        {
            return None;
        }
        self.set::<{ word::NSH }>(
            u64::from(flags) << 56 | u64::from(ttl) << 48 | be64::<0, _>(base) & 0xffff_ffff_ffff,
        );
        if is_fixed {
            let header: &[u8; FIXED] = self.peek()?;
            self.set::<{ word::NSH_CONTEXT_1 }>(be64::<8, _>(header));
            self.set::<{ word::NSH_CONTEXT_3 }>(be64::<16, _>(header));
        }
        Some(Layers::with_network(offset))
    }
}
