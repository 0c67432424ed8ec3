//! Set duelling in the cache: megaflows and sub-traversals replace each other without a wrong
//! packet.

use shunt_gigaflow::{
    adaptive::{Granularity, ROUND},
    cache::{Config, Fallback},
    partition::PolicyName,
};

use super::harness::{ChainFixture, config, packet};

#[test]
fn flows_that_share_nothing_become_correct_megaflows() {
    for resumes in [false, true] {
        become_megaflows(resumes);
    }
}

fn become_megaflows(resumes: bool) {
    let hosts = 40_u32;
    let mut rules = Vec::new();
    for host in 0..hosts {
        rules.push(format!("table=0,ip,nw_src=10.1.0.{host},actions=goto_table:1"));
        rules.push(format!("table=1,tcp,tp_dst={},actions=output:2", 1000 + host));
    }
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let config = Config { fallback: Fallback::OneIn(2), ..config(PolicyName::Disjoint, 2, 25) };
    let mut fixture = ChainFixture { resumes, ..ChainFixture::with_rules(&rules, config) };
    let packets: Vec<_> = (0..hosts)
        .map(|host| {
            packet(&format!("tcp,nw_src=10.1.0.{host},nw_dst=10.0.0.1,tp_dst={}", 1000 + host))
        })
        .collect();
    let rounds = ROUND as usize * 8 * 6 / packets.len();
    for _ in 0..rounds {
        for packet in &packets {
            fixture.send(packet);
        }
    }
    assert_eq!(fixture.cache.granularity(&packets[0], None), Granularity::Megaflows);
    // Further packets evict the remaining sub-traversals.
    for _ in 0..4 {
        for packet in &packets {
            fixture.send(packet);
        }
    }
    let hits = packets.iter().filter(|packet| fixture.send(packet).is_hit).count();
    assert!(hits > 30, "{hits} of {hosts} fit as megaflows");
}
