//! Round-trip tests of the codec, tests against recorded sessions, and between versions.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use proptest::prelude::*;
use shunt_flow::{
    FieldId, PortNo,
    text::{NoPortNames, format_match, parse_match},
};
use shunt_pipeline::{
    Action, FlowMod, FlowModCommand, GroupId, Instructions, Subfield, TableId, TableSelector,
    text::parse_actions,
};

use super::{FlowFormat, V10Settings, action::put_instructions, decode, encode, ofp_match};
use crate::{
    connection::ConnectionKind,
    error::ErrorCode,
    message::{FlowStatistics, Message, MultipartReply, Xid},
    testing::{
        ALL_SETTINGS, ConnectionHarness, any_flow_mod, any_message, any_nicira_group_mod,
        fuzz_openflow,
    },
    wire::{
        ByteReader, Codec,
        v13::action::{ActionFormat, put_actions, read_actions, read_applied},
    },
};

/// Returns a message as OpenFlow 1.0 has it.
fn as_v10(message: &Message, settings: V10Settings) -> Option<Message> {
    let bytes = encode(Xid::new(7), message, settings).ok()?;
    let (xid, again) = decode(&bytes, settings).unwrap();
    assert_eq!(xid, Xid::new(7));
    assert_eq!(encode(xid, &again, settings), Ok(bytes), "{again:?}");
    Some(again)
}

