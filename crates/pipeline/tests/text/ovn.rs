//! Tests that every line of a dump of OVN's tables parses and formats to the same line.
//!
//! `data/ovn/README.md` describes how the recordings were made.

use shunt_flow::{FieldId, text::NoPortNames};
use shunt_pipeline::{
    FlowModCommand,
    text::{RuleTextProblem, parse_rule},
};

use super::{
    groups::{group_again, meter_again},
    rules::{parsed, printed},
};

/// Returns whether an action of a rule writes a tunnel option, which no text can
/// express yet.
fn writes_tunnel_option(line: &str) -> bool {
    line.contains("->tun_metadata0")
}

#[test]
fn ovn_rules_are_printed_as_dumped() {
    let (refused, lines): (Vec<_>, Vec<_>) = include_str!("../data/ovn/small.flows")
        .lines()
        .map(str::trim)
        .partition(|line| writes_tunnel_option(line));
    for line in &lines {
        // Open vSwitch prints a mask of the whole field, which it cannot parse itself.
        let expected = line.replace("46/0x3f->ip_dscp", "46->ip_dscp");
        assert_eq!(printed(&parsed(line)), expected);
    }
    for line in &refused {
        let error = parse_rule(FlowModCommand::Add, line, &NoPortNames).unwrap_err();
        assert_eq!(error.problem, RuleTextProblem::ReadOnly(FieldId::TunMetadata0), "{line}");
    }
    assert_eq!((lines.len(), refused.len()), (3542, 7));
}

#[test]
fn ovn_groups_are_printed_as_dumped() {
    let lines: Vec<_> = include_str!("../data/ovn/small.groups").lines().skip(1).collect();
    for line in &lines {
        assert_eq!(group_again(line).as_deref(), Ok(line.trim()));
    }
    assert_eq!(lines.len(), 10);
}

#[test]
fn ovn_meters_are_printed_as_dumped() {
    let (_, dump) = include_str!("../data/ovn/small.meters").split_once('\n').unwrap();
    let meters: Vec<_> = dump.trim_end().split("\n\n").collect();
    for meter in &meters {
        assert_eq!(meter_again(meter).as_deref(), Ok(*meter));
    }
    assert_eq!(meters.len(), 3);
}
