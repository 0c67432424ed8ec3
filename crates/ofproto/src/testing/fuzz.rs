//! The fuzz target for OpenFlow byte streams.

use super::ConnectionHarness;
use crate::{
    connection::ConnectionKind,
    framing::Framer,
    message::Message,
    wire::v13::{decode, encode},
};

/// Decodes arbitrary bytes as an OpenFlow 1.3 stream.
///
/// Every message that decodes must encode, and decode again to the same value. A connection that
/// receives the bytes must stay open or close cleanly.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_openflow(data: &[u8]) {
    let mut framer = Framer::default();
    framer.push(data);
    while let Ok(Some(frame)) = framer.next_frame() {
        if let Ok((xid, message)) = decode(&frame)
            && let Ok(bytes) = encode(xid, &message)
        {
            // A hello decodes in any version and with any elements, but encodes in one form.
            let again = decode(&bytes);
            assert_eq!(again, Ok((xid, message)), "{bytes:02x?}");
        }
    }
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    harness.send_bytes(data);
    for frame in harness.reply_frames() {
        assert!(!matches!(decode(&frame), Ok((_, Message::Hello(_)))), "a second hello");
    }
}
