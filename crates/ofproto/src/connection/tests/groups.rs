//! Tests of groups and meters.

use shunt_flow::PortNo;
use shunt_pipeline::{
    Action, Bucket, BucketPlace, BucketSelector, FlowFlags, FlowMod, GroupCommand, GroupId,
    GroupKind, GroupMod, Instructions, MeterBand, MeterBandKind, MeterCommand, MeterConfig,
    MeterId, MeterMod, MeterUnit, Priority, RemovedReason, RuleFilter, Selection,
};

use super::{add, code};
use crate::{
    ErrorCode, Host,
    connection::{ConnectionKind, ConnectionStep, Wait},
    message::{
        BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId, ErrorMessage,
        GroupDescription, Message, MeterDescription, MultipartReply, MultipartRequest, PacketOut,
        Xid,
    },
    testing::ConnectionHarness,
    wire::{Codec, v10::V10Settings, v13},
};

const GROUP: GroupId = GroupId::new(5);
const METER: MeterId = MeterId::new(7);

/// Returns an output to a port.
fn output(port: u32) -> Action {
    Action::Output { port: PortNo::new(port), max_len: 0 }
}

fn group_mod(command: GroupCommand, ports: impl IntoIterator<Item = u32>) -> GroupMod {
    let bucket = |(id, port)| Bucket {
        id,
        weight: 0,
        watch_port: PortNo::ANY,
        watch_group: None,
        actions: Box::new([output(port)]),
    };
    GroupMod {
        command,
        group: Some(GROUP),
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: (0..).zip(ports).map(bucket).collect(),
    }
}

fn meter_mod(command: MeterCommand, rate: u32) -> MeterMod {
    let band = MeterBand { kind: MeterBandKind::Drop, rate, burst_size: 0 };
    let config = MeterConfig {
        unit: MeterUnit::Packets,
        burst: false,
        stats: true,
        bands: Box::new([band]),
    };
    MeterMod { command, meter: Some(METER), config }
}

/// Returns a rule that sends to the group, with `OFPFF_SEND_FLOW_REM`.
fn to_group() -> FlowMod {
    let apply = Box::new([Action::Group(GROUP)]);
    let instructions = Instructions { apply, ..Instructions::default() };
    let flags = FlowFlags { send_flow_removed: true, ..FlowFlags::default() };
    FlowMod { instructions, flags, ..add(1) }
}

/// Returns a rule that uses the meter, with `OFPFF_SEND_FLOW_REM`.
fn to_meter() -> FlowMod {
    let instructions = Instructions { meter: Some(METER), ..Instructions::default() };
    FlowMod { instructions, ..to_group() }
}

fn multipart_reply(harness: &mut ConnectionHarness, request: MultipartRequest) -> MultipartReply {
    let mut replies = harness.request(&Message::MultipartRequest(request));
    let Some(Message::MultipartReply { more: false, reply }) = replies.pop() else {
        panic!("reply")
    };
    reply
}

/// Sends a message; returns the error of the reply.
fn refusal(harness: &mut ConnectionHarness, message: &Message) -> Option<ErrorCode> {
    let replies = harness.request(message);
    let Some(Message::Error(ErrorMessage { number, .. })) = replies.first() else { return None };
    ErrorCode::ALL.iter().copied().find(|code| harness.codec.error_number(*code) == *number)
}

fn reason_of_removal(harness: &mut ConnectionHarness) -> Option<RemovedReason> {
    harness.deliver_events();
    match harness.replies().pop() {
        Some((_, Message::FlowRemoved(removed))) => Some(removed.reason),
        _ => None,
    }
}

#[test]
fn a_group_description_equals_its_group_mod() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let request = group_mod(GroupCommand::Add, [1, 2]);
    assert!(harness.request(&Message::GroupMod(request.clone())).is_empty());
    harness.request(&Message::FlowMod(to_group()));
    harness.request(&Message::FlowMod(FlowMod { priority: Priority::new(2), ..to_group() }));
    let description = GroupDescription {
        group: GROUP,
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: request.buckets,
    };
    let reply = multipart_reply(&mut harness, MultipartRequest::GroupDescription(None));
    assert_eq!(reply, MultipartReply::GroupDescription(vec![description]));
    for requested in [None, Some(GROUP), Some(GroupId::new(6))] {
        let reply = multipart_reply(&mut harness, MultipartRequest::Group(requested));
        let MultipartReply::Group(groups) = reply else { panic!("counters") };
        let reply: Vec<_> =
            groups.iter().map(|own| (own.group, own.references, own.buckets.len())).collect();
        let expected =
            if requested == Some(GroupId::new(6)) { vec![] } else { vec![(GROUP, 2, 2)] };
        assert_eq!(reply, expected);
    }
}

