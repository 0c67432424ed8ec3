//! Tests of the reads of groups and meters, and of the ports and groups that buckets watch.
//!
//! A bucket with a watched object sends to another port, so that the output is not the object that
//! is read.

use shunt_pipeline::{GroupCommand, MeterCommand};

use crate::{Kind, Switch, any_packet};

const ADD: GroupCommand = GroupCommand::Add;
const MODIFY: GroupCommand = GroupCommand::Modify;
const DELETE: GroupCommand = GroupCommand::Delete;

/// A group that sends to port 2 while group 2 is live, and otherwise to port 3.
const WATCHES_GROUP: &str =
    "group_id=1,type=ff,bucket=watch_group:2,output:2,bucket=watch_port:3,output:3";

/// Group 2 in the live form.
const IS_LIVE: &str = "group_id=2,type=ff,bucket=watch_port:4,output:4";

/// Group 2 in a form that is not live, because its port does not exist.
const IS_DEAD: &str = "group_id=2,type=ff,bucket=watch_port:9,output:4";

/// Returns a bridge with these groups that sends all packets to group 1.
fn switch(groups: &[&str]) -> Switch {
    let switch = Switch::new();
    for group in groups {
        switch.group(ADD, group);
    }
    switch.add("actions=group:1");
    switch
}

#[test]
fn a_modified_group_evicts_entries() {
    let switch = switch(&["group_id=1,type=all,bucket=output:2"]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Group, |switch| {
        vec![switch.group(MODIFY, "group_id=1,type=all,bucket=output:3")]
    });
}

#[test]
fn a_deleted_group_of_a_bucket_evicts_entries() {
    let groups = ["group_id=2,type=all,bucket=output:2", "group_id=1,type=all,bucket=group:2"];
    let switch = switch(&groups);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Group, |switch| vec![switch.group(DELETE, "group_id=2")]);
}

#[test]
fn a_modified_watched_group_evicts_entries() {
    let switch = switch(&[IS_LIVE, WATCHES_GROUP]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Group, |switch| vec![switch.group(MODIFY, IS_DEAD)]);
}

#[test]
fn a_deleted_watched_group_evicts_entries() {
    let switch = switch(&[IS_LIVE, WATCHES_GROUP]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Group, |switch| vec![switch.group(DELETE, "group_id=2")]);
}

#[test]
fn an_added_watched_group_evicts_entries() {
    let switch = switch(&[WATCHES_GROUP]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Group, |switch| vec![switch.group(ADD, IS_LIVE)]);
}

#[test]
fn an_indirectly_watched_group_evicts_entries() {
    let between = "group_id=3,type=ff,bucket=watch_group:2,output:4";
    let outer = WATCHES_GROUP.replace("watch_group:2", "watch_group:3");
    let switch = switch(&[IS_LIVE, between, &outer]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Group, |switch| vec![switch.group(MODIFY, IS_DEAD)]);
}

#[test]
fn a_watched_port_without_output_evicts_entries() {
    let switch =
        switch(&["group_id=1,type=ff,bucket=watch_port:4,output:2,bucket=watch_port:3,output:3"]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[3].link_up = false)]
    });
}

#[test]
fn a_watched_link_that_comes_up_evicts_entries() {
    let switch =
        switch(&["group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3"]);
    switch.set_ports(|ports| ports[1].link_up = false);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[1].link_up = true)]
    });
}

#[test]
fn watched_link_of_select_bucket_evicts_entries() {
    let switch = switch(&["group_id=1,type=select,bucket=watch_port:4,output:2"]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[3].link_up = false)]
    });
}

#[test]
fn an_indirectly_watched_link_evicts_entries() {
    let switch = switch(&[IS_LIVE, WATCHES_GROUP]);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[3].link_up = false)]
    });
}

#[test]
fn a_modified_meter_evicts_entries() {
    let switch = Switch::new();
    switch.meter(MeterCommand::Add, "meter=1,pktps,band=type=drop,rate=5");
    switch.add("actions=meter:1,output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Meter, |switch| {
        vec![switch.meter(MeterCommand::Modify, "meter=1,pktps,band=type=drop,rate=9")]
    });
}

#[test]
fn an_added_packet_in_meter_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=controller(max_len=64,meter_id=1)");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Meter, |switch| {
        vec![switch.meter(MeterCommand::Add, "meter=1,pktps,band=type=drop,rate=5")]
    });
}
