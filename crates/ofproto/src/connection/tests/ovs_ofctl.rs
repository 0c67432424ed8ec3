//! Every accepted request leaves replies that `ovs-ofctl` 3.1 can read.
//!
//! `ovs-ofctl` stops at the first entry that it cannot read, so one such rule would hide all others.

use std::{
    collections::HashSet,
    io,
    process::{Command, Output},
};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use shunt_flow::{FieldId, FlowMask, Match};
use shunt_pipeline::{FlowMod, FlowModCommand, RuleFilter};

use crate::{
    connection::ConnectionKind,
    message::{Message, MultipartRequest},
    testing::{ConnectionHarness, any_flow_mod, any_group_mod, any_meter_mod},
};

/// Number of rules, of groups and of meters.
const REQUESTS: usize = 2000;

/// Returns `count` values that are the same in each run.
fn draws<T: std::fmt::Debug>(count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let draw = |_| strategy.new_tree(&mut runner).unwrap().current();
    (0..count).map(draw).collect()
}

fn fields(matching: &Match) -> impl Iterator<Item = FieldId> {
    let mask = FlowMask::from(matching.mask());
    FieldId::all().filter(move |field| mask.field(*field) != 0)
}

/// Runs `ovs-ofctl ofp-parse` on messages; `None` if it is not installed.
fn parse(messages: &[u8]) -> Option<Output> {
    let file = std::env::temp_dir().join(format!("shunt-ofp-{}.bin", std::process::id()));
    std::fs::write(&file, messages).unwrap();
    let result = Command::new("ovs-ofctl").arg("ofp-parse").arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    match result {
        Ok(output) => Some(output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

/// Sends requests one by one to a new switch, and reads the reply to `dump` after each one.
///
/// Returns the requests that were accepted.
fn check<T: Clone>(
    requests: Vec<T>,
    message: fn(T) -> Message,
    dump: &MultipartRequest,
) -> Vec<T> {
    let (mut replies, mut accepted) = (Vec::new(), Vec::new());
    for request in requests {
        let mut harness = ConnectionHarness::open(ConnectionKind::Management);
        let is_refused = !harness.request(&message(request.clone())).is_empty();
        harness.send(&Message::MultipartRequest(dump.clone()));
        let reply = harness.reply_frames();
        if !is_refused {
            reply.iter().for_each(|frame| replies.extend_from_slice(frame));
            accepted.push(request);
        }
    }
    let Some(output) = parse(&replies) else {
        println!("SKIPPED: ovs-ofctl is not installed");
        return accepted;
    };
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let unread: Vec<_> = text.lines().filter(|line| line.contains("decode error")).collect();
    assert!(output.status.success() && unread.is_empty(), "{unread:?}\n{errors}");
    assert!(text.lines().count() >= accepted.len(), "{} lines", text.lines().count());
    accepted
}

#[test]
fn ovs_ofctl_reads_each_accepted_rule() {
    let add = |flow_mod: FlowMod| FlowMod { command: FlowModCommand::Add, ..flow_mod };
    let mods = draws(REQUESTS, any_flow_mod()).into_iter().map(add);
    // Most random actions do not fit the match. A rule without any is accepted.
    let plain = |flow_mod: FlowMod| FlowMod { instructions: Default::default(), ..flow_mod };
    let mods: Vec<_> = mods.flat_map(|request| [plain(request.clone()), request]).collect();
    let accepted = check(mods, Message::FlowMod, &MultipartRequest::Flow(RuleFilter::all()));
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
    let accepted = check(
        draws(REQUESTS, any_group_mod()),
        Message::GroupMod,
        &MultipartRequest::GroupDescription,
    );
    assert!(accepted.len() > REQUESTS / 20, "{} groups were accepted", accepted.len());
}

#[test]
fn ovs_ofctl_reads_each_accepted_meter() {
    let accepted = check(
        draws(REQUESTS, any_meter_mod()),
        Message::MeterMod,
        &MultipartRequest::MeterConfig(None),
    );
    assert!(accepted.len() > REQUESTS / 20, "{} meters were accepted", accepted.len());
}
