//! Recorded cases: rules, packets, and the results of Open vSwitch, replayed to a whole switch.
//!
//! `ovs-ofctl` loads the rules over OpenFlow. Frames enter through one cable and leave through
//! other cables. Frames, counters, packet-ins and printed rules must equal the recording, and so
//! must the tables and rules that each packet matched. Masks are tested instead of compared,
//! because a correct mask may be wider or narrower than another correct mask.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "the command prints advice for its user")]

mod cabled_switch;
mod case;
mod client;
mod differential;
mod generate;
mod masks;
mod rival;
mod shrink;
mod side_by_side;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use cabled_switch::{BRIDGE, CabledSwitch};
use case::{Case, LearnedRule, Recording, missing};
use client::{DumpedRule, Monitor, counters};
use masks::{Tables, Widths};
use shunt_switch::{TraceVisit, config::CacheKind};

/// Total number of recorded cases.
const RECORDED: usize = 200;

/// End of a recorded step that misses while a client of OpenFlow 1.0 is connected.
const MISS_TO_CLIENT: &str = ", and a \"packet-in\" is called for";

/// Differences of a case from the recording.
struct Differences<'a> {
    case: &'a Case,
    found: Vec<String>,
}

impl<'a> Differences<'a> {
    const fn new(case: &'a Case) -> Self {
        Self { case, found: Vec::new() }
    }

    fn compare<T: Debug + PartialEq + ?Sized>(&mut self, what: &str, found: &T, recorded: &T) {
        if found != recorded {
            let id = &self.case.id;
            self.found.push(format!("{id} {what}:\n  found    {found:?}\n  recorded {recorded:?}"));
        }
    }
}

