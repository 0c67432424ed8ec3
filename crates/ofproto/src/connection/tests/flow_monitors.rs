//! Tests of flow monitors.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use shunt_flow::{
    Match, PortNo,
    text::{NoPortNames, parse_match},
};
use shunt_pipeline::{
    Action, BridgeSettings, FlowMod, FlowModCommand, GroupCommand, GroupId, GroupKind, GroupMod,
    Instructions, MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterId, MeterMod,
    MeterUnit, OverflowPolicy, RemovedReason, RuleFilter, Selection, TableId, TableSelector,
};

use super::add;
use crate::{
    ErrorCode, Host,
    connection::{ConnectionConfig, ConnectionKind, ConnectionLimits},
    message::{
        BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId, ErrorMessage,
        FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, FlowUpdate, FlowUpdateEvent, Message,
        MultipartReply, MultipartRequest, Xid,
    },
    testing::ConnectionHarness,
    wire::{Codec, v10::V10Settings, v13},
};

/// The versions that flow monitors support.
pub(super) const CODECS: [Codec; 2] = [Codec::V13, Codec::V10(V10Settings::INITIAL)];

/// The flags of a monitor that reports everything.
pub(super) const ALL: FlowMonitorFlags = FlowMonitorFlags {
    initial: true,
    add: true,
    delete: true,
    modify: true,
    actions: true,
    own: true,
};

/// Returns the request of a flow monitor.
pub(super) fn request(id: u32, flags: FlowMonitorFlags) -> FlowMonitorRequest {
    FlowMonitorRequest {
        id: FlowMonitorId(id),
        flags,
        table: TableSelector::All,
        matching: Match::any(),
        out_port: PortNo::ANY,
    }
}

/// Returns the message with requests of flow monitors.
pub(super) fn message(requests: impl IntoIterator<Item = FlowMonitorRequest>) -> Message {
    let requests = requests.into_iter().collect();
    Message::MultipartRequest(MultipartRequest::FlowMonitor(requests))
}

/// Returns a harness with one monitor, which has listed nothing.
pub(super) fn monitored(codec: Codec, flags: FlowMonitorFlags) -> ConnectionHarness {
    let mut harness = ConnectionHarness::open_with(ConnectionKind::Management, codec);
    harness.send(&message([request(1, flags)]));
    assert_eq!(briefs(&mut harness), ["reply"]);
    harness
}

/// Returns a flow-mod that adds a rule with an output to `port`.
pub(super) fn add_output(priority: u16, port: u32) -> FlowMod {
    let apply = Box::new([Action::Output { port: PortNo::new(port), max_len: 0 }]);
    let instructions = Instructions { apply, ..Instructions::default() };
    FlowMod { instructions, ..add(priority) }
}

fn with_command(command: FlowModCommand, flow_mod: FlowMod) -> FlowMod {
    FlowMod { command, ..flow_mod }
}

/// Returns the deletion of a rule.
fn delete(priority: u16) -> FlowMod {
    with_command(FlowModCommand::DeleteStrict, add(priority))
}

/// Changes rules by another connection of OpenFlow 1.3.
pub(super) fn change(harness: &ConnectionHarness, flow_mods: impl IntoIterator<Item = FlowMod>) {
    let mut other = harness.another(ConnectionKind::Management);
    for flow_mod in flow_mods {
        let replies = other.request(&Message::FlowMod(flow_mod));
        assert!(replies.is_empty(), "{replies:?}");
    }
}

/// Returns all messages that the peer receives until the connection has no more.
fn read_all(harness: &mut ConnectionHarness) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        let replies = harness.replies();
        if replies.is_empty() {
            return all;
        }
        all.extend(replies.into_iter().map(|(_, message)| message));
    }
}

