//! Tests of the reads of learned addresses by NORMAL.
//!
//! An entry that sends to a port reads the location of its destination. Every entry also reads the
//! location of its source, and refreshes it. If the source address moved or expired, the packet has
//! a learn request.

use std::time::Duration;

use shunt_pipeline::{BridgeSettings, Time, Traversal};

use crate::{BRIDGE, Kind, Switch, any_packet, packet};

fn at(second: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(second))
}

/// Returns the traversal of a packet to port 2.
/// The addresses were last seen at these seconds.
fn translate_known(switch: &Switch, [target, source]: [u64; 2]) -> Traversal {
    switch.add("actions=normal");
    switch.learn_at(&any_packet(), at(source));
    switch.learn_at(&packet(2, [2, 1]), at(target));
    switch.translate(&any_packet())
}

#[test]
fn a_newly_learned_destination_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=normal");
    switch.learn(&any_packet());
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Mac, |switch| vec![switch.learn(&packet(3, [2, 1]))]);
}

#[test]
fn a_moved_destination_evicts_entries() {
    let switch = Switch::new();
    let entry = translate_known(&switch, [0, 0]);
    switch.assert_needed(entry, Kind::Mac, |switch| vec![switch.learn(&packet(3, [2, 1]))]);
}

#[test]
fn an_aged_out_destination_evicts_entries() {
    let switch = Switch::new();
    let ageing = BridgeSettings::default().mac_ageing.as_secs();
    let entry = translate_known(&switch, [0, 1]);
    switch.assert_needed(entry, Kind::Mac, |switch| vec![switch.0.expire(at(ageing))]);
}

#[test]
fn a_flushed_address_evicts_entries() {
    let switch = Switch::new();
    let entry = translate_known(&switch, [0, 0]);
    switch.assert_needed(entry, Kind::Mac, |switch| vec![switch.0.flush_macs(BRIDGE)]);
}

#[test]
fn address_forgotten_by_full_table_evicts_entries() {
    let switch = Switch::new();
    let settings = BridgeSettings { macs_max: 2, ..BridgeSettings::default() };
    switch.0.set_settings(BRIDGE, settings).unwrap();
    let entry = translate_known(&switch, [0, 0]);
    switch.assert_needed(entry, Kind::Mac, |switch| vec![switch.learn(&packet(3, [3, 1]))]);
}

#[test]
fn a_moved_source_evicts_entries() {
    let switch = Switch::new();
    let entry = translate_known(&switch, [0, 0]);
    switch.assert_needed(entry, Kind::Mac, |switch| vec![switch.learn(&packet(3, [1, 2]))]);
}

#[test]
fn an_aged_out_source_evicts_entries() {
    let switch = Switch::new();
    let ageing = BridgeSettings::default().mac_ageing.as_secs();
    let entry = translate_known(&switch, [1, 0]);
    switch.assert_needed(entry, Kind::Mac, |switch| vec![switch.0.expire(at(ageing))]);
}