/// Returns flow statistics that went through the bytes of a codec.
fn through_codec(flow: &FlowStatistics, codec: Codec) -> FlowStatistics {
    let flows = vec![flow.clone()];
    let reply = match codec {
        Codec::V10(_) => MultipartReply::NiciraFlow(flows),
        Codec::V13 => MultipartReply::Flow(flows),
    };
    let message = Message::MultipartReply { more: false, reply };
    let bytes = codec.encode(Xid::NONE, &message).unwrap();
    match codec.decode(&bytes).unwrap().1 {
        Message::MultipartReply {
            reply: MultipartReply::Flow(flows) | MultipartReply::NiciraFlow(flows),
            ..
        } => flows.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Returns the statistics of the rule of a flow-mod.
fn statistics(flow_mod: &FlowMod) -> FlowStatistics {
    let TableSelector::One(table) = flow_mod.table else { panic!("a rule has one table") };
    FlowStatistics {
        table,
        duration: Duration::from_secs(3),
        priority: flow_mod.priority,
        idle_timeout: flow_mod.idle_timeout,
        hard_timeout: flow_mod.hard_timeout,
        flags: Default::default(),
        cookie: flow_mod.cookie,
        packets: 5,
        bytes: 7,
        matching: flow_mod.matching.clone(),
        instructions: Arc::new(flow_mod.instructions.clone()),
    }
}

/// Settings of a controller that uses NXM and table ids in flow-mods.
const NXM: V10Settings = V10Settings { flow_format: FlowFormat::Nxm, has_table_ids: true };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_openflow_10_message_decodes_to_itself(
        message in any_message(),
        settings in prop::sample::select(&ALL_SETTINGS[..]),
    ) {
        as_v10(&message, settings);
    }

    #[test]
    fn nicira_group_mods_decode_to_themselves(group_mod in any_nicira_group_mod()) {
        let message = Message::GroupMod(group_mod);
        prop_assert_eq!(as_v10(&message, V10Settings::INITIAL), Some(message));
    }

    #[test]
    fn nicira_flow_mods_keep_all_but_instructions(flow_mod in any_flow_mod()) {
        // A modify command with a cookie mask has no new cookie.
        let message = Message::FlowMod(flow_mod.clone());
        let Some(Message::FlowMod(again)) = as_v10(&message, NXM) else { panic!("a flow-mod") };
        let flags = shunt_pipeline::FlowFlags {
            send_flow_removed: flow_mod.flags.send_flow_removed,
            check_overlap: flow_mod.flags.check_overlap,
            reset_counts: flow_mod.command == FlowModCommand::Add,
            ..Default::default()
        };
        let expected = FlowMod {
            flags,
            cookie: again.cookie,
            out_port: again.out_port,
            out_group: again.out_group,
            instructions: again.instructions.clone(),
            ..flow_mod.clone()
        };
        prop_assert_eq!(&again, &expected);
        let mask = again.cookie_mask;
        prop_assert_eq!(again.cookie.number() & mask, flow_mod.cookie.number() & mask);
    }

    #[test]
    fn rules_convert_between_openflow_versions_without_loss(flow_mod in any_flow_mod()) {
        let table = TableSelector::One(TableId::FIRST);
        let added = FlowMod {
            command: FlowModCommand::Add,
            table,
            cookie_mask: 0,
            out_port: PortNo::ANY,
            ..flow_mod
        };
        let Some(Message::FlowMod(added)) = as_v10(&Message::FlowMod(added), NXM) else {
            panic!("a flow-mod")
        };
        let flow = statistics(&added);
        let in_13 = through_codec(&flow, Codec::V13);
        prop_assert_eq!(&in_13.matching, &flow.matching);
        prop_assert_eq!(&through_codec(&in_13, Codec::V10(NXM)), &flow);
    }

    #[test]
    fn damaged_message_is_refused_or_has_form(
        message in any_message(),
        settings in prop::sample::select(&ALL_SETTINGS[..]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let Ok(mut bytes) = encode(Xid::new(7), &message, settings) else { return Ok(()) };
        for (index, byte) in damage {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        fuzz_openflow(&bytes);
    }

    #[test]
    fn any_standard_match_decodes_to_itself(bytes in any::<[u8; 40]>(), ethertype in 0..6_usize) {
        let mut bytes = bytes;
        let ethertype = [0x0800_u16, 0x0806, 0x8035, 0x86dd, 0x8847, 0x05ff][ethertype];
        bytes[22..24].copy_from_slice(&ethertype.to_be_bytes());
        bytes[3] &= 0xef;
        // A port of a bridge.
        bytes[4] &= 0x7f;
        let read = ofp_match::read(&mut ByteReader::new(&bytes)).unwrap();
        let mut out = Vec::new();
        ofp_match::put(&mut out, &read.matching);
        let again = ofp_match::read(&mut ByteReader::new(&out)).unwrap();
        prop_assert_eq!(&again.matching, &read.matching);
        // The match is legal: its text and its entries mean the same.
        let text = format_match(&read.matching, &NoPortNames);
        prop_assert_eq!(&parse_match(&text, &NoPortNames).unwrap(), &read.matching, "{}", text);
        let mut entries = Vec::new();
        shunt_flow::oxm::encode_nxm_match(&read.matching, &mut entries);
        prop_assert_eq!(&shunt_flow::oxm::decode_match(&entries).unwrap(), &read.matching);
    }
}

/// Sessions of `ovs-ofctl` 3.1 with this switch, in OpenFlow 1.0.
const RECORDED: &str = include_str!("../../../tests/data/recorded10.txt");

#[test]
fn ovs_ofctl_sessions_round_trip_exactly() {
    let mut settings = V10Settings::INITIAL;
    let (mut count, mut forms) = (0, 0);
    for line in RECORDED.lines() {
        if line.starts_with("# session") {
            settings = V10Settings::INITIAL;
        }
        if line.starts_with('#') {
            continue;
        }
        let bytes = unhex(&line[2..]);
        let (xid, message) = decode(&bytes, settings).unwrap();
        match &message {
            Message::SetFlowFormat(format) => settings.flow_format = *format,
            Message::FlowModTableId(is_on) => settings.has_table_ids = *is_on,
            _ => {}
        }
        // `ovs-ofctl` sends each flow-mod in the first form that has its match.
        let in_forms = ALL_SETTINGS.map(|form| {
            let form = V10Settings { has_table_ids: settings.has_table_ids, ..form };
            encode(xid, &message, form)
        });
        assert!(in_forms.contains(&Ok(bytes)), "{line}\n{message:?}");
        count += 1;
        forms += usize::from(matches!(message, Message::FlowMod(_)));
    }
    assert!(count > 60 && forms > 15, "{count} {forms}");
}

/// Sessions of `ovs-ofctl` with `ovs-vswitchd` about groups, in OpenFlow 1.0.
///
/// Both programs are of version 3.1.
const RECORDED_GROUPS: &str = include_str!("../../../tests/data/recorded10-groups.txt");

/// Parses hexadecimal digits.
fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn messages_about_groups_round_trip_byte_for_byte() {
    let lines = RECORDED_GROUPS.lines().filter(|line| !line.starts_with('#'));
    let count = lines.clone().count();
    assert!(count > 30, "{count}");
    for line in lines {
        let bytes = unhex(&line[2..]);
        let (xid, message) = decode(&bytes, V10Settings::INITIAL).unwrap();
        let again = encode(xid, &message, V10Settings::INITIAL);
        assert_eq!(again, Ok(bytes), "{line}\n{message:?}");
    }
}

/// Returns the part of a reply that two switches have in common.
///
/// This part does not depend on time, order, or limits of the switch.
fn comparable(frame: &[u8]) -> Result<MultipartReply, Vec<u8>> {
    let (_, message) = decode(frame, V10Settings::INITIAL).unwrap();
    let Message::MultipartReply { more: false, mut reply } = message else {
        return Err(frame.to_vec());
    };
    match &mut reply {
        MultipartReply::GroupDescription(groups) => groups.sort_by_key(|group| group.group),
        MultipartReply::Group(groups) => {
            groups.sort_by_key(|group| group.group);
            groups.iter_mut().for_each(|group| group.duration = Duration::ZERO);
        }
        MultipartReply::GroupFeatures(features) => features.groups_max = [0; 4],
        other => panic!("{other:?}"),
    }
    Ok(reply)
}

#[test]
fn groups_change_as_in_ovs_vswitchd() {
    let codec = Codec::V10(V10Settings::INITIAL);
    let mut harness = ConnectionHarness::open_with(ConnectionKind::Controller, codec);
    let mut replies = VecDeque::new();
    for line in RECORDED_GROUPS.lines().filter(|line| !line.starts_with('#')) {
        let bytes = unhex(&line[2..]);
        if line.starts_with('>') {
            assert_eq!(replies.pop_front(), None, "before {line}");
            harness.send_bytes(&bytes);
            replies.extend(harness.reply_frames());
        } else {
            let reply = replies.pop_front().unwrap_or_else(|| panic!("no reply like {line}"));
            assert_eq!(comparable(&reply), comparable(&bytes));
        }
    }
    assert_eq!(replies.pop_front(), None);
}

/// Requests for group 50, which `ovs-vswitchd` 3.1 refuses with these errors.
///
/// The parts are command, type, `command_bucket_id`, buckets, and properties of the group.
#[test]
fn group_mod_errors_equal_ovs_vswitchd() {
    /// A bucket without actions.
    const BUCKET: &str = "00100008000000010000000800010000";
    /// The id of no particular bucket, or of all buckets.
    const ALL: u32 = u32::MAX;
    let selection = |method: &str, rest: &str| {
        let body = format!("0000154d0000000100000000{method:0<32}0000000000000000{rest}");
        let length = 4 + body.len() / 2;
        format!("ffff{length:04x}{body}{}", "0".repeat(2 * (length.next_multiple_of(8) - length)))
    };
    let check = |(command, kind, selector): (u16, u8, u32), buckets: &str, rest: &str, code| {
        let count = buckets.len() / 2;
        let body = format!("{command:04x}{kind:02x}0000000032{count:04x}0000{selector:08x}");
        let body = format!("000023200000001f{body}{buckets}{rest}");
        let length = 8 + body.len() / 2;
        let message = unhex(&format!("0104{length:04x}00000006{body}"));
        let decoded = decode(&message, V10Settings::INITIAL);
        assert_eq!(decoded.map(|(_, message)| message), Err(code), "{body}");
    };
    let hash = |rest: &str| selection("68617368", rest);
    let twice = BUCKET.repeat(2);
    check((0, 0, 5), BUCKET, "", ErrorCode::GroupBucket);
    check((9, 0, ALL), BUCKET, "", ErrorCode::GroupCommand);
    check((0, 9, ALL), BUCKET, "", ErrorCode::GroupType);
    check((3, 0, ALL), BUCKET, "", ErrorCode::GroupBucket);
    check((3, 0, 0xffff_ff05), "", "", ErrorCode::GroupBucket);
    check((5, 2, ALL), "", "", ErrorCode::GroupInvalid);
    check((5, 0, ALL), BUCKET, "", ErrorCode::GroupBucket);
    check((0, 0, ALL), &twice, "", ErrorCode::GroupBucket);
    check((0, 0, ALL), "00100008ffffff010000000800010000", "", ErrorCode::GroupBucket);
    check((0, 0, ALL), "00200008000000010000000800010000", "", ErrorCode::GroupBucket);
    check((0, 0, ALL), "00100018000000010000000800010000", "", ErrorCode::GroupBucket);
    check((0, 0, ALL), "00100004000000010000000800010000", "", ErrorCode::BadLength);
    let with = |property: &str| format!("00180008000000010000000800010000{property}");
    check((0, 0, ALL), &with("0009000800000000"), "", ErrorCode::PropertyType);
    check((0, 1, ALL), &with("0000000400000000"), "", ErrorCode::PropertyLength);
    check((0, 3, ALL), &with("000100080000ff10"), "", ErrorCode::GroupWatchPort);
    check((0, 1, ALL), "", "0009000800000000", ErrorCode::PropertyType);
    check((0, 1, ALL), "", "ffff0010000023200000000100000000", ErrorCode::PropertyExperimenter);
    check((0, 0, ALL), "", &hash("00000e04ffffffff"), ErrorCode::PropertyValue);
    check((2, 1, ALL), "", &hash("00000e04ffffffff"), ErrorCode::PropertyValue);
    check((0, 1, ALL), "", &hash("7f007e04ffffffff"), ErrorCode::MatchField);
    check((0, 1, ALL), "", &hash("00000f08ffffffffffffffff"), ErrorCode::MatchMask);
    let same = hash("00000e04ffffffff00000e04ffffffff");
    check((0, 1, ALL), "", &same, ErrorCode::MatchDuplicate);
    let dp_hash = selection("64705f68617368", "00000e04ffffffff");
    check((0, 1, ALL), "", &dp_hash, ErrorCode::PropertyValue);
    check((0, 1, ALL), "", &selection("68617378", ""), ErrorCode::PropertyValue);
}

/// `ovs-ofctl` 3.1 sends these bytes for `group:1`.
#[test]
fn a_group_is_an_action_of_nicira() {
    let bytes: [u8; 16] = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 40, 0, 0, 0, 0, 0, 1];
    let actions = read_actions(&bytes, ActionFormat::V10).unwrap();
    assert_eq!(actions, [Action::Group(GroupId::new(1))]);
    let mut out = Vec::new();
    put_actions(&mut out, &actions, ActionFormat::V10);
    assert_eq!(out, bytes);
    // `OFPG_ALL` is not one group.
    let all = [&bytes[..12], &[0xff, 0xff, 0xff, 0xfc]].concat();
    assert_eq!(read_actions(&all, ActionFormat::V10), Err(ErrorCode::ActionOutGroup));
}

/// The three actions that `enqueue` means are no `enqueue` themselves.
#[test]
fn only_an_enqueue_is_listed_as_one() {
    let enqueue: [u8; 16] = [0, 11, 0, 16, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let set_queue: [u8; 16] = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 4, 0, 0, 0, 0, 0, 5];
    let output: [u8; 8] = [0, 0, 0, 8, 0, 2, 0, 0];
    let pop_queue: [u8; 16] = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 5, 0, 0, 0, 0, 0, 0];
    let three = [&set_queue[..], &output, &pop_queue].concat();
    for bytes in [enqueue.to_vec(), three] {
        let actions = read_actions(&bytes, ActionFormat::V10).unwrap();
        assert_eq!(actions.len(), 3);
        let mut out = Vec::new();
        put_actions(&mut out, &actions, ActionFormat::V10);
        assert_eq!(out, bytes);
    }
}

/// Returns actions that went through the bytes of OpenFlow 1.0.
fn listed_actions(actions: &[Action]) -> Vec<Action> {
    let mut out = Vec::new();
    put_actions(&mut out, actions, ActionFormat::V10);
    read_actions(&out, ActionFormat::V10).unwrap()
}

/// The bytes with which `ovs-vswitchd` 3.1 lists actions of OpenFlow 1.3 over 1.0.
#[test]
fn field_writes_are_listed_like_open_vswitch() {
    let parse = |text: &str| parse_actions(text, &NoPortNames).unwrap().apply;
    for (added, listed) in [
        ("set_field:02:00:00:00:00:01->eth_dst", "mod_dl_dst:02:00:00:00:00:01"),
        ("set_field:10.0.0.1->ip_src", "mod_nw_src:10.0.0.1"),
        ("set_field:10.0.0.0/8->ip_dst", "load:0xa->NXM_OF_IP_DST[24..31]"),
        ("set_field:59->ip_dscp", "mod_nw_tos:236"),
        ("set_field:2->nw_ecn", "load:0x2->NXM_NX_IP_ECN[]"),
        ("set_field:64->nw_ttl", "load:0x40->NXM_NX_IP_TTL[]"),
        ("mod_nw_ttl:3", "load:0x3->NXM_NX_IP_TTL[]"),
        ("set_field:0x50/0xff->tcp_dst", "load:0x50->NXM_OF_TCP_DST[0..7]"),
        ("set_field:8->icmp_type", "load:0x8->NXM_OF_ICMP_TYPE[]"),
        ("set_field:5->ipv6_label", "load:0x5->NXM_NX_IPV6_LABEL[]"),
        ("set_field:1->arp_op", "load:0x1->NXM_OF_ARP_OP[]"),
        ("set_field:10.0.0.1->arp_spa", "load:0xa000001->NXM_OF_ARP_SPA[]"),
        ("set_field:02:00:00:00:00:01->arp_sha", "load:0x20000000001->NXM_NX_ARP_SHA[]"),
        ("set_field:5/0xff->tun_id", "load:0x5->NXM_NX_TUN_ID[0..7]"),
        ("set_field:5->metadata", "load:0x5->OXM_OF_METADATA[]"),
        ("set_field:5->reg0", "load:0x5->NXM_NX_REG0[]"),
        ("set_field:0x50/0xf0->reg1", "load:0x5->NXM_NX_REG1[4..7]"),
        ("set_field:5/0xf0f->reg1", "load:0x5->NXM_NX_REG1[0..3],load:0->NXM_NX_REG1[8..11]"),
        ("set_field:5->pkt_mark", "load:0x5->NXM_NX_PKT_MARK[]"),
        ("set_field:5->mpls_ttl", "load:0x5->NXM_NX_MPLS_TTL[]"),
        (
            "set_field:2001:db8::1->ipv6_dst",
            "load:0x1->NXM_NX_IPV6_DST[0..63],load:0x20010db800000000->NXM_NX_IPV6_DST[64..127]",
        ),
        (
            "set_field:::1:0:0:0/::f:ffff:ffff:ffff:ffff->ipv6_dst",
            "load:0x1000000000000->NXM_NX_IPV6_DST[0..63],load:0->NXM_NX_IPV6_DST[64..67]",
        ),
    ] {
        assert_eq!(listed_actions(&parse(added)), *parse(listed), "{added}");
    }
    let whole = |field: FieldId, value| Action::SetField { field, value, mask: field.value_max() };
    let tag = whole(FieldId::VlanTci, 0x7005);
    let both = [whole(FieldId::DlVlan, 5), whole(FieldId::DlVlanPcp, 3)];
    assert_eq!(listed_actions(&[tag]), both);
    assert_eq!(listed_actions(&[whole(FieldId::VlanTci, 5)]), [Action::PopVlan]);
    let target = Subfield::new(FieldId::InPort, 0, 16).unwrap();
    let local = whole(FieldId::InPort, PortNo::LOCAL.number().into());
    assert_eq!(listed_actions(&[local]), [Action::Load { target, value: 0xfffe }]);
}

/// `ovs-ofctl` 3.1 sends these bytes for `write_metadata:3`.
///
/// `ovs-ofctl` reads no action after these bytes.
#[test]
fn written_metadata_is_listed_as_it_was_added() {
    let mut bytes = vec![0xff, 0xff, 0, 32, 0, 0, 0x23, 0x20, 0, 22, 0, 0, 0, 0, 0, 0];
    bytes.extend([3, u64::MAX].map(u64::to_be_bytes).concat());
    let (actions, metadata) = read_applied(&bytes, ActionFormat::V10).unwrap();
    assert_eq!((actions, metadata), (vec![], Some((3, u64::MAX))));
    let put = |goto| {
        let mut out = Vec::new();
        put_instructions(&mut out, &Instructions { metadata, goto, ..Instructions::default() });
        out
    };
    assert_eq!(put(None), bytes);
    let (actions, metadata) = read_applied(&put(TableId::new(4)), ActionFormat::V10).unwrap();
    assert_eq!((actions.len(), metadata), (2, None), "a write to the field, and a resubmit");
}

/// Returns the text of a match that is read from an `ofp_match`.
fn text_of(wildcards: u32, change: impl Fn(&mut [u8])) -> String {
    let mut bytes = vec![0; 40];
    bytes[..4].copy_from_slice(&wildcards.to_be_bytes());
    change(&mut bytes);
    let read = ofp_match::read(&mut ByteReader::new(&bytes)).unwrap();
    format_match(&read.matching, &NoPortNames)
}

#[test]
fn fields_share_their_place_in_a_match() {
    let all = ofp_match::WILDCARDS_ALL;
    assert_eq!(text_of(all, |_| {}), "");
    assert_eq!(
        text_of(all & !1, |bytes| bytes[4..6].copy_from_slice(&[0xff, 0xfe])),
        "in_port=LOCAL"
    );
    // `dl_type`, `nw_proto`, `tp_src` and `tp_dst`.
    let asked = all & !(1 << 4 | 1 << 5 | 1 << 6 | 1 << 7);
    let fields = |ethertype: u16, protocol: u8| {
        text_of(asked, move |bytes: &mut [u8]| {
            bytes[22..24].copy_from_slice(&ethertype.to_be_bytes());
            bytes[25] = protocol;
            bytes[36..40].copy_from_slice(&[0, 8, 0, 0]);
        })
    };
    assert_eq!(fields(0x0800, 6), "tcp,tp_src=8,tp_dst=0");
    assert_eq!(fields(0x0800, 1), "icmp,icmp_type=8,icmp_code=0");
    assert_eq!(fields(0x86dd, 58), "icmp6,icmp_type=8,icmp_code=0");
    assert_eq!(fields(0x0806, 2), "arp,arp_op=2");
    assert_eq!(fields(0x0800, 47), "ip,nw_proto=47");
    assert_eq!(fields(0x88cc, 6), "dl_type=0x88cc");
    // A prefix of the address, with the number of wildcarded bits.
    let source = all & !(1 << 4) & !(0x3f << 8) | 8 << 8;
    let prefix = text_of(source, |bytes| {
        bytes[22..24].copy_from_slice(&[8, 0]);
        bytes[28..32].copy_from_slice(&[10, 1, 2, 3]);
    });
    assert_eq!(prefix, "ip,nw_src=10.1.2.0/24");
    // No tag; a tag of any id with a priority.
    let untagged = text_of(all & !2, |bytes| bytes[18..20].fill(0xff));
    assert_eq!(untagged, "vlan_tci=0x0000/0x1fff");
    assert_eq!(text_of(all & !(1 << 20), |bytes| bytes[20] = 5), "dl_vlan_pcp=5");
}
