//! Captures the log lines of a test, and tests the log lines of refused requests.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use shunt_flow::{
    Match,
    text::{NoPortNames, parse_match},
};
use shunt_pipeline::{
    Action, BucketPlace, BucketSelector, CtAction, CtZone, FlowMod, GroupCommand, GroupId,
    GroupKind, GroupMod, Instructions, MeterCommand, MeterId, MeterMod, PacketTotals, PortConfig,
    Selection, TableId, TableSelector, Time,
};

use super::add;
use crate::{
    connection::ConnectionKind,
    message::{GroupStatistics, Message, MultipartReply, Xid},
    testing::ConnectionHarness,
    wire::{Codec, v10::V10Settings, v13},
};

/// A log subscriber that stores the lines of a level.
struct LogCapture {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

/// The text of a line: its message, then its fields.
#[derive(Default)]
struct LineText {
    message: String,
    fields: String,
}

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = LineText::default();
        event.record(&mut line);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.message + &line.fields);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Runs `action` and returns the warnings and errors that it logged.
pub(super) fn logs_of(action: impl FnOnce()) -> Vec<String> {
    logged_at(Level::WARN, action)
}

/// Runs `action` and returns the lines that it logged at `level` and above.
pub(crate) fn logged_at(level: Level, action: impl FnOnce()) -> Vec<String> {
    let capture = LogCapture { level, lines: Arc::default() };
    let lines = Arc::clone(&capture.lines);
    tracing::subscriber::with_default(capture, action);
    let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    lines.clone()
}

/// Returns the addition of a rule.
fn rule(matching: &str, actions: Vec<Action>) -> FlowMod {
    let matching: Match = parse_match(matching, &NoPortNames).unwrap();
    let instructions = Instructions { apply: actions.into(), ..Instructions::default() };
    FlowMod {
        matching,
        instructions,
        table: TableSelector::One(TableId::new(1).unwrap()),
        ..add(5)
    }
}

/// Returns the only line that is logged for a request, without the peer.
fn line(frame: &[u8]) -> String {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let lines = logs_of(|| {
        harness.send_bytes(frame);
        harness.run();
    });
    let [line] = &lines[..] else { panic!("one line of {lines:?}") };
    line.strip_prefix("test: refused ").expect("a refusal").to_owned()
}

/// Checks the log line of a message.
#[track_caller]
fn check(message: &Message, expected: &str) {
    assert_eq!(line(&v13::encode(Xid::new(1), message).unwrap()), expected);
}

#[test]
fn a_refused_rule_is_logged_with_its_cause() {
    check(
        &Message::FlowMod(rule("ip,nw_dst=10.0.0.1", vec![Action::Group(GroupId::new(7))])),
        "flow_mod add table=1,priority=5,ip,nw_dst=10.0.0.1 actions=group:7: OFPBAC_BAD_OUT_GROUP: \
         there is no group 7: add it before the rules that name it",
    );
    let mut metered = rule("", vec![]);
    metered.instructions.meter = Some(MeterId::new(9));
    check(
        &Message::FlowMod(metered),
        "flow_mod add table=1,priority=5 actions=meter:9: OFPMMFC_INVALID_METER: there is no meter \
         9: add it before the rules that name it",
    );
    check(
        &Message::FlowMod(rule("", vec![Action::SetTpDst(80)])),
        "flow_mod add table=1,priority=5 actions=mod_tp_dst:80: OFPBAC_MATCH_INCONSISTENT: an \
         action needs a field that the match does not require: extend the match; the action is \
         mod_tp_dst:80",
    );
}

#[test]
fn a_refused_table_is_logged_with_the_limit() {
    let mut frame = v13::encode(Xid::new(1), &Message::FlowMod(rule("", vec![]))).unwrap();
    frame[24] = 254;
    assert_eq!(
        line(&frame),
        "flow_mod add table=254,priority=5: OFPBRC_EPERM: table 254 is reserved for the switch: \
         use tables 0 to 253"
    );
}

