//! Short texts of messages for the log, also of messages that cannot be decoded.

use super::{codec::decode, kind, settings::V10Settings};
use crate::{
    message::Message,
    wire::{
        ByteReader,
        header::Header,
        v13::describe::{detail, raw_experimenter, shorten},
    },
};

/// Returns a text such as `flow_mod add table=1,tcp,tp_dst=80 actions=output:2`.
pub(crate) fn describe(frame: &[u8], settings: V10Settings) -> String {
    let Some(header) = Header::parse(frame) else { return "message without a header".to_owned() };
    let decoded = decode(frame, settings);
    let name = match &decoded {
        // Also a vendor message is named after its content.
        Ok((_, Message::FlowMod(_))) => Some("flow_mod"),
        Ok((_, Message::GroupMod(_))) => Some("group_mod"),
        _ => kind::message_name(header.kind),
    };
    let name = name.map_or_else(|| format!("message of type {}", header.kind), str::to_owned);
    let detail = match decoded {
        Ok((_, message)) => detail(&message, frame),
        Err(_) if header.kind == kind::VENDOR => {
            let mut body = ByteReader::new(frame.get(Header::LEN..).unwrap_or_default());
            raw_experimenter(&mut body).ok()
        }
        Err(_) => Some(format!("of {} bytes", header.length)),
    };
    shorten(match detail {
        Some(detail) => format!("{name} {detail}"),
        None => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_begins_with_the_message_type() {
        let text = |frame: &[u8]| describe(frame, V10Settings::INITIAL);
        assert_eq!(text(&[1, 5, 0, 8, 0, 0, 0, 1]), "features_request");
        assert_eq!(text(&[1, 14, 0, 9, 0, 0, 0, 1, 0]), "flow_mod of 9 bytes");
        assert_eq!(text(&[1, 99, 0, 8, 0, 0, 0, 1]), "message of type 99 of 8 bytes");
        let vendor = [1, 4, 0, 16, 0, 0, 0, 1, 0, 0, 0x23, 0x20, 0, 0, 0, 99];
        assert_eq!(text(&vendor), "vendor experimenter=0x2320,type=99");
        assert_eq!(text(&[1]), "message without a header");
    }
}
