//! Agreeing on a version (OpenFlow 1.3.5, 6.3.1).

use crate::{
    message::{Hello, Message, Xid},
    wire::v13,
};

/// The versions that this switch speaks, bit `n` for wire version `n`.
pub(super) const VERSIONS: u32 = 1 << v13::VERSION;

/// What the switch says first.
pub(super) const fn ours() -> Hello {
    Hello { version: v13::VERSION, bitmap: Some(VERSIONS) }
}

/// What came out of two hellos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Both speak OpenFlow 1.3.
    Agreed,
    /// They have no version in common.
    Incompatible {
        /// What the peer offered, for people.
        offered: String,
    },
}

/// Agrees to what a peer offers, or not.
pub(super) fn agree(hello: Hello) -> Agreement {
    if hello.versions() & VERSIONS != 0 {
        Agreement::Agreed
    } else {
        Agreement::Incompatible { offered: in_words(hello.versions()) }
    }
}

/// Versions as people call them.
fn in_words(versions: u32) -> String {
    let names: Vec<_> = (0..32)
        .filter(|bit| versions >> bit & 1 == 1)
        .map(|bit: u32| match bit {
            1..=6 => format!("1.{}", bit - 1),
            _ => format!("version {bit:#04x}"),
        })
        .collect();
    if names.is_empty() { "no version".to_owned() } else { names.join(", ") }
}

/// The error that ends a connection without a common version: in the peer's version, with a
/// sentence for people.
pub(super) fn refusal(peer_version: u8, xid: Xid, sentence: &str) -> Vec<u8> {
    let error = crate::message::ErrorMessage {
        number: crate::ErrorCode::HelloIncompatible.number(),
        data: sentence.as_bytes().to_vec(),
    };
    let mut message = v13::encode(xid, &Message::Error(error)).unwrap_or_default();
    if let Some(version) = message.first_mut() {
        *version = peer_version;
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::Header;

    fn agreement(hello: Hello) -> Agreement {
        let frame = v13::encode(Xid::NONE, &Message::Hello(hello)).unwrap();
        agreement_on(&frame)
    }

    fn agreement_on(frame: &[u8]) -> Agreement {
        let Ok((_, Message::Hello(hello))) = v13::decode(frame) else { panic!("a hello") };
        agree(hello)
    }

    #[test]
    fn a_plain_hello_offers_every_version_up_to_its_own() {
        for version in 0..=255 {
            let agreed = agreement(Hello { version, bitmap: None }) == Agreement::Agreed;
            assert_eq!(agreed, version >= 4, "version {version}");
        }
    }

    #[test]
    fn a_bitmap_counts_and_not_the_version_of_its_header() {
        assert_eq!(agreement(Hello { version: 6, bitmap: Some(0x12) }), Agreement::Agreed);
        let offered = "1.0, 1.5".to_owned();
        let refused = Agreement::Incompatible { offered };
        assert_eq!(agreement(Hello { version: 6, bitmap: Some(0x42) }), refused);
        let offered = "no version".to_owned();
        let refused = Agreement::Incompatible { offered };
        assert_eq!(agreement(Hello { version: 6, bitmap: Some(0) }), refused);
    }

    #[test]
    fn broken_elements_of_a_hello_are_passed_over() {
        for element in [&[0, 1, 0, 0][..], &[0, 9, 0, 8, 1, 2, 3, 4], &[0, 1, 0, 200, 0], &[7]] {
            let length = u16::try_from(Header::LEN + element.len()).unwrap();
            let header = Header { version: 4, kind: 0, length, xid: Xid::NONE };
            let frame = [&header.emit()[..], element].concat();
            assert_eq!(agreement_on(&frame), Agreement::Agreed, "{element:?}");
        }
    }
}