#[test]
fn a_meter_description_equals_its_meter_mod() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let request = meter_mod(MeterCommand::Add, 10);
    assert!(harness.request(&Message::MeterMod(request.clone())).is_empty());
    harness.request(&Message::FlowMod(to_meter()));
    for requested in [None, Some(METER)] {
        let reply = multipart_reply(&mut harness, MultipartRequest::MeterConfig(requested));
        let config = request.config.clone();
        let description = MeterDescription { meter: METER, config };
        assert_eq!(reply, MultipartReply::MeterConfig(vec![description]));
        let reply = multipart_reply(&mut harness, MultipartRequest::Meter(requested));
        let MultipartReply::Meter(meters) = reply else { panic!("counters") };
        let reply: Vec<_> =
            meters.iter().map(|own| (own.meter, own.flows, own.bands.len())).collect();
        assert_eq!(reply, [(METER, 1, 1)]);
    }
    for request in [MultipartRequest::Meter, MultipartRequest::MeterConfig] {
        let request = Message::MultipartRequest(request(Some(MeterId::new(8))));
        assert_eq!(refusal(&mut harness, &request), Some(ErrorCode::MeterUnknown));
    }
}

#[test]
fn rules_need_and_follow_their_groups_and_meters() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let (to_group, to_meter) = (Message::FlowMod(to_group()), Message::FlowMod(to_meter()));
    assert_eq!(refusal(&mut harness, &to_group), Some(ErrorCode::ActionOutGroup));
    assert_eq!(refusal(&mut harness, &to_meter), Some(ErrorCode::MeterInvalid));
    harness.request(&Message::GroupMod(group_mod(GroupCommand::Add, [1])));
    harness.request(&to_group);
    harness.request(&Message::GroupMod(group_mod(GroupCommand::Delete, [])));
    assert_eq!(reason_of_removal(&mut harness), Some(RemovedReason::GroupDelete));
    harness.request(&Message::MeterMod(meter_mod(MeterCommand::Add, 10)));
    harness.request(&to_meter);
    let delete =
        MeterMod { config: v13::empty_meter_config(), ..meter_mod(MeterCommand::Delete, 1) };
    harness.request(&Message::MeterMod(delete));
    // OpenFlow 1.3 has no number for the removal of a rule with its meter.
    assert_eq!(reason_of_removal(&mut harness), Some(RemovedReason::Delete));
    assert!(harness.host.rules(&RuleFilter::all()).is_empty());
}

#[test]
fn group_and_meter_counters_precede_reply() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    for request in [MultipartRequest::Group(None), MultipartRequest::Meter(None)] {
        harness.send(&Message::MultipartRequest(request));
        let now = harness.host.now();
        let step = harness.connection.process(&*harness.host, now);
        assert_eq!(step, ConnectionStep::Wait(Wait::Counts));
        assert_eq!(harness.replies().len(), 1);
    }
}

#[test]
fn a_group_too_long_for_replies_is_refused() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let empty = |count: usize| {
        let mut request = group_mod(GroupCommand::Add, std::iter::repeat_n(1, count));
        request.buckets.iter_mut().for_each(|bucket| bucket.actions = Box::default());
        Message::GroupMod(request)
    };
    assert_eq!(refusal(&mut harness, &empty(4001)), Some(ErrorCode::GroupBucketsFull));
    assert_eq!(refusal(&mut harness, &empty(4000)), None);
    let reply = multipart_reply(&mut harness, MultipartRequest::Group(None));
    let MultipartReply::Group(groups) = reply else { panic!("counters") };
    assert_eq!(groups[0].buckets.len(), 4000);
}

/// The group fits into a description of OpenFlow 1.3 alone.
#[test]
fn group_must_fit_into_all_replies() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let mut request = group_mod(GroupCommand::Add, std::iter::repeat_n(1, 4000));
    request.kind = GroupKind::FastFailover;
    for bucket in &mut request.buckets {
        bucket.actions = Box::default();
        (bucket.watch_port, bucket.watch_group) = (PortNo::new(1), Some(GroupId::new(6)));
    }
    let refused = refusal(&mut harness, &Message::GroupMod(request));
    assert_eq!(refused, Some(ErrorCode::GroupBucketsFull));
}

/// Returns a request with 1000 buckets of a `select` group.
fn a_thousand(command: GroupCommand, first: u32) -> GroupMod {
    let mut request = group_mod(command, std::iter::repeat_n(1, 1000));
    for bucket in &mut request.buckets {
        (bucket.id, bucket.weight) = (first + bucket.id, 1);
    }
    if command == GroupCommand::Add {
        request.kind = GroupKind::Select;
    }
    request
}

