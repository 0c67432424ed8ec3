//! Round-trip tests of the codec, and tests against recorded sessions.

use proptest::prelude::*;
use shunt_flow::{Match, PortNo, text::NoPortNames};
use shunt_pipeline::{FlowMod, FlowModCommand, RuleFilter, TableSelector, text::parse_rule};

use super::{decode, encode};
use crate::{
    error::ErrorCode,
    message::{
        FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, Message, MultipartRequest, Xid,
    },
    testing::{any_message, fuzz_openflow},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn an_encoded_message_decodes_to_itself(number in any::<u32>(), message in any_message()) {
        let xid = Xid::new(number);
        let bytes = encode(xid, &message).unwrap();
        prop_assert_eq!(decode(&bytes), Ok((xid, message)));
    }

    #[test]
    fn a_bundled_message_decodes_to_itself(
        (xid, add) in any::<u32>().prop_map(Xid::new).prop_flat_map(|xid| {
            (Just(xid), crate::testing::any_bundle_add(xid))
        }),
    ) {
        let message = Message::BundleAdd(add);
        let bytes = encode(xid, &message).unwrap();
        prop_assert_eq!(decode(&bytes), Ok((xid, message)));
    }

    #[test]
    fn a_damaged_message_is_refused_or_round_trips(
        message in any_message(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(Xid::new(7), &message).unwrap();
        for (index, byte) in damage {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let cut = cut.index(bytes.len() + 1);
        // The message is truncated and its header has the new length.
        if cut >= 8 {
            bytes.truncate(cut);
            let length = u16::try_from(cut).unwrap();
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
        }
        fuzz_openflow(&bytes);
    }

    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        fuzz_openflow(&bytes);
    }
}

/// `ovs-ofctl ofp-print` of Open vSwitch 3.1 prints the same.
#[test]
fn out_port_has_form_in_sixteen_bits() {
    for (number, is_legal) in [(0xfeff, true), (0xff01, false), (0x1_0000, false)]
        .into_iter()
        .chain([(0xffff_feff, false), (0xffff_ff00, true), (u32::MAX, true)])
    {
        let out_port = PortNo::new(number);
        let filter = RuleFilter { out_port, ..RuleFilter::all() };
        let flags = FlowMonitorFlags { add: true, ..FlowMonitorFlags::default() };
        let (table, matching) = (TableSelector::All, Match::any());
        let monitor = FlowMonitorRequest { id: FlowMonitorId(1), flags, table, matching, out_port };
        let delete = parse_rule(FlowModCommand::Delete, "", &NoPortNames).unwrap();
        let messages = [
            Message::MultipartRequest(MultipartRequest::Flow(filter.clone())),
            Message::MultipartRequest(MultipartRequest::Aggregate(filter)),
            Message::MultipartRequest(MultipartRequest::FlowMonitor(vec![monitor])),
            Message::FlowMod(FlowMod { out_port, ..delete }),
        ];
        for message in messages {
            let decoded = decode(&encode(Xid::new(7), &message).unwrap());
            match decoded {
                Ok(decoded) => assert!(is_legal && decoded.1 == message, "{message:?}"),
                Err(code) => assert!(!is_legal && code == ErrorCode::ActionOutPort, "{message:?}"),
            }
        }
    }
}

/// A session of ovs-ofctl with this switch.
const RECORDED: &str = include_str!("../../../tests/data/recorded.txt");
/// A session of ovs-ofctl with Open vSwitch, which uses the same forms.
const VECTORS: &str = include_str!("../../../tests/data/vectors.txt");

/// Decodes and encodes recorded messages.
///
/// Returns how many messages were sent, received and undecodable.
fn check_recorded(text: &str) -> [usize; 3] {
    let mut counts = [0; 3];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (direction, hex) = line.split_once(' ').unwrap();
        let digits = (0..hex.len()).step_by(2);
        let bytes: Vec<_> =
            digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        match decode(&bytes) {
            Ok((xid, message)) => {
                assert_eq!(encode(xid, &message).unwrap(), bytes, "{message:?}");
                assert_ne!(direction, "x", "{line}");
                counts[usize::from(direction == "<")] += 1;
            }
            Err(code) => {
                assert_eq!(direction, "x", "{code}: {line}");
                counts[2] += 1;
            }
        }
    }
    counts
}

#[test]
fn ovs_ofctl_sessions_round_trip_exactly() {
    let [sent, received, _] = check_recorded(RECORDED);
    assert!(sent > 40 && received > 20, "{sent} {received}");
}

#[test]
fn actions_groups_meters_encode_like_open_vswitch() {
    let [sent, received, _] = check_recorded(VECTORS);
    assert!(sent > 90 && received > 8, "{sent} {received}");
}