/// Returns short texts of all received messages and of their updates.
pub(super) fn briefs(harness: &mut ConnectionHarness) -> Vec<String> {
    let mut texts = Vec::new();
    for message in read_all(harness) {
        match message {
            Message::MultipartReply { reply: MultipartReply::FlowMonitor(updates), .. } => {
                texts.push("reply".to_owned());
                texts.extend(updates.iter().map(summarize));
            }
            Message::FlowMonitorPaused => texts.push("paused".to_owned()),
            Message::FlowMonitorResumed => texts.push("resumed".to_owned()),
            Message::BarrierReply => texts.push("barrier".to_owned()),
            other => texts.push(format!("{other:?}")),
        }
    }
    texts
}

/// Returns the important parts of an update.
fn summarize(update: &FlowUpdate) -> String {
    match update {
        FlowUpdate::Abbreviated(xid) => format!("own {}", xid.number()),
        FlowUpdate::Full(full) => {
            let priority = full.priority;
            match full.event {
                FlowUpdateEvent::Added => format!("added {priority}"),
                FlowUpdateEvent::Deleted(reason) => format!("deleted {priority} {reason:?}"),
                FlowUpdateEvent::Modified => format!("modified {priority}"),
            }
        }
    }
}

#[test]
fn the_reply_lists_the_rules_that_exist() {
    for codec in CODECS {
        let mut harness = ConnectionHarness::open_with(ConnectionKind::Management, codec);
        change(&harness, [add_output(1, 1), add_output(2, 2), add(3)]);
        let quiet = FlowMonitorFlags { initial: false, ..ALL };
        let without_actions = FlowMonitorFlags { actions: false, ..ALL };
        let narrow = FlowMonitorRequest { out_port: PortNo::new(2), ..request(2, ALL) };
        let xid = harness.send(&message([request(1, without_actions), narrow]));
        let replies = harness.replies();
        let [(reply_xid, Message::MultipartReply { more: false, reply })] = &replies[..] else {
            panic!("{replies:?}")
        };
        let MultipartReply::FlowMonitor(updates) = reply else { panic!("{reply:?}") };
        assert_eq!(*reply_xid, xid);
        let texts: Vec<_> = updates.iter().map(summarize).collect();
        assert_eq!(texts, ["added 1", "added 2", "added 3"], "each rule is listed once");
        let actions = updates.iter().map(|update| match update {
            FlowUpdate::Full(full) => full.instructions.apply.len(),
            FlowUpdate::Abbreviated(_) => panic!("not a rule"),
        });
        assert_eq!(actions.collect::<Vec<_>>(), [0, 1, 0], "the second monitor wants actions");
        harness.send(&message([request(3, quiet)]));
        assert_eq!(briefs(&mut harness), ["reply"]);
    }
}

#[test]
fn a_long_listing_comes_in_parts() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    change(&harness, (0..100).map(|priority| super::add_long(priority, 1494)));
    harness.send(&message([request(1, ALL)]));
    let mut parts = Vec::new();
    for message in read_all(&mut harness) {
        let Message::MultipartReply { more, reply: MultipartReply::FlowMonitor(updates) } = message
        else {
            panic!("{message:?}")
        };
        parts.push((more, updates.len()));
    }
    assert_eq!(parts.iter().map(|(_, count)| count).sum::<usize>(), 100);
    let (last, others) = parts.split_last().unwrap();
    assert!(others.len() > 1 && !last.0 && others.iter().all(|(more, _)| *more), "{parts:?}");
}

#[test]
fn each_change_of_a_rule_is_reported() {
    for codec in CODECS {
        let mut harness = monitored(codec, ALL);
        change(
            &harness,
            [
                add_output(5, 1),
                with_command(FlowModCommand::Modify, add_output(5, 2)),
                // The rule has these instructions already.
                with_command(FlowModCommand::Modify, add_output(5, 2)),
                add_output(5, 3),
                delete(5),
                // The rule is gone already.
                delete(5),
            ],
        );
        let expected = [
            ["reply", "added 5"],
            ["reply", "modified 5"],
            ["reply", "added 5"],
            ["reply", "deleted 5 Delete"],
        ];
        assert_eq!(briefs(&mut harness), expected.concat());
    }
}

