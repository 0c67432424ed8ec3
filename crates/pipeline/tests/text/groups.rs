//! The text of groups and meters, compared with the output of Open vSwitch 3.1 for the same text.
//!
//! `data/group-texts.json` describes its recording.

use std::sync::Arc;

use serde_json::Value;
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    BridgeId, Group, GroupCommand, GroupMod, GroupStats, MeterCommand, Time,
    text::{RuleTextError, format_group, format_meter, parse_group_mod, parse_meter_mod},
};

/// A function that parses the text of a group or meter and formats it again.
type Again = fn(&str) -> Result<String, RuleTextError>;

/// Parses and formats the text of a group.
pub(crate) fn group_again(text: &str) -> Result<String, RuleTextError> {
    let GroupMod { group, kind, selection, buckets, .. } =
        parse_group_mod(GroupCommand::Add, text, &NoPortNames)?;
    let (bridge, created) = (BridgeId::new(1), Time::ZERO);
    let stats = Arc::new(GroupStats::new(buckets.len()));
    let group = Group { id: group.unwrap(), bridge, kind, selection, buckets, created, stats };
    Ok(format_group(&group, &NoPortNames))
}

/// Parses and formats the text of a meter.
pub(crate) fn meter_again(text: &str) -> Result<String, RuleTextError> {
    let request = parse_meter_mod(MeterCommand::Add, text)?;
    Ok(format_meter(request.meter.unwrap(), &request.config))
}

fn recorded_cases(list: &str) -> Vec<Value> {
    super::recorded_texts(include_str!("../data/group-texts.json"), list)
}

fn check_printed(list: &str, key: &str, again: Again) {
    for pair in recorded_cases(list) {
        let (input, expected) = (pair["input"].as_str().unwrap(), pair[key].as_str().unwrap());
        assert_eq!(again(input).as_deref(), Ok(expected), "{input}");
        assert_eq!(again(expected).as_deref(), Ok(expected), "{input}");
    }
}

fn check_refused(list: &str, again: Again) {
    for pair in recorded_cases(list) {
        let input = pair["input"].as_str().unwrap();
        let error = again(input).unwrap_err();
        assert_eq!(error.to_string(), pair["reason"].as_str().unwrap(), "{input}");
        assert_eq!(&input[error.span], pair["at"].as_str().unwrap(), "{input}");
    }
}

#[test]
fn groups_are_printed_as_open_vswitch_prints_them() {
    check_printed("groups_same", "canonical", group_again);
    check_printed("groups_looser", "ours", group_again);
}

#[test]
fn groups_that_open_vswitch_refuses_are_refused() {
    check_refused("groups_wrong", group_again);
}

#[test]
fn groups_open_vswitch_half_ignores_are_refused() {
    check_refused("groups_stricter", group_again);
}

#[test]
fn meters_are_printed_as_open_vswitch_prints_them() {
    check_printed("meters_same", "canonical", meter_again);
    check_printed("meters_looser", "ours", meter_again);
}

#[test]
fn meters_that_open_vswitch_refuses_are_refused() {
    check_refused("meters_wrong", meter_again);
    check_refused("meters_stricter", meter_again);
}

#[test]
fn deletions_name_one_or_all() {
    let group = |text| parse_group_mod(GroupCommand::Delete, text, &NoPortNames);
    assert_eq!(group("group_id=5").unwrap().group.map(|id| id.number()), Some(5));
    assert_eq!(group("group_id=all").unwrap().group, None);
    assert_eq!(group("").unwrap().group, None);
    assert!(group("group_id=5,type=all").is_err() && group("bucket=1").is_err());
    let meter = |text| parse_meter_mod(MeterCommand::Delete, text);
    assert_eq!(meter("meter=5").unwrap().meter.map(|id| id.number()), Some(5));
    assert_eq!(meter("meter=all").unwrap().meter, None);
    assert_eq!(meter("").unwrap().meter, None);
    assert!(meter("meter=5,kbps").is_err() && meter("bands=type=drop").is_err());
}
