//! Version negotiation (OpenFlow 1.3.5, 6.3.1).

use crate::{
    message::{Hello, Message, Xid},
    wire::codec::{Codec, version_names},
};

/// Returns the hello of a bridge that accepts `versions`.
pub(super) fn ours(versions: u32) -> Hello {
    let newest = Codec::newest_of(versions).unwrap_or(Codec::NEWEST);
    Hello { version: newest.version(), bitmap: Some(versions) }
}

/// The result of version negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VersionNegotiation {
    /// The newest version that both sides speak.
    Agreed(Codec),
    /// The switch and its peer have no version in common.
    Incompatible {
        /// The versions that the peer offered, as text.
        offered: String,
        /// The versions that the bridge accepts, as text.
        own: String,
    },
}

/// Selects the newest OpenFlow version that the bridge and the peer offer.
pub(super) fn agree(hello: Hello, own: u32) -> VersionNegotiation {
    let versions = hello.versions();
    let incompatible = || VersionNegotiation::Incompatible {
        offered: version_names(versions),
        own: version_names(own),
    };
    Codec::newest_of(versions & own).map_or_else(incompatible, VersionNegotiation::Agreed)
}

/// Encodes the error for a peer without a common version.
///
/// The error is in the version of the peer and carries `sentence` as its text.
pub(super) fn refusal(peer_version: u8, xid: Xid, sentence: &str) -> Vec<u8> {
    let error = crate::message::ErrorMessage {
        number: crate::ErrorCode::HelloIncompatible.number(),
        data: sentence.as_bytes().to_vec(),
    };
    let mut message = Codec::NEWEST.encode(xid, &Message::Error(error)).unwrap_or_default();
    if let Some(version) = message.first_mut() {
        *version = peer_version;
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{header::Header, v10::V10Settings};

    /// The result of an agreement on OpenFlow 1.3.
    const AGREED: VersionNegotiation = VersionNegotiation::Agreed(Codec::V13);

    /// Returns the result of the negotiation with a hello.
    fn agreement(hello: Hello) -> VersionNegotiation {
        let frame = Codec::NEWEST.encode(Xid::NONE, &Message::Hello(hello)).unwrap();
        agreement_on(&frame)
    }

    fn agreement_on(frame: &[u8]) -> VersionNegotiation {
        let Ok((_, Message::Hello(hello))) = Codec::NEWEST.decode(frame) else { panic!("a hello") };
        agree(hello, V13_ONLY)
    }

    /// A version bitmap with OpenFlow 1.3 alone.
    const V13_ONLY: u32 = 1 << 4;

    fn incompatible_with(offered: &str) -> VersionNegotiation {
        VersionNegotiation::Incompatible { offered: offered.to_owned(), own: "1.3".to_owned() }
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        let hello = Hello { version: 6, bitmap: Some(0x12) };
        assert_eq!(agree(hello, Codec::versions()), AGREED);
        let oldest = VersionNegotiation::Agreed(Codec::V10(V10Settings::INITIAL));
        assert_eq!(agree(hello, 1 << 1), oldest);
        assert_eq!(agree(Hello { version: 1, bitmap: None }, Codec::versions()), oldest);
        assert_eq!(ours(1 << 1), Hello { version: 1, bitmap: Some(1 << 1) });
    }

    #[test]
    fn a_hello_without_bitmap_offers_all_lower_versions() {
        for version in 0..=255 {
            let agreed = agreement(Hello { version, bitmap: None }) == AGREED;
            assert_eq!(agreed, version >= 4, "version {version}");
        }
    }

    #[test]
    fn a_bitmap_overrides_the_header_version() {
        assert_eq!(agreement(Hello { version: 6, bitmap: Some(0x12) }), AGREED);
        let refused = incompatible_with("1.0, 1.5");
        assert_eq!(agreement(Hello { version: 6, bitmap: Some(0x42) }), refused);
    }

    /// For an empty bitmap, Open vSwitch uses the header version (1.3.5, 6.3.1).
    #[test]
    fn an_empty_version_bitmap_counts_as_absent() {
        assert_eq!(agreement(Hello { version: 6, bitmap: Some(0) }), AGREED);
        let refused = incompatible_with("1.0");
        assert_eq!(agreement(Hello { version: 1, bitmap: Some(0) }), refused);
    }

    /// Returns a hello of OpenFlow 1.3 with the given elements.
    fn hello_with(elements: &[u8]) -> Vec<u8> {
        let length = u16::try_from(Header::LEN + elements.len()).unwrap();
        let header = Header { version: 4, kind: 0, length, xid: Xid::NONE };
        [&header.emit()[..], elements].concat()
    }

    #[test]
    fn broken_hello_elements_are_ignored() {
        for element in [&[0, 1, 0, 0][..], &[0, 9, 0, 8, 1, 2, 3, 4], &[0, 1, 0, 200, 0], &[7]] {
            assert_eq!(agreement_on(&hello_with(element)), AGREED, "{element:?}");
        }
    }

    /// Open vSwitch replaces the versions at each bitmap that has one.
    #[test]
    fn the_last_version_bitmap_counts() {
        let bitmaps = |[first, last]: [u8; 2]| {
            agreement_on(&hello_with(
                &[[0, 1, 0, 8, 0, 0, 0, first], [0, 1, 0, 8, 0, 0, 0, last]].concat(),
            ))
        };
        assert_eq!(bitmaps([0x02, 0x10]), AGREED);
        assert_eq!(bitmaps([0x10, 0x02]), incompatible_with("1.0"));
        assert_eq!(bitmaps([0x10, 0]), AGREED);
    }
}