/// Returns the reason of the only removal that the monitor reports.
fn removal(harness: &mut ConnectionHarness) -> RemovedReason {
    let removals = read_all(harness).into_iter().filter_map(|message| match message {
        Message::MultipartReply { reply: MultipartReply::FlowMonitor(updates), .. } => {
            updates.into_iter().find_map(|update| match update {
                FlowUpdate::Full(full) => match full.event {
                    FlowUpdateEvent::Deleted(reason) => Some(reason),
                    _ => None,
                },
                FlowUpdate::Abbreviated(_) => None,
            })
        }
        _ => None,
    });
    let reasons: Vec<_> = removals.collect();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons[0]
}

#[test]
fn a_removal_has_its_reason() {
    for codec in CODECS {
        let mut harness = monitored(codec, ALL);
        let second = Duration::from_secs(1);
        change(&harness, [FlowMod { idle_timeout: second, ..add(1) }]);
        harness.advance_time(2 * second);
        harness.host.expire();
        assert_eq!(removal(&mut harness), RemovedReason::IdleTimeout);
        change(&harness, [FlowMod { hard_timeout: second, ..add(1) }]);
        harness.advance_time(2 * second);
        harness.host.expire();
        assert_eq!(removal(&mut harness), RemovedReason::HardTimeout);
        check_removed_objects(&mut harness);
        harness.host.set_settings(BridgeSettings {
            rules_max: BTreeMap::from([(TableId::FIRST, 1)]),
            overflow: OverflowPolicy::Evict,
            ..BridgeSettings::default()
        });
        change(&harness, [FlowMod { idle_timeout: second, ..add(1) }, add(2)]);
        assert_eq!(removal(&mut harness), RemovedReason::Eviction);
        change(&harness, [delete(2)]);
        assert_eq!(removal(&mut harness), RemovedReason::Delete);
    }
}

/// Removes a rule with its group, and another with its meter.
fn check_removed_objects(harness: &mut ConnectionHarness) {
    let mut other = harness.another(ConnectionKind::Management);
    let group = |command| {
        Message::GroupMod(GroupMod {
            command,
            group: Some(GroupId::new(5)),
            kind: GroupKind::All,
            selection: Selection::Default,
            buckets: Box::default(),
        })
    };
    let apply = Box::new([Action::Group(GroupId::new(5))]);
    let to_group = Instructions { apply, ..Instructions::default() };
    assert!(other.request(&group(GroupCommand::Add)).is_empty());
    change(harness, [FlowMod { instructions: to_group, ..add(1) }]);
    assert!(other.request(&group(GroupCommand::Delete)).is_empty());
    assert_eq!(removal(harness), RemovedReason::GroupDelete);
    let meter = |command| {
        let band = MeterBand { kind: MeterBandKind::Drop, rate: 9, burst_size: 0 };
        let unit = MeterUnit::Packets;
        let config = MeterConfig { unit, burst: false, stats: true, bands: Box::new([band]) };
        Message::MeterMod(MeterMod { command, meter: Some(MeterId::new(7)), config })
    };
    let metered = Instructions { meter: Some(MeterId::new(7)), ..Instructions::default() };
    assert!(other.request(&meter(MeterCommand::Add)).is_empty());
    change(harness, [FlowMod { instructions: metered, ..add(1) }]);
    assert!(other.request(&meter(MeterCommand::Delete)).is_empty());
    assert_eq!(removal(harness), RemovedReason::MeterDelete);
}

#[test]
fn own_changes_are_abbreviated_before_the_barrier() {
    for codec in CODECS {
        let mut harness = monitored(codec, FlowMonitorFlags { own: false, ..ALL });
        let first = harness.send(&Message::FlowMod(add_output(5, 1)));
        harness.send(&Message::FlowMod(delete(9)));
        let second = harness.send(&Message::FlowMod(delete(5)));
        harness.send(&Message::BarrierRequest);
        let own = |xid: Xid| format!("own {}", xid.number());
        let expected =
            ["reply".to_owned(), own(first), "reply".into(), own(second), "barrier".into()];
        assert_eq!(briefs(&mut harness), expected);
        change(&harness, [add(6)]);
        assert_eq!(briefs(&mut harness), ["reply", "added 6"], "the change of another is complete");
    }
}

