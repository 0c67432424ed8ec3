//! Tests changes of the tags of a chain, with every engine.

use shunt_datapath::{
    ThreadConfig,
    cache::{CacheConfig, ExactConfig, Wildcard},
    thread::QueueSizes,
};
use shunt_flow::{testing::packet::PacketBuilder, text::NoPortNames};
use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipeline::{GroupCommand, Modification, text::parse_group_mod};

use crate::harness::{ENGINES, Engine, Switch, added};

/// Returns a switch with these rules, and with one LTM entry for each table.
fn switch(engine: Engine, rules: &[&str]) -> Switch {
    let wildcard = Wildcard::Gigaflow(Config {
        capacity: Capacity { stages_count: 4, stage_entries_max: 100 },
        policy: PolicyName::OneToOne,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        tag_bits: 16,
        seed: 0,
    });
    // The exact-match cache gets no entries, so every packet is looked up in the stages.
    let exact = ExactConfig { insert_inverse: 0, ..ExactConfig::default() };
    let caches = CacheConfig { wildcard, exact, ..CacheConfig::default() };
    let config = ThreadConfig { caches, ..ThreadConfig::default() };
    let mut switch = Switch::with_engine(1, 4, config, QueueSizes::default(), engine);
    switch.apply(&added(rules));
    switch
}

fn frame(source: u8, target: u8) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, source], [10, 0, 0, target])
        .macs([2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 9])
        .udp(1, 2)
        .build()
}

/// Returns the output ports of a packet.
/// With each port is the last byte of the Ethernet source that the packet has at the port.
fn run(switch: &mut Switch, source: u8, target: u8) -> Vec<(u32, u8)> {
    assert!(switch.send(0, 1, &frame(source, target)));
    switch.settle();
    let mut left = Vec::new();
    for port in 2..=4 {
        left.extend(switch.receive(0, port).iter().map(|frame| (port, frame[11])));
    }
    left
}

/// Returns a modification of group 1, which has one bucket.
fn group_mod(command: GroupCommand, bucket: &str) -> Modification {
    let text = format!("group_id=1,type=all,bucket={bucket}");
    parse_group_mod(command, &text, &NoPortNames).unwrap().into()
}

/// Rules by which sources 1 and 2 differ in a register that no rule reads.
const IDLE_REGISTER: [&str; 4] = [
    "ip,nw_src=10.0.0.1,actions=load:1->NXM_NX_REG5[],goto_table:1",
    "ip,nw_src=10.0.0.2,actions=load:2->NXM_NX_REG5[],goto_table:1",
    "table=1,ip,nw_dst=10.0.0.1,actions=output:2",
    "table=1,ip,nw_dst=10.0.0.2,actions=output:3",
];

/// Sends packets that create four LTM entries with one shared tag.
/// Then adds a rule that reads the register.
///
/// No earlier packet consulted the register. The update evicts every entry with the tag, as input
/// or as output. Afterwards, packets from the two sources to destination 9 are forwarded by their
/// register.
fn check(
    prepare: impl Fn(&mut Switch),
    grow: impl Fn(&mut Switch),
    expected: &[Vec<(u32, u8)>; 2],
) {
    let crossed = |switch: &mut Switch| [run(switch, 2, 1), run(switch, 1, 2)];
    let counted = |switch: &Switch| {
        let counters = switch.counters(0);
        [&counters.evicted, &counters.entries, &counters.chain.tags].map(|own| own.get())
    };
    for (place, engine) in ENGINES.iter().enumerate() {
        let mut switch = switch(*engine, &[]);
        prepare(&mut switch);
        switch.apply(&added(&IDLE_REGISTER));
        assert_eq!([run(&mut switch, 1, 1), run(&mut switch, 2, 2)], [[(2, 0)], [(3, 0)]]);
        assert_eq!(crossed(&mut switch), [[(2, 0)], [(3, 0)]]);
        assert_eq!(counted(&switch), [0, 4, 2], "the tag of the bridge, and that of table 1");
        grow(&mut switch);
        // The iterative engine, first in the list, keeps entries with an unchanged result, even if
        // they now consult other bits. So it keeps the two entries after the tag, although no entry
        // leads to them now.
        let is_left = place == 0;
        assert_eq!(counted(&switch), if is_left { [2, 2, 1] } else { [4, 0, 0] });
        for _ in 0..2 {
            assert_eq!([run(&mut switch, 1, 9), run(&mut switch, 2, 9)], *expected);
        }
        assert_eq!(crossed(&mut switch), [[(2, 0)], [(3, 0)]]);
        // The tags now depend on the register: there is one tag for each value.
        assert_eq!(counted(&switch)[2], 3 + u64::from(is_left));
    }
}

/// A new rule matches a register that earlier tags do not include.
#[test]
fn a_rule_with_new_bits_evicts_old_tags() {
    let reader = "table=1,priority=9,ip,reg5=1,nw_dst=10.0.0.9,actions=output:4";
    check(|_| {}, |switch| switch.apply(&added(&[reader])), &[vec![(4, 0)], vec![]]);
}

/// A changed bucket reads a register that earlier tags do not include.
#[test]
fn a_bucket_with_new_bits_evicts_old_tags() {
    check(
        |switch| {
            switch.modify([group_mod(GroupCommand::Add, "output:4")]);
            switch.apply(&added(&["table=1,ip,nw_dst=10.0.0.9,actions=group:1"]));
        },
        |switch| {
            let moves = "move:NXM_NX_REG5[0..7]->NXM_OF_ETH_SRC[0..7],output:4";
            switch.modify([group_mod(GroupCommand::Modify, moves)]);
        },
        &[vec![(4, 1)], vec![(4, 2)]],
    );
}

/// A learned rule matches a register that earlier tags do not include.
#[test]
fn learned_rules_with_new_bits_evict_old_tags() {
    let learn_rule = "ip,nw_src=10.0.0.3,actions=load:4->NXM_NX_REG6[],learn(table=1,priority=9,\
                   NXM_OF_ETH_TYPE[]=0x800,NXM_OF_IP_DST[],NXM_NX_REG5[]=1,\
                   output:NXM_NX_REG6[])";
    check(
        |switch| switch.apply(&added(&[learn_rule])),
        |switch| assert_eq!(run(switch, 3, 9), []),
        &[vec![(4, 0)], vec![]],
    );
}

/// The actions after `resubmit` are in the tag; a changed rule gives another tag.
#[test]
fn pending_actions_are_those_of_the_current_rule() {
    for engine in ENGINES {
        let rules = ["table=1,ip,nw_dst=10.0.0.1,actions=output:2"];
        let mut switch = switch(*engine, &rules);
        for (round, port) in (1..).zip([3, 4, 3]) {
            switch.apply(&added(&[&format!("ip,actions=resubmit(,1),output:{port}")]));
            for _ in 0..3 {
                assert_eq!(run(&mut switch, 1, 1), [(2, 0), (port, 0)]);
            }
            let chain = &switch.counters(0).chain;
            assert_eq!((chain.hits.get(), chain.steps.get()), (2 * round, 4 * round));
        }
    }
}