/// Returns a group with an action that the switch does not support.
fn group_with_ct() -> GroupMod {
    let ct = CtAction {
        commit: true,
        force: false,
        zone: CtZone::Number(0),
        table: None,
        alg: 0,
        actions: Box::default(),
    };
    let bucket = shunt_pipeline::Bucket {
        id: 0,
        weight: 0,
        watch_port: shunt_flow::PortNo::ANY,
        watch_group: None,
        actions: Box::new([Action::Ct(Box::new(ct))]),
    };
    GroupMod {
        command: GroupCommand::Add,
        group: Some(GroupId::new(3)),
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: Box::new([bucket]),
    }
}

#[test]
fn a_refused_bucket_is_logged_with_its_cause() {
    check(
        &Message::GroupMod(group_with_ct()),
        "group_mod add group_id=3,type=all,buckets=1: OFPBAC_BAD_EXP_TYPE: action ct: connection \
         tracking is not supported: remove the action",
    );
}

/// OpenFlow 1.0 has vendors in place of experimenters.
#[test]
fn a_refusal_has_the_name_of_its_version() {
    let codec = Codec::V10(V10Settings::INITIAL);
    let mut harness = ConnectionHarness::open_with(ConnectionKind::Management, codec);
    let lines = logs_of(|| {
        harness.send(&Message::GroupMod(group_with_ct()));
        harness.run();
    });
    let expected = "test: refused group_mod add group_id=3,type=all,buckets=1: \
                    OFPBAC_BAD_VENDOR_TYPE: action ct: connection tracking is not supported: \
                    remove the action";
    assert_eq!(lines, [expected]);
}

#[test]
fn a_refused_meter_is_logged_with_its_cause() {
    let config = v13::empty_meter_config();
    let meter = MeterMod { command: MeterCommand::Modify, meter: Some(MeterId::new(4)), config };
    check(
        &Message::MeterMod(meter.clone()),
        "meter_mod modify meter=4: OFPMMFC_UNKNOWN_METER: there is no meter 4: add it first",
    );
    let mut frame = v13::encode(Xid::new(1), &Message::MeterMod(meter)).unwrap();
    frame[12..16].fill(0);
    assert_eq!(
        line(&frame),
        "meter_mod command=1 meter=0,flags=0x1: OFPMMFC_INVALID_METER: invalid meter id: ids run \
         from 1 to 4294901760 (0xffff0000)"
    );
}

#[test]
fn a_refused_port_is_logged_with_its_cause() {
    let port_mod = crate::message::PortMod {
        port: shunt_flow::PortNo::new(77),
        mac: [0; 6],
        config: PortConfig::default(),
        mask: PortConfig::default(),
        advertise: 0,
    };
    check(
        &Message::PortMod(port_mod),
        "port_mod port=77: OFPPMFC_BAD_PORT: the port does not exist",
    );
}

/// Sends requests, and returns the lines at `level` and above.
fn lines_of(level: Level, requests: &[Message]) -> Vec<String> {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    logged_at(level, || {
        for request in requests {
            harness.send_bytes(&v13::encode(Xid::new(1), request).unwrap());
            harness.run();
        }
    })
}

/// Warnings are limited, and an operator who debugs a rule set needs every refusal.
#[test]
fn every_refusal_is_logged_at_debug() {
    let request = Message::FlowMod(rule("", vec![Action::Group(GroupId::new(7))]));
    let requests: Vec<Message> = std::iter::repeat_n(request, 8).collect();
    let refusals = |level| {
        let lines = lines_of(level, &requests);
        lines.iter().filter(|line| line.contains("refused flow_mod add table=1,priority=5")).count()
    };
    assert_eq!(refusals(Level::WARN), 5);
    assert_eq!(refusals(Level::DEBUG), 8);
}

#[test]
fn every_change_is_logged_with_its_peer() {
    let group = GroupMod {
        command: GroupCommand::Add,
        group: Some(GroupId::new(3)),
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: Box::default(),
    };
    let config = v13::empty_meter_config();
    let meter = MeterMod { command: MeterCommand::Add, meter: Some(MeterId::new(4)), config };
    let changes = [
        Message::FlowMod(rule("ip,nw_dst=10.0.0.1", vec![])),
        Message::GroupMod(group),
        Message::MeterMod(meter),
        Message::BarrierRequest,
        // The switch refuses this rule, because group 7 does not exist.
        Message::FlowMod(rule("", vec![Action::Group(GroupId::new(7))])),
    ];
    let lines = lines_of(Level::DEBUG, &changes);
    let [rule, group, meter, refused] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        rule,
        "bridge br0: flow_mod add table=1,priority=5,ip,nw_dst=10.0.0.1 actions=drop peer=\"test\""
    );
    assert_eq!(group, "bridge br0: group_mod add group_id=3,type=all,buckets=0 peer=\"test\"");
    assert!(meter.starts_with("bridge br0: meter_mod add meter=4"), "{meter}");
    assert!(refused.starts_with("test: refused flow_mod"), "{refused}");
    assert_eq!(lines_of(Level::INFO, &changes[..4]), [""; 0], "many rules are not news");
}

