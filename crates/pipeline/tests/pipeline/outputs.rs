//! Tests of outputs to ports, floods and controllers.

use shunt_flow::{FieldId, FlowMask, PortNo};
use shunt_pipeline::{
    BridgeSettings, DatapathAction, Object, PacketInReason, PortConfig, TableMiss,
};

use crate::switch::{BRIDGE, Switch};

#[test]
fn outputs_happen_in_order() {
    let switch = Switch::new(&["actions=output:3,output:2,output:LOCAL"]);
    assert_eq!(switch.run("in_port=1"), "3 2 100");
}

/// OpenFlow 1.0: a packet that misses in the first table goes to controllers.
#[test]
fn misses_reach_controllers_if_bridge_sends_them() {
    let switch = Switch::new(&["tcp,actions=goto_table:1", "udp,actions=drop"]);
    let punts = |packet: &str| {
        let actions = switch.translate(packet).actions;
        actions.iter().filter(|action| matches!(action, DatapathAction::Punt(_))).count()
    };
    assert_eq!(punts("icmp"), 0);
    let settings = BridgeSettings { sends_misses: true, ..BridgeSettings::default() };
    switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists");
    assert_eq!((punts("icmp"), punts("tcp"), punts("udp")), (1, 0, 0));
    let actions = switch.translate("icmp,in_port=3").actions;
    let [DatapathAction::Punt(punt)] = &actions[..] else { panic!("a packet-in") };
    assert_eq!((punt.reason, punt.cookie.number()), (PacketInReason::NoMatch, 0));
    assert_eq!(punt.miss, Some(TableMiss::NoRule));
    assert_eq!(punt.metadata.key().in_port(), PortNo::new(3));
}

#[test]
fn output_to_missing_port_is_left_out() {
    let switch = Switch::new(&["actions=output:77,output:2,output:65000"]);
    assert_eq!(switch.run("in_port=1"), "2");
}

#[test]
fn a_sample_has_the_headers_written_before() {
    let switch = Switch::new(&[
        "actions=sample(probability=7,collector_set_id=5),mod_dl_dst:02:00:00:00:00:09,\
         sample(probability=1,collector_set_id=6),output:2",
    ]);
    let actions = switch.run("in_port=1");
    assert!(actions.starts_with("sample(5) set("), "{actions}");
    assert!(actions.ends_with(") sample(6) 2"), "{actions}");
}

#[test]
fn the_ingress_port_is_decided_at_execution() {
    let switch = Switch::new(&["actions=output:1,output:2"]);
    let traversal = switch.translate("in_port=1");
    assert_eq!(switch.run("in_port=1"), "1 2");
    assert_eq!(traversal.mask.field(FieldId::InPort), 0);
    assert_eq!(switch.run("in_port=2"), "1 2");
}

#[test]
fn a_rewritten_in_port_is_compared_in_translation() {
    let switch = Switch::new(&["actions=output:1,output:2,load:0->NXM_OF_IN_PORT[],output:1"]);
    assert_eq!(switch.run("in_port=1"), "1 2 1!");
    let switch = Switch::new(&["actions=load:2->NXM_OF_IN_PORT[],output:2,output:3,in_port"]);
    assert_eq!(switch.run("in_port=1"), "3! 2!");
}

#[test]
fn in_port_output_consults_no_port_number() {
    let switch = Switch::new(&["actions=in_port"]);
    let traversal = switch.translate("in_port=1");
    assert_eq!(switch.run("in_port=1"), "back");
    assert_eq!(traversal.mask.field(FieldId::InPort), 0);
    switch.configure(2, PortConfig { no_fwd: true, ..PortConfig::default() });
    assert_eq!(switch.run("in_port=1"), "1!");
    assert_eq!(switch.run("in_port=2"), "");
}

#[test]
fn only_flood_skips_no_flood_ports() {
    let switch = Switch::new(&["in_port=1,actions=flood", "in_port=2,actions=all"]);
    switch.configure(3, PortConfig { no_flood: true, ..PortConfig::default() });
    assert_eq!(switch.run("in_port=1"), "1 2 4 100");
    assert_eq!(switch.run("in_port=2"), "1 2 3 4 100");
    assert!(switch.translate("in_port=1").reads.contains(&Object::Ports(BRIDGE)));
}

#[test]
fn down_or_blocked_ports_are_left_out() {
    let switch = Switch::new(&["actions=output:2,output:3,all"]);
    switch.configure(2, PortConfig { no_fwd: true, ..PortConfig::default() });
    switch.configure(3, PortConfig { port_down: true, ..PortConfig::default() });
    assert_eq!(switch.run("in_port=1"), "1 4 100");
}

