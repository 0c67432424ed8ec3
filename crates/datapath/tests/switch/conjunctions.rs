//! Tests conjunctions in caches.
//!
//! A lookup that matches a conjunction has the priority of its clauses; the second lookup, with
//! `conj_id`, has the priority of the rule that it finds. The tests run packet threads with their
//! caches, and every eviction engine.

use shunt_datapath::thread::QueueSizes;
use shunt_flow::testing::packet::PacketBuilder;
use shunt_pipeline::FlowModCommand::{self, Add, DeleteStrict, ModifyStrict};

use crate::harness::{ENGINES, Engine, Switch, added, request};

/// The clauses of conjunction 7: packets from 10.0.0.1 to 10.0.0.2.
const CLAUSES: [&str; 2] = [
    "priority=10,ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)",
    "priority=10,ip,nw_dst=10.0.0.2,actions=conjunction(7,2/2)",
];

/// Returns a switch with the clauses and these rules.
/// The cache has an entry of a packet that matches the conjunction.
fn switch(engine: Engine, rules: &[&str]) -> Switch {
    let mut switch =
        Switch::with_engine(1, 4, super::thread_config(), QueueSizes::default(), engine);
    switch.apply(&added(&CLAUSES));
    switch.apply(&added(rules));
    switch
}

/// Sends the packet; returns its output port, or `None` if it is dropped.
fn run(switch: &mut Switch) -> Option<u32> {
    let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    assert!(switch.send(0, 1, &frame));
    switch.settle();
    let left: Vec<u32> = (2..=4).filter(|port| !switch.receive(0, *port).is_empty()).collect();
    assert!(left.len() < 2);
    left.first().copied()
}

/// A change of a rule, and its expected effect.
/// The flag is true if the change evicts the entry of the packet. The port is the packet's output
/// port after the change.
type Case<'a> = (FlowModCommand, &'a str, bool, Option<u32>);

/// Makes each change to these rules; checks the entry and the output port.
fn check(rules: &[&str], port: Option<u32>, cases: &[Case<'_>]) {
    for engine in ENGINES {
        for (command, change, takes, then) in cases {
            let mut switch = switch(*engine, rules);
            assert_eq!([run(&mut switch), run(&mut switch)], [port; 2], "{rules:?}");
            switch.apply(&[request(*command, change)]);
            let evicted = switch.counters(0).evicted.get();
            assert_eq!((evicted > 0, run(&mut switch)), (*takes, *then), "{rules:?}, {change}");
        }
    }
}

#[test]
fn a_rule_between_clause_and_conjunction_evicts_entries() {
    if !super::HAS_CACHE {
        return;
    }
    check(
        &["priority=20,conj_id=7,actions=output:3"],
        Some(3),
        &[
            (Add, "priority=15,ip,actions=output:4", true, Some(4)),
            (Add, "priority=11,ip,actions=output:4", true, Some(4)),
            // A rule wins over a conjunction with equal priority, even if the rule is newer.
            (Add, "priority=10,ip,actions=output:4", true, Some(4)),
            (Add, "priority=9,ip,actions=output:4", false, Some(3)),
        ],
    );
}

#[test]
fn second_lookup_has_rank_of_its_rule() {
    if !super::HAS_CACHE {
        return;
    }
    check(
        &["priority=5,conj_id=7,actions=output:3"],
        Some(3),
        &[
            (Add, "priority=7,ip,actions=output:4", true, Some(4)),
            (Add, "priority=4,ip,actions=output:4", false, Some(3)),
            (Add, "priority=6,conj_id=7,ip,actions=output:4", true, Some(4)),
            (Add, "priority=6,conj_id=8,ip,actions=output:4", false, Some(3)),
            (ModifyStrict, "priority=5,conj_id=7,actions=output:2", true, Some(2)),
            (DeleteStrict, "priority=5,conj_id=7", true, None),
        ],
    );
}

#[test]
fn a_changed_clause_evicts_the_entries_it_decides() {
    if !super::HAS_CACHE {
        return;
    }
    let other = "priority=11,conj_id=9,actions=output:4";
    check(
        &["priority=20,conj_id=7,actions=output:3", "priority=1,ip,actions=output:2", other],
        Some(3),
        &[
            (DeleteStrict, "priority=10,ip,nw_src=10.0.0.1", true, Some(2)),
            (DeleteStrict, "priority=10,ip,nw_dst=10.0.0.2", true, Some(2)),
        ],
    );
    check(
        &[
            "priority=20,conj_id=7,actions=output:3",
            "priority=12,ip,nw_src=10.0.0.1,actions=conjunction(9,1/2)",
            other,
        ],
        Some(3),
        &[(Add, "priority=12,ip,nw_dst=10.0.0.2,actions=conjunction(9,2/2)", true, Some(4))],
    );
}

#[test]
fn a_conjunction_without_a_rule_is_looked_up() {
    if !super::HAS_CACHE {
        return;
    }
    // No packet of conjunction 7 matches this rule: its second lookup finds nothing, so the first
    // lookup continues.
    let other = "priority=1,conj_id=0,ip,actions=output:2";
    let found = (Add, "priority=0,conj_id=7,actions=output:3", true, Some(3));
    let another = (Add, "priority=0,conj_id=8,actions=output:3", false, Some(2));
    check(&[other], Some(2), &[found, another]);
    check(&[], None, &[found]);
    // The second lookup finds a rule without `conj_id`, which the packet also matches.
    check(
        &["priority=1,ip,actions=output:2"],
        Some(2),
        &[
            (Add, "priority=0,conj_id=7,actions=output:3", false, Some(2)),
            (Add, "priority=2,conj_id=7,actions=output:3", true, Some(3)),
        ],
    );
}
