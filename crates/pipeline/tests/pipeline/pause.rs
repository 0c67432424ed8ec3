//! Tests of packets that pause at a controller and continue when it sends them back.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_pipeline::{DatapathAction, Punt, Traversal};

use crate::switch::{Switch, describe, key};

/// Returns the packet-ins of a traversal.
pub(crate) fn punts(traversal: &Traversal) -> Vec<Arc<Punt>> {
    let punt = |action: &DatapathAction| match action {
        DatapathAction::Punt(punt) => Some(Arc::clone(punt)),
        _ => None,
    };
    traversal.actions.iter().filter_map(punt).collect()
}

/// Returns the headers of a packet, which are all that a frame shows.
fn frame(packet: &str) -> FlowKey {
    let mut frame = key(packet);
    frame.set_bridge(0);
    frame.set_in_port(shunt_flow::PortNo::new(0));
    frame
}

impl Switch {
    /// Pauses a packet, and returns its packet-in.
    pub(crate) fn pause(&self, packet: &str) -> Arc<Punt> {
        punts(&self.translate(packet)).remove(0)
    }

    /// Returns the result of a packet that is sent back unchanged.
    pub(crate) fn resume(&self, packet: &str, punt: &Punt) -> String {
        self.resume_as(packet, punt, &punt.metadata)
    }

    fn resume_as(&self, packet: &str, punt: &Punt, metadata: &Match) -> String {
        let continuation = punt.continuation.as_ref().expect("the packet has paused");
        let traversal = self.pipeline.resume_paused(&frame(packet), continuation, metadata);
        traversal.error.map_or_else(|| describe(&traversal.actions), |error| error.to_string())
    }
}

#[test]
fn a_resumed_packet_continues_after_the_pause() {
    let switch = Switch::new(&[
        "table=0,actions=set_field:7->reg0,push:NXM_NX_REG0[],resubmit(,1),output:3",
        "table=1,actions=output:4,controller(pause),set_field:2->reg1,resubmit(,2)",
        "table=2,reg0=7,reg1=2,actions=pop:NXM_NX_REG2[],output:NXM_NX_REG1[]",
    ]);
    assert_eq!(switch.run("in_port=1"), "4 punt(Action,table=1,cookie=0x0)");
    let punt = switch.pause("in_port=1");
    // First the remaining actions in table 1 run, then those of the rule that resubmitted.
    assert_eq!(switch.resume("in_port=1", &punt), "2! 3!");
}

#[test]
fn a_continuation_keeps_the_old_actions() {
    let switch =
        Switch::new(&["actions=controller(pause),resubmit(,1)", "table=1,actions=output:2"]);
    let punt = switch.pause("in_port=1");
    switch.add(&["actions=drop", "table=1,actions=output:3"]);
    assert_eq!(switch.resume("in_port=1", &punt), "3!", "lookups use the current rules");
}

#[test]
fn a_resumed_packet_has_the_returned_fields() {
    let switch = Switch::new(&[
        "actions=set_field:1->reg0,controller(pause),output:NXM_NX_REG0[],output:in_port",
    ]);
    let punt = switch.pause("in_port=4");
    assert_eq!(switch.resume("in_port=4", &punt), "1! 4!");
    let mut metadata = punt.metadata.key();
    metadata.set_field(FieldId::Reg0, 2);
    metadata.set_in_port(shunt_flow::PortNo::new(3));
    let mask = FlowMask::from(punt.metadata.mask());
    assert_eq!(switch.resume_as("in_port=4", &punt, &Match::new(&metadata, &mask)), "2! 3!");
    // A field that the controller omits is zero, and there is no port 0.
    assert_eq!(switch.resume_as("in_port=4", &punt, &Match::any()), "");
}

#[test]
fn a_packet_is_sent_back_as_another_packet() {
    let switch = Switch::new(&[
        "actions=controller(pause),resubmit(,1)",
        "table=1,tcp,tp_dst=80,actions=output:2",
        "table=1,udp,actions=output:3",
    ]);
    let punt = switch.pause("tcp,tp_dst=80");
    assert_eq!(switch.resume("tcp,tp_dst=80", &punt), "2!");
    assert_eq!(switch.resume("udp,tp_dst=80", &punt), "3!");
}

#[test]
fn pause_in_clone_stops_clone_alone() {
    let switch = Switch::new(&["actions=clone(controller(pause),output:2),output:3"]);
    assert_eq!(switch.run("in_port=1"), "punt(Action,table=0,cookie=0x0) 3");
    let punt = switch.pause("in_port=1");
    assert_eq!(switch.resume("in_port=1", &punt), "2!");
}

#[test]
fn the_action_set_is_delayed_too() {
    let switch = Switch::new(&[
        "actions=controller(pause),output:3,write_actions(output:2),goto_table:1",
        "table=1,actions=output:4",
    ]);
    assert_eq!(switch.run("in_port=1"), "punt(Action,table=0,cookie=0x0)");
    assert_eq!(switch.resume("in_port=1", &switch.pause("in_port=1")), "3! 4! 2!");
}

#[test]
fn a_packet_may_pause_any_number_of_times() {
    let rule = format!("actions={}output:2", "controller(pause),".repeat(20));
    let switch = Switch::new(&[&rule]);
    let mut punt = switch.pause("in_port=1");
    for _ in 1..20 {
        let continuation = punt.continuation.as_ref().expect("the packet has paused");
        let traversal =
            switch.pipeline.resume_paused(&frame("in_port=1"), continuation, &punt.metadata);
        punt = punts(&traversal).remove(0);
    }
    assert_eq!(switch.resume("in_port=1", &punt), "2!");
}

#[test]
fn paused_actions_add_to_the_mask() {
    let switch = Switch::new(&["actions=controller(pause),output:NXM_NX_REG5[]"]);
    let traversal = switch.translate("reg5=2");
    assert_eq!(
        traversal.mask.field(FieldId::Reg5),
        0xffff_ffff,
        "the continuation has the register"
    );
}
