//! The offsets of the headers of a frame, found by one parse for all later steps.
//!
//! [`extract`](crate::extract::extract) finds the layers, and [`rewrite`](crate::rewrite) writes
//! into them. A push or a pop of a tag only shifts the layers after it, so no layer is parsed
//! twice.

use std::num::{NonZeroU16, NonZeroU32};

/// Offsets of the headers of a frame, counted from its first byte.
///
/// A header that is absent or malformed has no offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Offset of the first byte after the Ethernet type.
    payload: Option<NonZeroU16>,
    network: Option<NonZeroU16>,
    transport: Option<NonZeroU32>,
    /// Offset of the end of the transport payload.
    end: Option<NonZeroU32>,
    route: Route,
}

/// The kind of the IPv6 destination address of a frame: final or not.
///
/// A routing header may name another final address. Then the transport checksum does not cover the
/// destination address (RFC 8200, 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// The destination address is final.
    #[default]
    Final,
    /// A routing header has segments left.
    Via,
}

impl Layers {
    /// Returns the offset of the first byte after the Ethernet type.
    ///
    /// The outermost MPLS label stack entry may be at this offset. The Ethernet type is in the two
    /// bytes before it.
    #[must_use]
    pub fn payload(&self) -> Option<usize> {
        Some(usize::from(self.payload?.get()))
    }

    /// Returns the offset of the IPv4, IPv6, ARP or NSH header.
    #[must_use]
    pub fn network(&self) -> Option<usize> {
        Some(usize::from(self.network?.get()))
    }

    /// Returns the offset of the payload of the IP headers, in a later fragment too.
    #[must_use]
    pub fn transport(&self) -> Option<usize> {
        usize::try_from(self.transport?.get()).ok()
    }

    /// Returns the offset of the first byte after the IP packet.
    /// Ethernet padding, if any, starts at this offset.
    #[must_use]
    pub fn end(&self) -> Option<usize> {
        usize::try_from(self.end?.get()).ok()
    }

    /// Shifts the layers by `bytes` inserted after the MAC addresses.
    /// A negative number means that bytes were removed.
    #[must_use]
    pub fn shifted(self, bytes: i16) -> Self {
        let payload = self
            .payload
            .and_then(|offset| offset.get().checked_add_signed(bytes).and_then(NonZeroU16::new));
        Self { payload, ..self.shifted_payload(bytes) }
    }

    /// Shifts the layers by `bytes` inserted after the Ethernet type.
    /// A negative number means that bytes were removed.
    ///
    /// Layers after a label that is pushed and popped again keep their offsets.
    #[must_use]
    pub fn shifted_payload(self, bytes: i16) -> Self {
        let near =
            |offset: NonZeroU16| offset.get().checked_add_signed(bytes).and_then(NonZeroU16::new);
        let far = |offset: NonZeroU32| {
            offset.get().checked_add_signed(bytes.into()).and_then(NonZeroU32::new)
        };
        Self {
            payload: self.payload,
            network: self.network.and_then(near),
            transport: self.transport.and_then(far),
            end: self.end.and_then(far),
            route: self.route,
        }
    }

    pub(crate) const fn route(&self) -> Route {
        self.route
    }

    /// Creates the layers of a frame with an Ethernet type that ends at `offset`.
    pub(crate) fn with_payload(offset: usize) -> Self {
        Self { payload: near(offset), ..Self::default() }
    }

    /// Creates the layers of a frame with a network header at `offset`.
    pub(crate) fn with_network(offset: usize) -> Self {
        Self { network: near(offset), ..Self::with_payload(offset) }
    }

    /// Adds the payload of the network header, from `offset` to `end`.
    pub(crate) fn and_transport(self, offset: usize, end: usize, route: Route) -> Self {
        Self { transport: far(offset), end: far(end), route, ..self }
    }
}

/// Returns an offset of 16 bits; `None` for 0 or a larger offset.
fn near(offset: usize) -> Option<NonZeroU16> {
    u16::try_from(offset).ok().and_then(NonZeroU16::new)
}

/// Returns an offset of 32 bits; `None` for 0 or a larger offset.
fn far(offset: usize) -> Option<NonZeroU32> {
    u32::try_from(offset).ok().and_then(NonZeroU32::new)
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
}