/// All of these are vendor messages of OpenFlow 1.0.
#[test]
fn vendor_messages_are_logged_as_changes() {
    let group = |command| {
        Message::GroupMod(GroupMod {
            command,
            group: Some(GroupId::new(3)),
            kind: GroupKind::All,
            selection: Selection::Default,
            buckets: Box::default(),
        })
    };
    let changes = [
        group(GroupCommand::Add),
        group(GroupCommand::InsertBuckets(BucketPlace::Last)),
        group(GroupCommand::RemoveBuckets(BucketSelector::All)),
        group(GroupCommand::Delete),
    ];
    let codec = Codec::V10(V10Settings::INITIAL);
    let mut harness = ConnectionHarness::open_with(ConnectionKind::Management, codec);
    let lines = logged_at(Level::DEBUG, || {
        for change in &changes {
            harness.send(change);
            harness.run();
        }
    });
    let expected = ["add group_id=3,type=all,buckets=0", "insert_buckets group_id=3,buckets=0"]
        .into_iter()
        .chain(["remove_buckets group_id=3", "delete group_id=3"])
        .map(|text| format!("bridge br0: group_mod {text} peer=\"test\""));
    assert_eq!(lines, expected.collect::<Vec<_>>());
}

#[test]
fn a_bundle_logs_its_changes_at_the_commit() {
    use crate::message::{BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId};
    let (bundle, xid) = (BundleId(1), Xid::new(1));
    let flags = BundleFlags { atomic: true, ordered: true };
    let control = |command| Message::BundleControl(BundleControl { bundle, command, flags });
    let message = Box::new(Message::FlowMod(rule("", vec![])));
    let add = Message::BundleAdd(BundleAdd { bundle, flags, xid, message });
    let begun = [control(BundleCommand::Open), add.clone()];
    assert_eq!(lines_of(Level::DEBUG, &begun), [""; 0], "nothing has changed yet");
    let whole = [control(BundleCommand::Open), add, control(BundleCommand::Commit)];
    let lines = lines_of(Level::DEBUG, &whole);
    assert_eq!(lines, ["bridge br0: flow_mod add table=1,priority=5 actions=drop peer=\"test\""]);
}

/// The line names the bridge and the peer, which gets the rest of a reply.
#[test]
fn message_without_bytes_is_logged_with_peer() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let echo = Message::EchoReply(vec![0; 70_000]);
    let lines = logs_of(|| harness.connection.reply(Xid::new(1), &echo, Time::ZERO));
    let error = "a message of 70008 bytes is too long for OpenFlow: the limit is 65535 bytes";
    let lost = "a reply cannot be encoded, and is not sent";
    assert_eq!(lines, [format!("bridge br0: {lost} peer=\"test\" error={error}")]);

    let group = |id, buckets| GroupStatistics {
        group: GroupId::new(id),
        references: 0,
        duration: Duration::ZERO,
        total: PacketTotals::default(),
        buckets: vec![PacketTotals::default(); buckets],
    };
    let groups = MultipartReply::Group(vec![group(1, 5000), group(2, 1)]);
    let lines = logs_of(|| harness.connection.send_parts(Xid::new(2), &groups, Time::ZERO));
    let [line] = &lines[..] else { panic!("one line of {lines:?}") };
    let start =
        "bridge br0: an entry is too long for a reply, and is left out peer=\"test\" error=";
    assert!(line.starts_with(start), "{line}");
    let replies = harness.replies();
    let [(_, Message::MultipartReply { reply: MultipartReply::Group(sent), .. })] = &replies[..]
    else {
        panic!("one reply of {replies:?}")
    };
    assert_eq!(sent.iter().map(|own| own.group).collect::<Vec<_>>(), [GroupId::new(2)]);
}