#[test]
fn own_changes_are_complete_on_request() {
    let mut harness = monitored(Codec::V13, ALL);
    harness.host.hold_versions();
    harness.send(&Message::FlowMod(add(5)));
    harness.send(&Message::BarrierRequest);
    assert_eq!(briefs(&mut harness), ["reply", "added 5"], "no thread delays an update");
    harness.host.adopt();
    assert_eq!(briefs(&mut harness), ["barrier"]);
}

/// The request adds a group, which no flow monitor reports.
#[test]
fn a_request_without_a_changed_rule_abbreviates_nothing() {
    let mut harness = monitored(Codec::V13, FlowMonitorFlags { own: false, ..ALL });
    harness.send(&Message::GroupMod(GroupMod {
        command: GroupCommand::Add,
        group: Some(GroupId::new(5)),
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: Box::default(),
    }));
    assert!(briefs(&mut harness).is_empty());
    change(&harness, [add(6)]);
    assert_eq!(briefs(&mut harness), ["reply", "added 6"], "another peer added the rule");
}

/// Commits a bundle of three flow-mods with the transaction ids 41 to 43.
fn commit_bundle(harness: &mut ConnectionHarness) {
    let flags = BundleFlags { atomic: true, ordered: true };
    let bundle = BundleId(1);
    for (number, flow_mod) in (41..).zip([add(1), add(2), delete(1)]) {
        let xid = Xid::new(number);
        let message = Box::new(Message::FlowMod(flow_mod));
        let message = Message::BundleAdd(BundleAdd { bundle, flags, xid, message });
        harness.send_bytes(&v13::encode(xid, &message).unwrap());
    }
    let command = BundleCommand::Commit;
    harness.send(&Message::BundleControl(BundleControl { bundle, command, flags }));
}

#[test]
fn a_bundle_is_reported_together_in_its_order() {
    let mut harness = monitored(Codec::V13, ALL);
    let mut other = harness.another(ConnectionKind::Management);
    commit_bundle(&mut other);
    assert_eq!(other.replies().len(), 1);
    assert_eq!(briefs(&mut harness), ["reply", "added 1", "added 2", "deleted 1 Delete"]);
    let mut harness = monitored(Codec::V13, FlowMonitorFlags { own: false, ..ALL });
    commit_bundle(&mut harness);
    let texts = briefs(&mut harness);
    assert_eq!(texts[1..], ["reply", "own 41"], "{texts:?}");
}

#[test]
fn filters_select_table_match_and_port() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let matching = |text| parse_match(text, &NoPortNames).unwrap();
    let filtered = FlowMonitorRequest {
        table: TableSelector::One(TableId::FIRST),
        matching: matching("ip"),
        out_port: PortNo::new(1),
        ..request(1, ALL)
    };
    harness.send(&message([filtered]));
    assert_eq!(briefs(&mut harness), ["reply"]);
    let other_table = TableSelector::One(TableId::new(1).unwrap());
    let tcp = |priority, port| FlowMod { matching: matching("tcp"), ..add_output(priority, port) };
    change(
        &harness,
        [
            tcp(1, 1),
            FlowMod { table: other_table, ..tcp(2, 1) },
            add_output(3, 1),
            tcp(4, 2),
            // The old actions, and then the new ones, have the port.
            with_command(FlowModCommand::ModifyStrict, tcp(1, 2)),
            with_command(FlowModCommand::ModifyStrict, tcp(1, 3)),
            tcp(1, 1),
            tcp(1, 2),
            tcp(1, 3),
        ],
    );
    let mut texts = briefs(&mut harness);
    texts.retain(|text| text != "reply");
    assert_eq!(texts, ["added 1", "modified 1", "added 1", "added 1"]);
}