#[test]
fn packets_of_a_no_recv_port_are_dropped() {
    let switch = Switch::new(&["actions=output:3"]);
    switch.configure(1, PortConfig { no_recv: true, ..PortConfig::default() });
    switch.configure(2, PortConfig { port_down: true, ..PortConfig::default() });
    assert_eq!(switch.run("in_port=1"), "");
    assert_eq!(switch.run("in_port=2"), "");
    assert_eq!(switch.run("in_port=4"), "3");
    assert!(switch.translate("in_port=1").visits.is_empty());
    assert_eq!(switch.translate("in_port=4").mask.field(FieldId::InPort), 0xffff_ffff);
}

#[test]
fn a_field_can_name_the_port() {
    let switch = Switch::new(&[
        "in_port=1,actions=load:3->NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..15]",
        "in_port=2,actions=load:0xfffe->NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..15]",
        "in_port=3,actions=output:NXM_NX_REG0[]",
    ]);
    assert_eq!(switch.run("in_port=1"), "3");
    assert_eq!(switch.run("in_port=2"), "100");
    assert_eq!(switch.translate("in_port=3").mask.field(FieldId::Reg0), 0xffff_ffff);
}

#[test]
fn output_with_max_len_truncates_the_packet() {
    let switch =
        Switch::new(&["actions=output(port=2,max_len=64),output(port=IN_PORT,max_len=20)"]);
    assert_eq!(switch.run("in_port=1"), "2/64 back/20");
}

#[test]
fn packet_in_reasons_depend_on_the_rule() {
    let switch = Switch::new(&[
        "cookie=1,priority=0,actions=controller",
        "cookie=2,in_port=2,actions=controller",
        "cookie=3,priority=0,in_port=3,actions=controller",
    ]);
    assert_eq!(switch.run("in_port=1"), "punt(NoMatch,table=0,cookie=0x1)");
    assert_eq!(switch.run("in_port=2"), "punt(Action,table=0,cookie=0x2)");
    let beside_it = "punt(NoMatch,table=0,cookie=0x1)";
    assert!([beside_it, "punt(Action,table=0,cookie=0x3)"].contains(&&*switch.run("in_port=3")));
}

#[test]
fn no_packet_in_port_sends_no_misses() {
    let switch =
        Switch::new(&["priority=0,actions=controller,output:2", "cookie=2,ip,actions=controller"]);
    switch.configure(1, PortConfig { no_packet_in: true, ..PortConfig::default() });
    assert_eq!(switch.run("arp,in_port=1"), "2");
    assert_eq!(switch.run("ip,in_port=1"), "punt(Action,table=0,cookie=0x2)");
}

#[test]
fn a_packet_in_shows_the_hidden_state() {
    let switch = Switch::new(&[
        "actions=load:7->NXM_NX_REG3[],write_metadata:5,goto_table:2",
        "table=2,actions=controller(userdata=01.02,id=9,max_len=77)",
    ]);
    let traversal = switch.translate("in_port=2");
    let [DatapathAction::Punt(punt)] = &*traversal.actions else { panic!("one packet-in") };
    let metadata = punt.metadata.key();
    assert_eq!(metadata.in_port(), PortNo::new(2));
    let fields = FlowMask::from(punt.metadata.mask());
    let fields = [FieldId::InPort, FieldId::Reg3, FieldId::Reg4].map(|field| fields.field(field));
    assert_eq!(fields, [0xffff_ffff, 0xffff_ffff, 0], "of the other fields, those that are set");
    assert_eq!((metadata.field(FieldId::Reg3), metadata.field(FieldId::Metadata)), (7, 5));
    assert_eq!((punt.controller_id, punt.max_len, &*punt.userdata), (9, 77, &[1, 2][..]));
    assert_eq!(punt.table.number(), 2);
    assert_eq!(traversal.mask.field(FieldId::InPort), 0xffff_ffff);
}

#[test]
fn packet_out_compares_with_its_port() {
    let switch = Switch::new(&["priority=0,actions=output:1,output:2"]);
    assert_eq!(switch.packet_out("in_port=2", "output:1,output:2,in_port"), "1! 2!");
    assert_eq!(switch.packet_out("in_port=CONTROLLER", "all"), "1! 2! 3! 4! 100!");
    assert_eq!(switch.packet_out("in_port=2", "output:TABLE"), "1!");
}

#[test]
fn only_a_packet_out_goes_through_the_tables() {
    let switch =
        Switch::new(&["actions=load:0xfff9->NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..15]"]);
    assert_eq!(switch.run("in_port=1"), "");
    assert_eq!(switch.translate("in_port=1").visits.len(), 1);
}

#[test]
fn action_set_of_packet_out_is_executed() {
    let switch = Switch::new(&["actions=write_actions(output:3)"]);
    assert_eq!(switch.packet_out("in_port=2", "output:1,output:TABLE,output:4"), "1! 4! 3!");
}
