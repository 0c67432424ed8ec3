//! Any bytes as a stream of OpenFlow.

use super::ConnectionHarness;
use crate::{
    connection::ConnectionKind,
    framing::Framer,
    message::Message,
    wire::v13::{decode, encode},
};

/// Reads any bytes as a stream of OpenFlow 1.3.
///
/// What can be read can be written, and reads back the same; and a connection that is sent the
/// bytes stays alive or ends, in order.
///
/// # Panics
///
/// When it does not.
pub fn fuzz_openflow(data: &[u8]) {
    let mut framer = Framer::default();
    framer.push(data);
    while let Ok(Some(frame)) = framer.next_frame() {
        if let Ok((xid, message)) = decode(&frame)
            && let Ok(bytes) = encode(xid, &message)
        {
            // A hello is read whatever its version and elements, and written in one form.
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
