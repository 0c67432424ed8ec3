//! Flows of all kinds share one chain: while the stages have room, every repeated packet hits.

use proptest::prelude::*;
use shunt_flow::FieldId;
use shunt_gigaflow::{
    adaptive::ProbeResult,
    cache::{Config, Fallback, Miss},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipeline::{Time, testing::generate};

use super::harness::{ChainFixture, config, packet};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_packet_hits_when_it_is_sent_again(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 1..12),
        policy in prop::sample::select(&PolicyName::ALL[..]),
        (stages, eviction) in (1_u8..=5, 0..Eviction::ALL.len()),
        order in any::<prop::sample::Index>(),
    ) {
        let config = Config { eviction: Eviction::ALL[eviction], ..config(policy, stages, 1000) };
        let mut fixture = ChainFixture { resumes: true, ..ChainFixture::new(&network, config) };
        // Packets with learn requests are never cached. New entries of one packet may change the
        // entries that another packet matches, for as many rounds as there are stages.
        let packets: Vec<_> = packets
            .into_iter()
            .filter(|key| fixture.checked.translate(key).learnings.is_empty())
            .collect();
        let first = if packets.is_empty() { 0 } else { order.index(packets.len()) };
        for _ in 0..=stages {
            for at in 0..packets.len() {
                fixture.send(&packets[(first + at) % packets.len()]);
            }
        }
        for (at, key) in packets.iter().enumerate() {
            prop_assert!(fixture.send(key).is_hit, "packet {at}");
        }
    }
}

#[test]
fn recirculated_and_other_flows_hit_separate_entries() {
    for fallback in [Fallback::Off, Fallback::OneIn(32)] {
        let config = Config { fallback, ..config(PolicyName::Joint, 4, 100) };
        let rules = [
            "table=0,dl_src=00:00:00:00:00:0a,actions=goto_table:1",
            "table=1,ip,nw_dst=10.0.0.1,actions=output:2",
            "table=1,ip,nw_dst=10.0.0.2,actions=check_pkt_larger(1000)->reg0[0],resubmit(,2)",
            "table=2,actions=output:3",
        ];
        let mut fixture =
            ChainFixture { resumes: true, ..ChainFixture::with_rules(&rules, config) };
        let to = |host| packet(&format!("udp,dl_src=00:00:00:00:00:0a,nw_dst=10.0.0.{host}"));
        // The flow that is partitioned installs an entry that the other flow also matches.
        for key in [to(1), to(2), to(1), to(2)] {
            fixture.send(&key);
        }
        let made = fixture.cache.counts().made;
        for key in [to(1), to(2), to(1), to(2)] {
            assert!(fixture.send(&key).is_hit);
        }
        assert_eq!(fixture.cache.counts().made, made);
    }
}

/// Returns rules of two tables: four sources, then `targets` destination ports.
fn sources_and_targets(targets: usize) -> Vec<String> {
    let sources = (0..4).map(|host| format!("ip,nw_src=10.1.0.{host},actions=goto_table:1"));
    let target = |host| format!("table=1,tcp,tp_dst={},actions=output:2", 1000 + host);
    sources.chain((0..targets).map(target)).collect()
}

#[test]
fn all_stages_fill_before_an_entry_is_evicted() {
    let rules = sources_and_targets(120);
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    for eviction in Eviction::ALL {
        for resumes in [false, true] {
            let config = Config { eviction, ..config(PolicyName::Joint, 4, 50) };
            let mut fixture = ChainFixture { resumes, ..ChainFixture::with_rules(&rules, config) };
            let flow = |number: usize| {
                let (source, target) = (number % 4, 1000 + number % 120);
                packet(&format!("tcp,nw_src=10.1.0.{source},tp_dst={target}"))
            };
            for number in 0..480 {
                fixture.send(&flow(number));
            }
            let hits = (0..480).filter(|number| fixture.send(&flow(*number)).is_hit).count();
            assert_eq!(hits, 480, "{eviction:?}, resumes: {resumes}");
            assert_eq!(fixture.cache.counts().evicted, 0);
        }
    }
}