fn assert_none(differences: &[String]) {
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_case_runs_or_is_named_as_missing() {
    let (recording, missing) = (Recording::read(), missing());
    let played: BTreeSet<&String> = recording.cases.iter().map(|case| &case.id).collect();
    assert!(recording.provenance.contains("Open vSwitch 3.1.0"));
    assert_eq!(played.len(), recording.cases.len(), "an id is given twice");
    assert_eq!(
        missing.keys().find(|id| played.contains(id)),
        None,
        "a replayed case is not \
                                         missing"
    );
    assert_eq!(played.len() + missing.len(), RECORDED);
}

#[test]
fn new_and_filled_megaflows_equal_record() {
    play_all(CacheKind::Megaflow);
}

#[test]
fn new_and_filled_gigaflow_equals_record() {
    play_all(CacheKind::Gigaflow);
}

#[test]
fn computational_flows_answer_as_recorded_twice() {
    play_all(CacheKind::Flows);
}

/// Replays all cases to switches with a cache of kind `cache`.
fn play_all(cache: CacheKind) {
    if !client::is_installed() {
        return;
    }
    let mut differences = Vec::new();
    let mut kinds: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for case in Recording::read_all().cases {
        let found = play(&case, cache);
        let [passed, failed] = kinds.entry(case.kind().to_string()).or_default();
        *if found.is_empty() { passed } else { failed } += 1;
        differences.extend(found);
    }
    for (kind, [passed, failed]) in kinds {
        println!("{cache:?} {kind:<12} {passed} passed, {failed} failed");
    }
    assert_none(&differences);
}

/// Replays a case to a switch with a cache of kind `kind`; returns the differences.
fn play(case: &Case, kind: CacheKind) -> Vec<String> {
    let mut differences = Differences::new(case);
    let mut cabled = CabledSwitch::new(kind);
    let client = cabled.client().of_case(case);
    cabled.set_ports(case);
    client.load(case);
    let mut dump: Vec<String> = client.dump().into_iter().map(|rule| rule.text).collect();
    let mut recorded: Vec<String> = case.dump.clone();
    dump.sort();
    recorded.sort();
    differences.compare("dump", &dump, &recorded);
    let packet_ins = case.packet_ins();
    // Over OpenFlow 1.0, misses are sent while the monitor is connected.
    let monitor = (!packet_ins.is_empty()).then(|| Monitor::start(&client));
    client.wait_for_changes();
    for pass in 1..=if case.stateless { 2 } else { 1 } {
        for (index, packet) in case.packets.iter().enumerate() {
            let (_, out) = cabled.play(&client, packet);
            let choices = case.choices(index);
            let recorded = choices.iter().find(|choice| ***choice == out).unwrap_or(&choices[0]);
            differences.compare(&format!("pass {pass} packet {index}"), &out, *recorded);
        }
        if let Some(monitor) = monitor.as_ref().filter(|_| pass == 1) {
            differences.compare("packet-ins", &monitor.packet_ins(&packet_ins), &packet_ins);
        }
        let unrequested = case.unrequested_packet_ins.unwrap_or_default();
        let punted = pass * (packet_ins.len() as u64 + unrequested);
        differences.compare("number of packet-ins", &cabled.count_punted(), &punted);
        let dump = client.dump();
        let counters = counters(&dump);
        for (cookie, counts) in &case.counters {
            let counts = counts.map(|count| count * pass);
            let found = counters.get(cookie.as_str()).copied();
            let what = format!("pass {pass} counters of the rule with cookie {cookie}");
            differences.compare(&what, &found, &Some(counts));
        }
        for learned_rules in case.flows_after.iter().map(LearnedRule::dumped) {
            let (cookie, counts, text) = &learned_rules;
            let is_it = |rule: &&DumpedRule| rule.cookie == *cookie && rule.text == *text;
            let found = dump.iter().find(is_it).map(|rule| rule.counts);
            differences.compare(&format!("learned rule {text}"), &found, &Some(*counts));
        }
    }
    differences.found
}

#[test]
fn packets_match_the_recorded_rules_in_order() {
    let differences: Vec<String> =
        Recording::read_all().with_text().flat_map(|case| trace(&case)).collect();
    assert_none(&differences);
}

/// Traces the packets of a case; returns the differences.
fn trace(case: &Case) -> Vec<String> {
    let mut differences = Differences::new(case);
    let mut cabled = CabledSwitch::new(CacheKind::Megaflow);
    cabled.set_ports(case);
    cabled.load(case);
    for (index, packet) in case.packets.iter().enumerate() {
        let Some(recorded) = &packet.expect.trace else { continue };
        let flow = format!("in_port={} {}", packet.in_port, packet.frame);
        let trace = cabled.switch.trace(BRIDGE, &flow).expect("a frame can be traced");
        let path: Vec<String> = trace.visits.iter().map(describe).collect();
        // Here, no client requests the packets that miss.
        let without_client = |step: &String| step.replace(MISS_TO_CLIENT, "");
        let recorded: Vec<String> = recorded.path.iter().map(without_client).collect();
        differences.compare(&format!("path of packet {index}"), &path, &recorded);
    }
    differences.found
}

/// Returns a lookup in the format of `ofproto/trace`.
fn describe(visit: &TraceVisit) -> String {
    let table = visit.table;
    visit.rule.as_ref().map_or_else(
        || format!("{table}. No match."),
        |rule| {
            let comma = if rule.matching.is_empty() { "" } else { ", " };
            let (matching, priority, cookie) = (&rule.matching, rule.priority, &rule.cookie);
            format!("{table}. {matching}{comma}priority {priority}, cookie {cookie}")
        },
    )
}

#[test]
fn packets_equal_under_a_mask_have_equal_results() {
    let mut astray = Vec::new();
    for case in Recording::read_all().with_text() {
        let tables = Tables::new(&case);
        for (index, packet) in case.packets.iter().enumerate() {
            let found = tables.find_mask_violation(&case, packet);
            astray.extend(found.map(|other| format!("{} packet {index}: {other}", case.id)));
        }
    }
    assert_none(&astray);
}

/// Packets with mask bits that Open vSwitch's masks lack.
///
/// `docs/conformance.md` gives the reason.
const NARROWER: &[&str] = &["vlan-040"];

#[test]
fn only_listed_cases_consult_more_than_open_vswitch() {
    let (mut widths, mut narrower) = (Widths::default(), Vec::new());
    for case in Recording::read_all().with_text() {
        let tables = Tables::new(&case);
        for (index, packet) in case.packets.iter().enumerate() {
            let Some(recorded) = &packet.expect.trace else { continue };
            let traversal = tables.translate(packet);
            if let Some(more) = tables.compare(&traversal, &recorded.megaflow, &mut widths) {
                println!("{} packet {index} consults more, {more}: {}", case.id, recorded.megaflow);
                narrower.push(case.id.clone());
            }
        }
    }
    println!("masks compared with Open vSwitch: {widths}");
    assert_eq!(narrower, NARROWER);
}
