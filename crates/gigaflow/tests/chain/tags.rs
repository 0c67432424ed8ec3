//! Tests that tags are held, counted, freed and bounded.

use shunt_gigaflow::{cache::Config, ltm::Eviction, partition::PolicyName};
use shunt_pipeline::FlowModCommand;

use super::harness::{ChainFixture, config, packet, request};

/// Returns a fixture in which each source has its own tag.
fn many_tags(count: u32, config: Config) -> (ChainFixture, Vec<shunt_flow::FlowKey>) {
    let source = |number: u32| format!("10.1.{}.{}", number >> 8, number & 0xff);
    let mut rules: Vec<String> = (0..count)
        .map(|number| {
            let source = source(number);
            format!(
                "table=0,ip,nw_src={source},actions=load:{}->NXM_NX_REG0[],goto_table:1",
                number + 1
            )
        })
        .collect();
    rules.push("table=1,reg0=0/1,ip,nw_dst=10.0.0.1,actions=output:2".to_owned());
    rules.push("table=1,reg0=1/1,ip,nw_dst=10.0.0.1,actions=output:3".to_owned());
    // A later table reads all bits of the register, so each value has its own tag.
    rules.push("table=1,priority=9,reg0=0xffffffff,actions=drop".to_owned());
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let packets = (0..count)
        .map(|number| packet(&format!("tcp,nw_src={},nw_dst=10.0.0.1", source(number))))
        .collect();
    (ChainFixture::with_rules(&rules, config), packets)
}

#[test]
fn without_tags_flows_become_megaflows() {
    let config = Config { tag_bits: 3, ..config(PolicyName::Joint, 4, 1000) };
    let (mut fixture, packets) = many_tags(40, config);
    for packet in &packets {
        fixture.send(packet);
        assert!(fixture.send(packet).is_hit, "as a megaflow, if not as sub-traversals");
    }
    let counts = fixture.cache.counts();
    assert_eq!(fixture.cache.ltm().tags().len(), 8);
    assert_eq!(counts.without_tags, 40 - 7);
}

#[test]
fn tags_that_no_entry_has_are_free_again() {
    // Three entries before and three after a partition point use at most seven tags, with the tag
    // of the bridge.
    let config = Config { tag_bits: 3, ..config(PolicyName::Disjoint, 2, 3) };
    let (mut fixture, packets) = many_tags(100, config);
    for some in packets.chunks(25) {
        for packet in some {
            fixture.send(packet);
            let sent = fixture.send(packet);
            assert_eq!((sent.is_hit, sent.entries), (true, 2), "as sub-traversals");
        }
        fixture.lose(u64::MAX);
        assert!(fixture.cache.ltm().tags().is_empty(), "no entry, no tag");
    }
    let counts = fixture.cache.counts();
    assert_eq!(counts.without_tags, 0, "100 states use 8 tags one after the other");
    assert!(counts.evicted >= 100, "{} entries evicted", counts.evicted);
}

#[test]
fn entries_stay_while_flow_is_installed() {
    for eviction in [Eviction::LeastRecent, Eviction::LeastShared] {
        let config = Config { eviction, ..config(PolicyName::Disjoint, 2, 1) };
        let (mut fixture, packets) = many_tags(6, config);
        for packet in &packets {
            fixture.send(packet);
            assert!(fixture.send(packet).is_hit, "{eviction:?}: the newest flow is never lost");
        }
    }
}

#[test]
fn unread_state_is_not_in_tag() {
    let rules = [
        "table=0,cookie=1,ip,nw_src=10.1.0.1,actions=load:1->NXM_NX_REG5[],goto_table:1",
        "table=0,cookie=2,ip,nw_src=10.1.0.2,actions=load:2->NXM_NX_REG5[],goto_table:1",
        "table=1,tcp,nw_dst=10.0.0.1,actions=output:2",
        "table=1,tcp,nw_dst=10.0.0.2,actions=output:3",
    ];
    let flow =
        |source, target| packet(&format!("tcp,nw_src=10.1.0.{source},nw_dst=10.0.0.{target}"));
    let mut fixture = ChainFixture::with_rules(&rules, config(PolicyName::OneToOne, 4, 100));
    for (source, target) in [(1, 1), (2, 2)] {
        assert!(!fixture.send(&flow(source, target)).is_hit);
    }
    assert_eq!(fixture.cache.ltm().tags().len(), 2, "the bridge, and table 1");
    assert!(fixture.send(&flow(1, 2)).is_hit);
    // From now on table 1 reads the register, so entries of tags without the register become stale.
    let reads = "table=1,priority=9,tcp,reg5=2,nw_dst=10.0.0.1,actions=output:4";
    fixture.change(&request(FlowModCommand::Add, reads));
    for (source, target) in [(1, 1), (2, 1), (1, 2), (2, 2), (1, 1), (2, 1)] {
        fixture.send(&flow(source, target));
    }
    assert!(fixture.send(&flow(2, 1)).is_hit && fixture.send(&flow(1, 1)).is_hit);
}
