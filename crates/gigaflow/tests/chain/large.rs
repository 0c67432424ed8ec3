//! Entries of large flows, which a full stage evicts last.

use shunt_flow::FlowKey;
use shunt_gigaflow::{cache::Config, ltm::Eviction, partition::PolicyName};
use shunt_pipeline::Time;

use super::harness::{ChainFixture, config, packet};

/// A stage of eight entries, with an entry for each of the first eight hosts.
fn full_stage(eviction: Eviction) -> ChainFixture {
    let rules: Vec<_> = (0..60)
        .map(|host| format!("table=0,priority=1,ip,nw_dst=10.0.0.{host},actions=output:2"))
        .collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let config = Config { eviction, ..config(PolicyName::OneToOne, 1, 8) };
    let mut fixture = ChainFixture::with_rules(&rules, config);
    (0..8).for_each(|host| drop(fixture.send(&key_to(host))));
    fixture
}

fn key_to(host: u8) -> FlowKey {
    packet(&format!("tcp,nw_dst=10.0.0.{host}"))
}

fn set_large(fixture: &mut ChainFixture, host: u8, is_large: bool) {
    assert!(fixture.send(&key_to(host)).is_hit);
    let entry = fixture.walk.entries().next().expect("the packet hit it");
    fixture.cache.ltm_mut().set_large(entry, is_large, Time::from_nanoseconds(fixture.now));
}

/// Sends two packets of each of many new flows.
fn send_new(fixture: &mut ChainFixture) {
    for host in 8..50 {
        assert!(!fixture.send(&key_to(host)).is_hit);
        assert!(fixture.send(&key_to(host)).is_hit);
    }
}

#[test]
fn a_large_flow_outlives_new_ones() {
    for eviction in [Eviction::LeastRecent, Eviction::SecondUse, Eviction::LeastShared] {
        let mut fixture = full_stage(eviction);
        set_large(&mut fixture, 0, true);
        send_new(&mut fixture);
        assert!(fixture.send(&key_to(0)).is_hit, "{eviction:?}");
        set_large(&mut fixture, 0, false);
        send_new(&mut fixture);
        assert!(!fixture.send(&key_to(0)).is_hit, "{eviction:?}");
    }
}

#[test]
fn large_flows_leave_half_of_a_stage() {
    let mut fixture = full_stage(Eviction::SecondUse);
    (0..8).for_each(|host| set_large(&mut fixture, host, true));
    send_new(&mut fixture);
    let entries = fixture.cache.ltm().entries_count();
    let large = (0..8).filter(|host| fixture.send(&key_to(*host)).is_hit).count();
    assert_eq!(entries, 8);
    // The lookups of those that are gone made entries again, but not in the place of large ones.
    assert_eq!(large, 4);
}