/// Each bucket has 32 bytes in a description of OpenFlow 1.3, so 2046 fit.
#[test]
fn insertion_leaves_group_short_enough_to_list() {
    let insert = GroupCommand::InsertBuckets(BucketPlace::Last);
    let codec = Codec::V10(V10Settings::INITIAL);
    let mut harness = ConnectionHarness::open_with(ConnectionKind::Controller, codec);
    for request in [a_thousand(GroupCommand::Add, 0), a_thousand(insert, 1000)] {
        assert_eq!(refusal(&mut harness, &Message::GroupMod(request)), None);
    }
    let third = Message::GroupMod(a_thousand(insert, 2000));
    assert_eq!(refusal(&mut harness, &third), Some(ErrorCode::GroupBucketsFull));
    assert_eq!(harness.host.groups()[0].buckets.len(), 2000, "nothing has changed");
    let removal = GroupMod { buckets: Box::default(), ..a_thousand(insert, 0) };
    let command = GroupCommand::RemoveBuckets(BucketSelector::All);
    let removal = Message::GroupMod(GroupMod { command, ..removal });
    assert_eq!(refusal(&mut harness, &removal), None);
    assert_eq!(refusal(&mut harness, &third), None);
}

/// A group that the host adds by itself may be too long for a description.
#[test]
fn too_long_group_is_left_out() {
    let codec = Codec::V10(V10Settings::INITIAL);
    let mut harness = ConnectionHarness::open_with(ConnectionKind::Controller, codec);
    let short = GroupMod { group: Some(GroupId::new(6)), ..group_mod(GroupCommand::Add, [1]) };
    assert!(harness.request(&Message::GroupMod(short)).is_empty());
    let insert = GroupCommand::InsertBuckets(BucketPlace::Last);
    let mut long = a_thousand(GroupCommand::Add, 0);
    let rest = [1000, 2000].into_iter().flat_map(|first| a_thousand(insert, first).buckets);
    long.buckets = long.buckets.into_iter().chain(rest).collect();
    let origin = crate::ChangeOrigin::new(None, Xid::NONE);
    harness.host.modify(vec![long.into()], &origin).unwrap();
    assert_eq!(harness.host.groups()[0].buckets.len(), 3000);
    let mut other = harness.another(ConnectionKind::Controller);
    for client in [&mut harness, &mut other] {
        let reply = multipart_reply(client, MultipartRequest::GroupDescription(None));
        let MultipartReply::GroupDescription(groups) = reply else { panic!("{reply:?}") };
        let groups: Vec<_> = groups.iter().map(|own| own.group).collect();
        assert_eq!(groups, [GroupId::new(6)]);
    }
}

/// The flags of the bundles.
const FLAGS: BundleFlags = BundleFlags { atomic: true, ordered: true };

/// Commits a bundle of these messages and returns the errors of the replies.
fn commit(harness: &mut ConnectionHarness, messages: Vec<Message>) -> Vec<Option<ErrorCode>> {
    let xid = Xid::new(9);
    for message in messages {
        let message = Box::new(message);
        let add = BundleAdd { bundle: BundleId(1), flags: FLAGS, xid, message };
        harness.send_bytes(&v13::encode(xid, &Message::BundleAdd(add)).expect("short"));
        assert!(harness.replies().is_empty());
    }
    let command = BundleCommand::Commit;
    let commit = BundleControl { bundle: BundleId(1), command, flags: FLAGS };
    harness.request(&Message::BundleControl(commit)).iter().map(code).collect()
}

#[test]
fn a_bundle_of_rules_and_groups_is_atomic() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let group = || Message::GroupMod(group_mod(GroupCommand::Add, [1]));
    let rule = || Message::FlowMod(to_group());
    let missing = Message::GroupMod(GroupMod {
        group: Some(GroupId::new(99)),
        ..group_mod(GroupCommand::Modify, [1])
    });
    let failed = commit(&mut harness, vec![group(), rule(), missing]);
    assert_eq!(failed, [Some(ErrorCode::GroupUnknown), Some(ErrorCode::BundleMessageFailed)]);
    assert!(harness.host.groups().is_empty() && harness.host.rules(&RuleFilter::all()).is_empty());
    let failed = commit(&mut harness, vec![rule(), group()]);
    assert_eq!(failed, [Some(ErrorCode::ActionOutGroup), Some(ErrorCode::BundleMessageFailed)]);
    assert_eq!(commit(&mut harness, vec![group(), rule()]), [None]);
    assert_eq!((harness.host.groups().len(), harness.host.rules(&RuleFilter::all()).len()), (1, 1));
}

#[test]
fn bundled_packet_may_use_group_of_bundle() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let actions = vec![Action::Group(GROUP)];
    let packet = PacketOut { in_port: PortNo::ANY, actions, data: vec![0; 14] };
    let packet = || Message::PacketOut(packet.clone());
    assert_eq!(refusal(&mut harness, &packet()), Some(ErrorCode::ActionOutGroup));
    let failed = commit(&mut harness, vec![Message::FlowMod(add(1)), packet()]);
    assert_eq!(failed, [Some(ErrorCode::ActionOutGroup), Some(ErrorCode::BundleMessageFailed)]);
    assert!(harness.host.rules(&RuleFilter::all()).is_empty());
    let group = Message::GroupMod(group_mod(GroupCommand::Add, [1]));
    assert_eq!(commit(&mut harness, vec![group, packet()]), [None]);
    assert_eq!(harness.host.take_packets().len(), 1);
}
