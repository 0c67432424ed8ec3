//! Tests of the order of flow monitor messages, and of the work for many monitors.

use shunt_flow::{
    PortNo,
    text::{NoPortNames, parse_match},
};
use shunt_pipeline::{FlowMod, FlowModCommand, TableId, TableSelector};

use super::{
    add,
    flow_monitors::{
        ALL, CODECS, add_output, briefs, change, message, monitored, request, soon_paused,
    },
};
use crate::{
    Host,
    connection::{ConnectionKind, ConnectionStep},
    message::{FlowMonitorFlags, FlowMonitorRequest, Message},
    testing::ConnectionHarness,
    wire::Codec,
};

/// Returns a request for a monitor that selects no rule of [`add`].
///
/// Monitors with the same match would list the rules of this match only. So even and odd numbers
/// have different matches, and a list for both compares all rules.
fn empty_monitor(id: u32) -> FlowMonitorRequest {
    let text = if id.is_multiple_of(2) { "ip" } else { "arp" };
    let matching = parse_match(text, &NoPortNames).unwrap();
    FlowMonitorRequest { matching, ..request(id, ALL) }
}

/// Runs the connection until it is idle; returns how often other tasks could run.
fn interruptions(harness: &mut ConnectionHarness) -> usize {
    let mut count = 0;
    loop {
        let now = harness.host.now();
        match harness.connection.process(&*harness.host, now) {
            ConnectionStep::Busy => count += 1,
            step => {
                assert_eq!(step, ConnectionStep::Idle);
                return count;
            }
        }
    }
}

#[test]
fn monitors_of_a_request_share_one_scan() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let table = TableSelector::One(TableId::new(1).unwrap());
    change(
        &harness,
        [
            add_output(1, 1),
            add_output(2, 2),
            FlowMod { table, ..add(3) },
            FlowMod { table, ..add_output(4, 2) },
        ],
    );
    let out_port = PortNo::new(2);
    let of_table = FlowMonitorRequest { table, ..request(1, ALL) };
    let of_port = FlowMonitorRequest { out_port, ..request(2, ALL) };
    harness.send(&message([of_table, of_port, empty_monitor(3)]));
    assert_eq!(briefs(&mut harness), ["reply", "added 2", "added 3", "added 4"]);
    assert_eq!(harness.host.listings_count(), 1);
    let of_both = |id| FlowMonitorRequest { table, out_port, ..request(id, ALL) };
    harness.send(&message([of_both(4), of_both(5)]));
    assert_eq!(briefs(&mut harness), ["reply", "added 4"]);
    assert_eq!(harness.host.listings_count(), 2);
}

#[test]
fn many_comparisons_let_other_tasks_run() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    change(&harness, (0..200).map(add));
    harness.send(&message((0..1024).map(empty_monitor)));
    assert!(interruptions(&mut harness) >= 3, "during the list");
    assert_eq!(briefs(&mut harness), ["reply"]);
    change(&harness, (200..400).map(add));
    assert!(interruptions(&mut harness) >= 3, "during the updates");
    assert!(briefs(&mut harness).is_empty());
}

#[test]
fn an_interrupted_update_precedes_the_barrier_reply() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let all = request(1023, ALL);
    harness.send(&message((0..1023).map(empty_monitor).chain([all])));
    assert_eq!(briefs(&mut harness), ["reply"]);
    for priority in 0..100 {
        harness.send(&Message::FlowMod(add(priority)));
    }
    harness.send(&Message::BarrierRequest);
    let texts = briefs(&mut harness);
    assert_eq!(texts.iter().filter(|text| text.starts_with("added")).count(), 100);
    assert_eq!(texts.last().unwrap(), "barrier");
}

#[test]
fn an_update_precedes_a_barrier_reply_that_waits() {
    let mut harness = monitored(Codec::V13, ALL);
    harness.host.hold_versions();
    harness.send(&Message::FlowMod(add(5)));
    harness.send(&Message::BarrierRequest);
    assert_eq!(briefs(&mut harness), ["reply", "added 5"]);
    change(&harness, [add(6)]);
    assert_eq!(briefs(&mut harness), ["reply", "added 6"], "the barrier still waits");
    harness.host.adopt();
    assert_eq!(briefs(&mut harness), ["barrier"]);
}

/// The peer did not receive the additions of rules 3 and 4, so the updates have
/// their event.
#[test]
fn a_pause_loses_no_modification_of_new_rules() {
    let modified = FlowMod { command: FlowModCommand::ModifyStrict, ..add_output(4, 1) };
    let none = FlowMonitorFlags { initial: false, add: false, delete: false, modify: false, ..ALL };
    for codec in CODECS {
        for (flags, after) in [
            (FlowMonitorFlags { modify: true, ..none }, &["reply", "added 3", "added 4"][..]),
            (FlowMonitorFlags { delete: true, ..none }, &[][..]),
        ] {
            let mut harness = soon_paused(codec);
            harness.send(&message([request(1, flags)]));
            assert_eq!(briefs(&mut harness), ["reply"]);
            change(&harness, (1..=4).map(add).chain([modified.clone()]));
            assert_eq!(briefs(&mut harness), [&["paused"][..], after, &["resumed"]].concat());
        }
    }
}

/// Rule 3 is added after the pause, and listed before the queue is resumed.
#[test]
fn a_listed_rule_is_not_reported_again() {
    for codec in CODECS {
        let mut harness = soon_paused(codec);
        let table = TableSelector::One(TableId::new(1).unwrap());
        harness.send(&message([FlowMonitorRequest { table, ..request(1, ALL) }]));
        assert_eq!(briefs(&mut harness), ["reply"]);
        change(&harness, (1..=3).map(add));
        harness.run();
        assert!(harness.connection.monitor_queue().unwrap().is_paused());
        harness.send(&message([request(2, ALL)]));
        let expected = ["paused", "reply", "added 1", "added 2", "added 3", "resumed"];
        assert_eq!(briefs(&mut harness), expected);
    }
}