#[test]
fn a_resumed_miss_shares_entries_of_whole_traversals() {
    let rules = sources_and_targets(8);
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut fixture = ChainFixture {
        resumes: true,
        ..ChainFixture::with_rules(&rules, config(PolicyName::OneToOne, 4, 50))
    };
    // A packet that resumes installs the entry of the target. A packet that does not resume shares
    // it.
    for (source, target) in [(0, 1000), (0, 1001), (1, 1001)] {
        fixture.send(&packet(&format!("tcp,nw_src=10.1.0.{source},tp_dst={target}")));
    }
    assert_eq!((fixture.resumed, fixture.cache.ltm().entries_count()), (1, 4));
    // The resumed packet shares the entry of the source, and the last packet the entry of the
    // target.
    assert_eq!(fixture.cache.counts().shared, 2);
}

#[test]
fn a_miss_without_partition_is_translated_once() {
    let rules = ["table=0,ip,actions=output:2"];
    let mut fixture = ChainFixture::with_rules(&rules, config(PolicyName::Joint, 4, 50));
    fixture.send(&packet("udp,nw_dst=10.0.0.1"));
    assert_eq!(fixture.cache.counts().translations, 1);
    let rules = sources_and_targets(1);
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut fixture = ChainFixture::with_rules(&rules, config(PolicyName::Joint, 4, 50));
    fixture.send(&packet("tcp,nw_src=10.1.0.0,tp_dst=1000"));
    assert_eq!(
        fixture.cache.counts().translations,
        2,
        "the whole traversal, then its sub-traversals"
    );
}

#[test]
fn a_packet_with_hidden_state_leaves_no_entry() {
    let mut fixture =
        ChainFixture::with_rules(&["table=0,actions=output:2"], config(PolicyName::Joint, 4, 50));
    let mut key = packet("udp");
    key.set_field(FieldId::Reg0, 5);
    let pipeline = std::sync::Arc::clone(&fixture.checked.pipeline);
    let (version, now) = (pipeline.version(), Time::ZERO);
    let miss = Miss { pipeline: &pipeline, key: &key, start: None, version, now };
    let traversal = fixture.cache.handle_miss(&mut fixture.store, miss, ProbeResult::Missed);
    assert_eq!((traversal.actions.len(), fixture.cache.ltm().entries_count()), (1, 0));
}

#[test]
fn a_retranslation_counts_as_no_miss() {
    let mut fixture = ChainFixture::with_rules(
        &["table=0,ip,actions=output:2"],
        config(PolicyName::Joint, 4, 50),
    );
    let key = packet("udp,nw_dst=10.0.0.1");
    let pipeline = std::sync::Arc::clone(&fixture.checked.pipeline);
    let (version, now) = (pipeline.version(), Time::ZERO);
    let miss = Miss { pipeline: &pipeline, key: &key, start: None, version, now };
    fixture.cache.handle_miss(&mut fixture.store, miss, ProbeResult::Retranslated);
    assert_eq!((fixture.cache.counts().misses, fixture.cache.ltm().entries_count()), (0, 1));
}

/// Returns rules that resubmit a packet 4,094 times plus `more`.
///
/// Each of eleven tables resubmits a packet twice to the next table.
fn resubmitting(more: usize) -> Vec<String> {
    let twice = |table: usize| {
        let next = table + 1;
        let more = if table == 0 { ",resubmit(,20)".repeat(more) } else { String::new() };
        let end = if table == 0 { ",output:2" } else { "" };
        format!("table={table},actions=resubmit(,{next}),resubmit(,{next}){more}{end}")
    };
    let ends = ["table=11,ip,nw_dst=10.0.0.1,actions=set_queue:1", "table=20,actions=set_queue:2"];
    (0..11).map(twice).chain(ends.map(str::to_owned)).collect()
}

#[test]
fn four_thousand_visits_are_one_entry() {
    for policy in PolicyName::ALL {
        for (more, is_sent) in [(2, true), (3, false)] {
            let rules = resubmitting(more);
            let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
            let mut fixture = ChainFixture::with_rules(&rules, config(policy, 4, 100));
            let packet = packet("udp,nw_dst=10.0.0.1");
            let traversal = fixture.checked.translate(&packet);
            let outcome = (traversal.error.is_none(), traversal.actions.is_empty());
            assert_eq!(outcome, (is_sent, !is_sent), "{more} more");
            assert!(traversal.visits.len() > 4000, "{}", traversal.visits.len());
            fixture.send(&packet);
            let sent = fixture.send(&packet);
            assert!(sent.is_hit && sent.entries == 1, "{policy}, {more} more: {}", sent.entries);
        }
    }
}
