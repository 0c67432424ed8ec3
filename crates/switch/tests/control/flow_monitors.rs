//! Flow monitors of a running switch: every maker of changes, and a peer that reads late.

use std::{collections::BTreeSet, ops::Range};

use shunt_flow::{Match, PortNo, text::NoPortNames};
use shunt_ofproto::message::{
    FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, FlowUpdate, FlowUpdateEvent, Message,
    MultipartReply, MultipartRequest,
};
use shunt_pipeline::{
    FlowMod, FlowModCommand, RemovedReason, RuleFilter, TableSelector, text::parse_rule,
};

use crate::fixture::{Controller, SwitchFixture, frame};

/// Starts a monitor of all rules, which must list none.
async fn monitor(controller: &mut Controller) {
    let flags = FlowMonitorFlags {
        initial: true,
        add: true,
        delete: true,
        modify: true,
        actions: false,
        own: true,
    };
    let request = FlowMonitorRequest {
        id: FlowMonitorId(1),
        flags,
        table: TableSelector::All,
        matching: Match::any(),
        out_port: PortNo::ANY,
    };
    let request = Message::MultipartRequest(MultipartRequest::FlowMonitor(vec![request]));
    let reply = MultipartReply::FlowMonitor(Vec::new());
    let expected = Message::MultipartReply { more: false, reply };
    assert_eq!(controller.ask(&request).await, expected);
}

/// Returns the events and cookies of an update message; `None` for another message.
fn changes(message: Message) -> Option<Vec<(FlowUpdateEvent, u64)>> {
    let Message::MultipartReply { reply: MultipartReply::FlowMonitor(updates), .. } = message
    else {
        return None;
    };
    let change = |update| match update {
        FlowUpdate::Full(full) => (full.event, full.cookie.number()),
        FlowUpdate::Abbreviated(xid) => panic!("{xid:?} is abbreviated"),
    };
    Some(updates.into_iter().map(change).collect())
}

/// Returns additions of rules with these cookies, each of which matches its cookie.
fn additions(cookies: Range<u64>) -> Vec<FlowMod> {
    let rule = |cookie: u64| {
        let text = format!("cookie={cookie},reg0={cookie},actions=drop");
        parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap()
    };
    cookies.map(rule).collect()
}

/// Returns deletions of the rules with these matches.
fn deletions(matches: impl IntoIterator<Item = String>) -> Vec<FlowMod> {
    let rule = |text: String| parse_rule(FlowModCommand::Delete, &text, &NoPortNames).unwrap();
    matches.into_iter().map(rule).collect()
}

#[tokio::test]
async fn learned_and_expired_rules_are_reported() {
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    let mut controller = fixture.controller().await;
    monitor(&mut controller).await;
    let learning_rule = "cookie=1,actions=learn(table=1,hard_timeout=1,cookie=7,NXM_OF_ETH_SRC[])";
    fixture.switch.add_rules("br0", &[learning_rule]).await.unwrap();
    port.send(&frame(1));
    let mut all = Vec::new();
    while all.len() < 3 {
        all.extend(changes(controller.next_received().await).into_iter().flatten());
    }
    let expired = FlowUpdateEvent::Deleted(RemovedReason::HardTimeout);
    assert_eq!(all, [(FlowUpdateEvent::Added, 1), (FlowUpdateEvent::Added, 7), (expired, 7)]);
}

/// The rules fill the sockets, the output and the queue of the connection.
#[tokio::test]
async fn a_monitor_that_reads_late_knows_all_rules() {
    /// Number of added rules.
    const COUNT: u64 = 30_000;
    /// Number of a rule that is added after all others.
    const LAST: u64 = 1_000_000;
    let fixture = SwitchFixture::start(1).await;
    let mut controller = fixture.controller().await;
    monitor(&mut controller).await;
    for flow_mods in [
        additions(0..COUNT),
        deletions([String::new()]),
        additions(0..COUNT),
        deletions((0..10).map(|number| format!("reg0={number}"))),
        additions(LAST..LAST + 1),
    ] {
        fixture.switch.apply_flow_mods("br0", &flow_mods).await.unwrap();
    }
    let (mut known, mut is_paused) = (BTreeSet::new(), false);
    while is_paused || !known.contains(&LAST) {
        match controller.next_received().await {
            Message::FlowMonitorPaused => is_paused = true,
            Message::FlowMonitorResumed => is_paused = false,
            message => {
                for (event, cookie) in changes(message).into_iter().flatten() {
                    let is_new = match event {
                        FlowUpdateEvent::Added => known.insert(cookie),
                        FlowUpdateEvent::Deleted(_) => known.remove(&cookie),
                        FlowUpdateEvent::Modified => known.contains(&cookie),
                    };
                    assert!(is_new, "{event:?} of {cookie:#x}");
                }
            }
        }
    }
    assert!(
        known == (10..COUNT).chain([LAST]).collect::<BTreeSet<_>>(),
        "{} rules are known",
        known.len()
    );
    let count = fixture.switch.rules_count("br0", &RuleFilter::all()).unwrap();
    assert_eq!(count, known.len());
}