#[test]
fn flags_select_the_kinds_of_changes() {
    let changes = || [add(1), with_command(FlowModCommand::Modify, add_output(1, 1)), delete(1)];
    let none = FlowMonitorFlags { add: false, delete: false, modify: false, ..ALL };
    for (flags, expected) in [
        (FlowMonitorFlags { add: true, ..none }, "added 1"),
        (FlowMonitorFlags { modify: true, ..none }, "modified 1"),
        (FlowMonitorFlags { delete: true, ..none }, "deleted 1 Delete"),
    ] {
        let mut harness = monitored(Codec::V13, flags);
        change(&harness, changes());
        assert_eq!(briefs(&mut harness), ["reply", expected]);
    }
}

/// Returns the error code of the only reply.
fn refusal(harness: &mut ConnectionHarness, message: &Message) -> ErrorCode {
    let replies = harness.request(message);
    let [Message::Error(ErrorMessage { number, .. })] = &replies[..] else { panic!("{replies:?}") };
    let codes = [
        ErrorCode::MonitorExists,
        ErrorCode::MonitorUnknown,
        ErrorCode::MonitorFlags,
        ErrorCode::MonitorTableFull,
    ];
    codes.into_iter().find(|code| harness.codec.error_number(*code) == *number).unwrap()
}

#[test]
fn wrong_requests_are_refused_as_a_whole() {
    for codec in CODECS {
        let mut harness = monitored(codec, ALL);
        let twice = message([request(2, ALL), request(2, ALL)]);
        assert_eq!(refusal(&mut harness, &twice), ErrorCode::MonitorExists);
        let used = message([request(2, ALL), request(1, ALL)]);
        assert_eq!(refusal(&mut harness, &used), ErrorCode::MonitorExists);
        let unknown = Message::FlowMonitorCancel(FlowMonitorId(2));
        assert_eq!(refusal(&mut harness, &unknown), ErrorCode::MonitorUnknown);
        let no_updates = FlowMonitorFlags { add: false, delete: false, modify: false, ..ALL };
        let quiet = message([request(2, no_updates)]);
        assert_eq!(refusal(&mut harness, &quiet), ErrorCode::MonitorFlags);
        let many = message((2..1026).map(|id| request(id, ALL)));
        assert_eq!(refusal(&mut harness, &many), ErrorCode::MonitorTableFull);
        harness.send(&message([request(2, ALL)]));
        assert_eq!(briefs(&mut harness), ["reply"], "no refused monitor was added");
    }
}

#[test]
fn a_cancelled_monitor_reports_nothing() {
    for codec in CODECS {
        let mut harness = monitored(codec, ALL);
        let queue = Arc::downgrade(&harness.connection.monitor_queue().unwrap());
        harness.send(&Message::FlowMonitorCancel(FlowMonitorId(1)));
        assert!(briefs(&mut harness).is_empty());
        change(&harness, [add(1)]);
        assert!(briefs(&mut harness).is_empty());
        assert!(queue.upgrade().is_none(), "no change is recorded any more");
    }
}

/// Returns a harness with monitors that are paused at two waiting changes.
pub(super) fn soon_paused(codec: Codec) -> ConnectionHarness {
    let limits = ConnectionLimits {
        replies_max: 200,
        events_max: 100,
        monitored_changes_max: 2,
        ..ConnectionLimits::default()
    };
    let config = ConnectionConfig::new("x", ConnectionKind::Management);
    let mut harness = ConnectionHarness::with_config(ConnectionConfig { limits, ..config });
    harness.codec = codec;
    harness.send_hello();
    harness
}

#[test]
fn a_slow_reader_is_paused_and_resumed() {
    for codec in CODECS {
        let mut harness = soon_paused(codec);
        harness.send(&message([request(1, ALL)]));
        assert_eq!(briefs(&mut harness), ["reply"]);
        change(&harness, (1..=5).map(add));
        change(&harness, [delete(1), delete(4), add_output(5, 1)]);
        change(&harness, [with_command(FlowModCommand::ModifyStrict, add_output(2, 1))]);
        let expected: [&[&str]; 5] = [
            &["reply", "added 1", "reply", "added 2"],
            &["paused"],
            &["reply", "deleted 1 Delete"],
            &["reply", "modified 2", "added 3", "added 5"],
            &["resumed"],
        ];
        assert_eq!(briefs(&mut harness), expected.concat());
        change(&harness, [delete(5)]);
        assert_eq!(briefs(&mut harness), ["reply", "deleted 5 Delete"], "updates continue");
    }
}

