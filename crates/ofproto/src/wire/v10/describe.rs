//! Short texts of messages for the log, also of messages that cannot be decoded.

use super::{codec::decode, kind, settings::V10Settings};
use crate::{
    message::Message,
    wire::{
        ByteReader,
        header::Header,
        v13::{
            action::{ActionFormat, find_bad_action},
            describe::{detail, raw_experimenter, shorten},
        },
    },
};

/// Number of bytes before the actions of a flow-mod (`ofp_flow_mod`).
const FLOW_MOD_LEN: usize = 72;

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
        Err(_) => {
            let actions = frame.get(FLOW_MOD_LEN..).filter(|_| header.kind == kind::FLOW_MOD);
            let bad = actions.and_then(|actions| find_bad_action(actions, ActionFormat::V10));
            let bad = bad.map_or_else(String::new, |bad| format!(" ({bad})"));
            Some(format!("of {} bytes{bad}", header.length))
        }
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

    #[test]
    fn a_refused_action_of_a_rule_is_described() {
        let load =
            [0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7, 0, 3, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 16];
        let frame = [&[1, 14, 0, 96][..], &[0; FLOW_MOD_LEN - 4], &load].concat();
        let expected = "flow_mod of 96 bytes (action 1 of experimenter 0x2320, type 7: \
                        load:0x10->reg0[0..3]: the value needs 5 bits, and the target has 4)";
        assert_eq!(describe(&frame, V10Settings::INITIAL), expected);
    }
}
