//! The fuzz target for OpenFlow byte streams.

use super::ConnectionHarness;
use crate::{
    connection::ConnectionKind,
    framing::Framer,
    message::{FlowFormat, Message},
    wire::{
        Codec,
        v10::V10Settings,
        v13::{decode, encode},
    },
};

/// Decodes arbitrary bytes as an OpenFlow stream of each version.
///
/// Every message of OpenFlow 1.3 that decodes must encode, and decode again to the same value. A
/// message of OpenFlow 1.0 must encode to bytes that decode and encode to themselves: it has
/// several forms of the same meaning. A connection that receives the bytes must stay open or close
/// cleanly.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_openflow(data: &[u8]) {
    for codec in Codec::ALL {
        let mut harness = ConnectionHarness::open_with(ConnectionKind::Controller, *codec);
        harness.send_bytes(data);
        for frame in harness.reply_frames() {
            assert!(!matches!(codec.decode(&frame), Ok((_, Message::Hello(_)))), "a second hello");
        }
    }
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
        for settings in ALL_SETTINGS {
            check_v10(&frame, settings);
        }
    }
}

/// All choices of a client of OpenFlow 1.0.
pub(crate) const ALL_SETTINGS: [V10Settings; 4] = [
    V10Settings { flow_format: FlowFormat::OpenFlow10, has_table_ids: false },
    V10Settings { flow_format: FlowFormat::OpenFlow10, has_table_ids: true },
    V10Settings { flow_format: FlowFormat::Nxm, has_table_ids: false },
    V10Settings { flow_format: FlowFormat::Nxm, has_table_ids: true },
];

/// Checks that a message encodes to bytes that decode and encode to themselves.
fn check_v10(frame: &[u8], settings: V10Settings) {
    let codec = Codec::V10(settings);
    if let Ok((xid, message)) = codec.decode(frame)
        && let Ok(bytes) = codec.encode(xid, &message)
    {
        let again = codec.decode(&bytes).map(|(xid, message)| codec.encode(xid, &message));
        assert_eq!(again, Ok(Ok(bytes)), "{message:?}");
    }
}