/// The rules that a peer knows, by priority.
#[derive(Debug, Default)]
struct PeerView(BTreeMap<u16, Arc<Instructions>>);

impl PeerView {
    fn apply(&mut self, message: Message) {
        let updates = match message {
            Message::MultipartReply { reply: MultipartReply::FlowMonitor(updates), .. } => updates,
            Message::FlowMonitorPaused | Message::FlowMonitorResumed => return,
            other => panic!("{other:?}"),
        };
        for update in updates {
            let FlowUpdate::Full(full) = update else { panic!("an update is abbreviated") };
            let priority = full.priority.number();
            let is_known = match full.event {
                FlowUpdateEvent::Deleted(_) => self.0.remove(&priority).is_some(),
                FlowUpdateEvent::Modified => self.0.insert(priority, full.instructions).is_some(),
                FlowUpdateEvent::Added => {
                    self.0.insert(priority, full.instructions);
                    true
                }
            };
            assert!(is_known, "{:?} of an unknown rule", full.event);
        }
    }
}

#[test]
fn a_listed_rule_is_removed_during_a_pause() {
    for codec in CODECS {
        let mut harness = soon_paused(codec);
        harness.send(&message([request(1, ALL)]));
        assert_eq!(briefs(&mut harness), ["reply"]);
        change(&harness, (1..=3).map(add));
        harness.run();
        harness.send(&message([request(2, ALL)]));
        harness.run();
        let queue = harness.connection.monitor_queue().unwrap();
        assert!(queue.is_paused());
        change(&harness, [delete(3), add(4), delete(4)]);
        let texts = briefs(&mut harness);
        let removals: Vec<_> = texts.iter().filter(|text| text.starts_with("deleted")).collect();
        assert_eq!(removals, ["deleted 3 Delete"], "no update named rule 4: {texts:?}");
    }
}

/// A step of a random session.
#[derive(Clone, Debug)]
enum Step {
    Change(FlowMod),
    /// The peer requests another monitor, which lists all rules.
    Monitor,
    /// The connection moves changes to its output.
    Process,
    /// The peer reads everything that waits for it.
    Read,
}

fn any_step() -> impl Strategy<Value = Step> {
    let change = (0..5_u16, 1..3_u32, 0..4).prop_map(|(priority, port, kind)| match kind {
        0 => Step::Change(delete(priority)),
        1 => Step::Change(with_command(FlowModCommand::ModifyStrict, add_output(priority, port))),
        _ => Step::Change(add_output(priority, port)),
    });
    let others = [Step::Process, Step::Process, Step::Read, Step::Monitor];
    prop_oneof![8 => change, 4 => prop::sample::select(others.to_vec())]
}

proptest! {
    /// The list and the updates make the table, however slowly the peer reads.
    #[test]
    fn updates_of_slow_reader_make_table(
        before in prop::collection::vec(0..5_u16, 0..4),
        steps in prop::collection::vec(any_step(), 0..60),
        codec in prop::sample::select(&CODECS[..]),
    ) {
        let mut harness = soon_paused(codec);
        change(&harness, before.into_iter().map(add));
        harness.send(&message([request(1, ALL)]));
        let mut view = PeerView::default();
        for (id, step) in (2..).zip(steps) {
            match step {
                Step::Change(flow_mod) => change(&harness, [flow_mod]),
                Step::Monitor => {
                    harness.send(&message([request(id, ALL)]));
                }
                Step::Process => {
                    harness.run();
                }
                Step::Read => read_all(&mut harness).into_iter().for_each(|own| view.apply(own)),
            }
        }
        read_all(&mut harness).into_iter().for_each(|own| view.apply(own));
        let rules = harness.host.rules(&RuleFilter::all());
        let table = rules.iter().map(|rule| (rule.priority.number(), Arc::clone(&rule.instructions)));
        prop_assert_eq!(view.0, table.collect::<BTreeMap<_, _>>());
    }
}
