//! The offsets of the headers of a frame, found by one parse for all later steps.
//!
//! [`extract`](crate::extract::extract) finds the layers, and [`rewrite`](crate::rewrite) writes
//! into them. A push or a pop of a tag only shifts the layers after it, so no layer is parsed
//! twice.

use std::fmt;

/// Offsets of the headers of a frame, counted from its first byte.
///
/// A header that is absent or malformed has no offset.
///
/// The offsets are in two words, which functions return in registers. A structure of small fields
/// would be returned in memory: each caller would read it as a whole, and wait for the writes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Layers {
    /// Offsets of payload and network header (16 bits each) and transport header.
    ///
    /// Zero: absent.
    starts: u64,
    /// Offset of the end of the transport payload (32 bits), and the [`Route`].
    end: u64,
}

/// The kind of the IPv6 destination address of a frame: final or not.
///
/// A routing header may name another final address. Then the transport checksum does not cover the
/// destination address (RFC 8200, 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The destination address is final.
    Final,
    /// A routing header has segments left.
    Via,
}

impl Layers {
    /// Position of the offset of the network header in `starts`.
    const NETWORK: u32 = 16;
    /// Position of the offset of the transport header in `starts`.
    const TRANSPORT: u32 = 32;
    /// The bit of `end` that is set if the route is [`Route::Via`].
    const VIA: u64 = 1 << 32;

    /// Returns the offset of the first byte after the Ethernet type.
    ///
    /// The outermost MPLS label stack entry may be at this offset. The Ethernet type is in the two
    /// bytes before it.
    #[must_use]
    pub const fn payload(&self) -> Option<usize> {
        present(self.starts & NEAR_MAX)
    }

    /// Returns the offset of the IPv4, IPv6, ARP or NSH header.
    #[must_use]
    pub const fn network(&self) -> Option<usize> {
        present(self.starts >> Self::NETWORK & NEAR_MAX)
    }

    /// Returns the offset of the payload of the IP headers, in a later fragment too.
    #[must_use]
    pub const fn transport(&self) -> Option<usize> {
        present(self.starts >> Self::TRANSPORT)
    }

    /// Returns the offset of the first byte after the IP packet.
    /// Ethernet padding, if any, starts at this offset.
    #[must_use]
    pub const fn end(&self) -> Option<usize> {
        present(self.end & FAR_MAX)
    }

    /// Shifts the layers by `bytes` inserted after the MAC addresses.
    /// A negative number means that bytes were removed.
    #[must_use]
    pub fn shifted(self, bytes: i16) -> Self {
        let payload = shifted(self.payload(), bytes);
        let mut layers = self.shifted_payload(bytes);
        layers.starts = layers.starts & !NEAR_MAX | near(payload);
        layers
    }

    /// Shifts the layers by `bytes` inserted after the Ethernet type.
    /// A negative number means that bytes were removed.
    ///
    /// Layers after a label that is pushed and popped again keep their offsets.
    #[must_use]
    pub fn shifted_payload(self, bytes: i16) -> Self {
        let network = near(shifted(self.network(), bytes));
        let transport = far(shifted(self.transport(), bytes));
        Self {
            starts: self.starts & NEAR_MAX
                | network << Self::NETWORK
                | transport << Self::TRANSPORT,
            end: self.end & Self::VIA | far(shifted(self.end(), bytes)),
        }
    }

    /// Returns whether the destination in the header is the final one.
    pub(crate) const fn route(&self) -> Route {
        if self.end & Self::VIA == 0 { Route::Final } else { Route::Via }
    }

    /// Creates the layers of a frame with an Ethernet type that ends at `offset`.
    pub(crate) fn with_payload(offset: usize) -> Self {
        Self { starts: near(Some(offset)), end: 0 }
    }

    /// Creates the layers of a frame with a network header at `offset`.
    pub(crate) fn with_network(offset: usize) -> Self {
        let offset = near(Some(offset));
        Self { starts: offset | offset << Self::NETWORK, end: 0 }
    }

    /// Adds the payload of the network header, from `offset` to `end`.
    pub(crate) fn and_transport(self, offset: usize, end: usize, route: Route) -> Self {
        let via = match route {
            Route::Final => 0,
            Route::Via => Self::VIA,
        };
        let near = self.starts & FAR_MAX;
        Self { starts: near | far(Some(offset)) << Self::TRANSPORT, end: far(Some(end)) | via }
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("payload", &self.payload())
            .field("network", &self.network())
            .field("transport", &self.transport())
            .field("end", &self.end())
            .field("route", &self.route())
            .finish()
    }
}

/// The maximum of an offset of 16 bits.
const NEAR_MAX: u64 = 0xffff;
/// The maximum of an offset of 32 bits.
const FAR_MAX: u64 = 0xffff_ffff;

/// Returns an offset of a word; `None` for 0.
const fn present(offset: u64) -> Option<usize> {
    #[expect(clippy::cast_possible_truncation, reason = "an offset has at most 32 bits")]
    let offset = offset as usize;
    if offset == 0 { None } else { Some(offset) }
}

/// Returns an offset after `bytes` were inserted before it, or removed.
fn shifted(offset: Option<usize>, bytes: i16) -> Option<usize> {
    offset?.checked_add_signed(bytes.into())
}

/// Returns the bits of an offset of 16 bits; 0 if there is none, or a larger one.
fn near(offset: Option<usize>) -> u64 {
    offset.map_or(0, |offset| offset as u64).min(NEAR_MAX + 1) % (NEAR_MAX + 1)
}

/// Returns the bits of an offset of 32 bits; 0 if there is none, or a larger one.
fn far(offset: Option<usize>) -> u64 {
    offset.map_or(0, |offset| offset as u64).min(FAR_MAX + 1) % (FAR_MAX + 1)
}

const _: () = assert!(size_of::<Layers>() == 16, "layers are passed in two registers");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pushed_tag_shifts_all_layers() {
        let layers = Layers::with_network(14).and_transport(34, 60, Route::Via);
        let pushed = layers.shifted(4);
        assert_eq!(pushed.payload(), Some(18));
        assert_eq!(pushed.network(), Some(18));
        assert_eq!(pushed.transport(), Some(38));
        assert_eq!(pushed.end(), Some(64));
        assert_eq!(pushed.shifted(-4), layers);
    }

    #[test]
    fn a_pushed_label_shifts_later_layers() {
        let layers = Layers::with_network(14).and_transport(34, 60, Route::Via);
        let pushed = layers.shifted_payload(4);
        assert_eq!(pushed.payload(), Some(14));
        assert_eq!(
            (pushed.network(), pushed.transport(), pushed.end()),
            (Some(18), Some(38), Some(64))
        );
        assert_eq!(pushed.shifted_payload(-4), layers);
    }

    #[test]
    fn an_offset_that_does_not_fit_is_absent() {
        let layers = Layers::with_network(65_535).and_transport(65_555, 65_600, Route::Final);
        let pushed = layers.shifted(4);
        assert_eq!((pushed.payload(), pushed.network()), (None, None));
        assert_eq!((pushed.transport(), pushed.end()), (Some(65_559), Some(65_604)));
        assert_eq!(Layers::with_network(65_536), Layers::default());
        let all = Layers::with_network(14).and_transport(1 << 32, 60, Route::Via);
        assert_eq!((all.transport(), all.end()), (None, Some(60)));
        assert_eq!((all.route(), layers.route()), (Route::Via, Route::Final));
        assert_eq!(Layers::with_payload(14).shifted(-14).payload(), None);
    }
}
