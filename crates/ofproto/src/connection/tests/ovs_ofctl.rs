//! `ovs-ofctl` 3.1 can read the replies that list each accepted rule, group and meter.
//!
//! `ovs-ofctl` stops at the first entry that it cannot read, so one unreadable rule would hide all
//! later rules.

use std::{
    collections::HashSet,
    io,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use shunt_flow::{
    FieldId, FlowMask, Match, PortNo,
    text::{NoPortNames, parse_match},
};
use shunt_pipeline::{
    Cookie, FlowMod, FlowModCommand, Instructions, RuleFilter, TableId, TableSelector,
};

use crate::{
    connection::ConnectionKind,
    message::{FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, Message, MultipartRequest},
    testing::{ConnectionHarness, any_flow_mod, any_group_mod, any_meter_mod},
    wire::{Codec, v10::V10Settings},
};

/// Number of random rules, of random groups and of random meters.
const REQUESTS: usize = 2000;

/// Returns `count` random values that are the same in each run of the test.
fn draws<T: std::fmt::Debug>(count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let draw = |_| strategy.new_tree(&mut runner).unwrap().current();
    (0..count).map(draw).collect()
}

/// Returns the fields of a match.
fn fields(matching: &Match) -> impl Iterator<Item = FieldId> {
    let mask = FlowMask::from(matching.mask());
    FieldId::all().filter(move |field| mask.field(*field) != 0)
}

/// Runs `ovs-ofctl ofp-parse` on messages; `None` if `ovs-ofctl` is not installed.
///
/// Returns the output lines about entries that `ovs-ofctl` cannot read.
fn unread(messages: &[u8]) -> Option<String> {
    /// The number of the next file.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("shunt-ofp-{}-{number}.bin", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, messages).unwrap();
    let result = Command::new("ovs-ofctl").arg("ofp-parse").arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let output = match result {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{error}"),
    };
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let is_problem = |line: &&str| line.contains("decode error") || line.contains("WARN");
    let problems: Vec<_> = text.lines().filter(is_problem).collect();
    let is_read = output.status.success() && !text.contains("decode error");
    Some(if is_read { String::new() } else { problems.join("\n") })
}

/// Sends each request to a new switch, and reads the replies to its `dumps`.
///
/// Returns the requests that were accepted.
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn check<T: Clone + std::fmt::Debug>(
    requests: Vec<T>,
    message: fn(T) -> Message,
    dumps: impl Fn(&T) -> Vec<(Codec, MultipartRequest)>,
) -> Vec<T> {
    let mut accepted = Vec::new();
    for request in requests {
        let mut harness = ConnectionHarness::open(ConnectionKind::Management);
        let is_refused = !harness.request(&message(request.clone())).is_empty();
        let mut replies = Vec::new();
        for (codec, dump) in dumps(&request) {
            let mut client = harness.another_with(ConnectionKind::Management, codec);
            client.send(&Message::MultipartRequest(dump));
            replies.extend(client.reply_frames().concat());
        }
        if !is_refused {
            accepted.push((request, replies));
        }
    }
    let all: Vec<_> = accepted.iter().flat_map(|(_, replies)| replies).copied().collect();
    match unread(&all) {
        None => eprintln!("SKIPPED: ovs-ofctl is not installed"),
        Some(problems) if problems.is_empty() => {}
        Some(problems) => {
            let unread =
                |(_, replies): &&(T, Vec<u8>)| unread(replies).is_some_and(|text| !text.is_empty());
            let first = accepted.iter().find(unread).map(|(request, _)| request);
            panic!("{problems}\nthe first is {first:?}");
        }
    }
    accepted.into_iter().map(|(request, _)| request).collect()
}

/// Returns a request that lists all rules and monitors them.
fn monitor_of_all() -> MultipartRequest {
    let flags =
        FlowMonitorFlags { initial: true, add: true, actions: true, ..FlowMonitorFlags::default() };
    let (table, out_port) = (TableSelector::All, PortNo::ANY);
    let (id, matching) = (FlowMonitorId(1), Match::any());
    MultipartRequest::FlowMonitor(vec![FlowMonitorRequest { id, flags, table, matching, out_port }])
}

/// Returns whether `ovs-ofctl` 3.1 reads updates about a rule over OpenFlow 1.0.
///
/// `ovs-ofctl` reads write-metadata in the replies to flow requests, but not in those to monitors.
/// `ovs-vswitchd` 3.1 sends the same bytes (`written_metadata_is_monitored_as_in_open_vswitch`).
/// An update has a write to the field instead if the rule goes to another table.
fn is_monitored_in_10(flow_mod: &FlowMod) -> bool {
    let Instructions { metadata, goto, .. } = &flow_mod.instructions;
    goto.is_some() || metadata.is_none_or(|(_, mask)| mask == 0)
}

/// `ovs-vswitchd` 3.1 sends this reply, and `ovs-ofctl` 3.1 cannot read it.
#[test]
fn written_metadata_is_monitored_as_in_open_vswitch() {
    /// Length of an OpenFlow header.
    const HEADER_LEN: usize = 8;
    let recorded: [&[u8]; 6] = [
        &[0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20, 0, 0, 0, 2, 0, 0, 0, 0],
        // Length, event, reason, priority, timeouts, length of the match, and table.
        &[0, 64, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 6, 1, 0],
        // The cookie.
        &[0; 8],
        &[0, 0, 6, 2, 8, 0, 0, 0],
        &[0xff, 0xff, 0, 32, 0, 0, 0x23, 0x20, 0, 22, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    ];
    let instructions = Instructions { metadata: Some((5, u64::MAX)), ..Instructions::default() };
    let flow_mod = FlowMod {
        table: TableSelector::One(TableId::new(1).unwrap()),
        matching: parse_match("ip", &NoPortNames).unwrap(),
        cookie: Cookie::new(0),
        instructions,
        ..super::add(0x8000)
    };
    assert!(!is_monitored_in_10(&flow_mod));
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let replies = harness.request(&Message::FlowMod(flow_mod));
    assert!(replies.is_empty(), "{replies:?}");
    let v10 = Codec::V10(V10Settings::INITIAL);
    let mut client = harness.another_with(ConnectionKind::Management, v10);
    client.send(&Message::MultipartRequest(monitor_of_all()));
    let frames = client.reply_frames();
    let [frame] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(frame[HEADER_LEN..], recorded.concat());
}

#[test]
fn ovs_ofctl_reads_each_accepted_rule() {
    let add = |flow_mod: FlowMod| FlowMod { command: FlowModCommand::Add, ..flow_mod };
    let mods = draws(REQUESTS, any_flow_mod()).into_iter().map(add);
    // Most random actions do not fit the match of their rule. A rule without actions is accepted.
    let plain = |flow_mod: FlowMod| FlowMod { instructions: Default::default(), ..flow_mod };
    let mods: Vec<_> = mods.flat_map(|request| [plain(request.clone()), request]).collect();
    let v10 = Codec::V10(V10Settings::INITIAL);
    let dumps = |flow_mod: &FlowMod| {
        let mut list = vec![
            (Codec::V13, MultipartRequest::Flow(RuleFilter::all())),
            (v10, MultipartRequest::Flow(RuleFilter::all())),
            (v10, MultipartRequest::NiciraFlow(RuleFilter::all())),
            (Codec::V13, monitor_of_all()),
        ];
        list.extend(is_monitored_in_10(flow_mod).then(|| (v10, monitor_of_all())));
        list
    };
    let accepted = check(mods, Message::FlowMod, dumps);
    assert!(accepted.len() > REQUESTS, "{} rules were accepted", accepted.len());
    let seen: HashSet<_> = accepted.iter().flat_map(|request| fields(&request.matching)).collect();
    let numbered = FieldId::all().filter(|field| !field.info().oxms.is_empty());
    let missing: Vec<_> = numbered
        .filter(|field| field.tunnel_option().is_none() && !seen.contains(field))
        .map(FieldId::name)
        .collect();
    assert!(missing.is_empty(), "no accepted rule has {missing:?}");
}

#[test]
fn ovs_ofctl_reads_each_accepted_group() {
    let accepted = check(draws(REQUESTS, any_group_mod()), Message::GroupMod, |_| {
        let codecs = [Codec::V13, Codec::V10(V10Settings::INITIAL)];
        codecs.map(|codec| (codec, MultipartRequest::GroupDescription(None))).into()
    });
    assert!(accepted.len() > REQUESTS / 20, "{} groups were accepted", accepted.len());
}

#[test]
fn ovs_ofctl_reads_each_accepted_meter() {
    let accepted = check(draws(REQUESTS, any_meter_mod()), Message::MeterMod, |_| {
        vec![(Codec::V13, MultipartRequest::MeterConfig(None))]
    });
    assert!(accepted.len() > REQUESTS / 20, "{} meters were accepted", accepted.len());
}
