//! Known faults of caches of sub-traversals: one minimal example for each class of wrong
//! forwarding.
//!
//! The harness compares the outcome of every packet with the pipeline. The tests also check that
//! packets hit.

use shunt_flow::FlowKey;
use shunt_gigaflow::{ltm::Coverage, partition::PolicyName};
use shunt_pipeline::{FlowModCommand, testing::generate::Op};

use super::harness::{ChainFixture, config, packet, request};

/// A packet, and the ports that it leaves by.
type Flow = (FlowKey, &'static [u32]);

/// Runs a test with every policy and with one to five stages.
///
/// `everywhere` checks that packets hit, and with `one-to-one` that packets hit several entries.
fn everywhere(lines: &[&str], mut check: impl FnMut(&mut ChainFixture)) {
    for policy in PolicyName::ALL {
        for (stages_count, resumes) in (1..=5).flat_map(|count| [(count, false), (count, true)]) {
            let config = config(policy, stages_count, 100);
            let mut fixture = ChainFixture { resumes, ..ChainFixture::with_rules(lines, config) };
            check(&mut fixture);
            let tally = fixture.tally;
            assert!(tally.hits > 0, "{policy}, {stages_count} stages: {tally:?}");
            if policy == PolicyName::OneToOne && stages_count > 1 {
                assert!(tally.chains > 0, "{stages_count} stages: {tally:?}");
                assert!(fixture.cache.counts().made >= 2);
            }
        }
    }
}

/// Sends all packets three times. At the last time, all packets must hit.
fn send_all(fixture: &mut ChainFixture, flows: &[Flow]) {
    for _ in 0..2 {
        for (packet, ports) in flows {
            assert_eq!(fixture.send(packet).ports, *ports, "{packet:?}");
        }
    }
    for (packet, ports) in flows {
        let sent = fixture.send(packet);
        assert!(sent.is_hit, "{packet:?}");
        assert_eq!(sent.ports, *ports, "{packet:?}");
    }
}

fn tcp(text: &str) -> FlowKey {
    packet(&format!("tcp,{text}"))
}

/// Headers of a packet from host 0a to 10.0.0.1.
const A: &str = "dl_src=00:00:00:00:00:0a,nw_dst=10.0.0.1";
/// Headers of a packet from host 0b to 10.0.0.2.
const B: &str = "dl_src=00:00:00:00:00:0b,nw_dst=10.0.0.2";

#[test]
fn a_register_that_is_read_later_is_tagged() {
    let rules = [
        "table=0,dl_src=00:00:00:00:00:0a,actions=load:1->NXM_NX_REG0[],resubmit(,1)",
        "table=0,dl_src=00:00:00:00:00:0b,actions=load:2->NXM_NX_REG0[],resubmit(,1)",
        "table=1,dl_src=00:00:00:00:00:0a/ff:ff:ff:ff:ff:fe,actions=resubmit(,2)",
        "table=2,reg0=1,tcp,nw_dst=10.0.0.0/24,actions=resubmit(,3)",
        "table=2,reg0=2,tcp,nw_dst=10.0.0.0/24,actions=resubmit(,4)",
        "table=3,actions=output:2",
        "table=4,actions=output:3",
    ];
    everywhere(&rules, |fixture| send_all(fixture, &[(tcp(A), &[2]), (tcp(B), &[3])]));
}

#[test]
fn actions_after_resubmit_are_in_tag() {
    let rules = [
        "table=0,dl_src=00:00:00:00:00:0a,actions=resubmit(,1),resubmit(,2)",
        "table=0,dl_src=00:00:00:00:00:0b,actions=resubmit(,1),resubmit(,3)",
        "table=1,tcp,nw_dst=10.0.0.0/24,actions=load:1->NXM_NX_REG1[]",
        "table=2,actions=output:2",
        "table=3,actions=output:3",
    ];
    everywhere(&rules, |fixture| {
        send_all(fixture, &[(tcp(A), &[2]), (tcp(A), &[2]), (tcp(B), &[3])]);
    });
}

#[test]
fn the_action_set_is_in_the_tag() {
    let rules = [
        "table=0,dl_dst=00:00:00:00:00:02,actions=write_actions(output:2),goto_table:1",
        "table=0,dl_dst=00:00:00:00:00:03,actions=write_actions(output:3),goto_table:1",
        "table=1,dl_dst=00:00:00:00:00:00/ff:ff:ff:ff:ff:00,actions=goto_table:2",
        "table=2,tcp,nw_dst=10.0.0.0/24,actions=goto_table:3",
        "table=3,tcp,nw_dst=10.0.0.0/16,actions=write_metadata:1",
    ];
    let to = |mac: &str| tcp(&format!("dl_dst=00:00:00:00:00:0{mac},nw_dst=10.0.0.1"));
    everywhere(&rules, |fixture| send_all(fixture, &[(to("2"), &[2]), (to("3"), &[3])]));
}

/// A field that an action moves into a register is in the match of the entry.
#[test]
fn the_match_has_bits_that_actions_read() {
    let rules = [
        "table=0,tcp,nw_dst=10.0.0.0/24,actions=move:NXM_OF_IP_SRC[0..7]->NXM_NX_REG0[0..7],resubmit(,1)",
        "table=1,reg0=1,actions=output:2",
        "table=1,reg0=2,actions=output:3",
    ];
    let from = |source: u8| tcp(&format!("nw_src=10.1.0.{source},nw_dst=10.0.0.1"));
    everywhere(&rules, |fixture| send_all(fixture, &[(from(1), &[2]), (from(2), &[3])]));
}

#[test]
fn later_fragment_matches_no_whole_packet_entry() {
    let rules = [
        "table=0,priority=1,actions=resubmit(,1)",
        "table=1,priority=2,tcp,tp_dst=80,actions=output:2",
        "table=1,priority=1,actions=output:3",
    ];
    let whole = tcp("nw_dst=10.0.0.1,tp_dst=80,nw_frag=no");
    let later = tcp("nw_dst=10.0.0.1,nw_frag=later");
    let first = tcp("nw_dst=10.0.0.1,tp_dst=80,nw_frag=first");
    everywhere(&rules, |fixture| {
        send_all(fixture, &[(whole.clone(), &[2]), (later.clone(), &[3]), (first.clone(), &[3])]);
    });
}

#[test]
fn every_packet_of_an_entry_is_rewritten() {
    let rules = [
        "table=0,tcp,nw_dst=10.0.0.0/24,actions=mod_dl_src:02:00:00:00:00:01,\
         mod_dl_dst:02:00:00:00:00:02,dec_ttl,resubmit(,1)",
        "table=1,tcp,nw_dst=10.0.0.0/16,actions=output:2",
    ];
    // One packet has the values already that the rule writes.
    let plain = |more: &str| tcp(&format!("nw_dst=10.0.0.1,{more}"));
    let packets: [Flow; 3] = [
        (plain("dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02"), &[2]),
        (plain("dl_src=00:00:00:00:00:0a"), &[2]),
        (plain("dl_src=00:00:00:00:00:0b,nw_ttl=1"), &[]),
    ];
    everywhere(&rules, |fixture| send_all(fixture, &packets));
}

#[test]
fn an_entry_matches_headers_before_its_rewrite() {
    let rules = [
        "table=0,tcp,nw_dst=10.0.0.0/24,actions=mod_nw_dst:10.9.9.9,resubmit(,1)",
        "table=1,tcp,nw_dst=10.0.0.0/8,actions=output:2",
    ];
    let to = |target: &str| tcp(&format!("nw_dst={target}"));
    everywhere(&rules, |fixture| {
        let written = ["10.0.0.1", "10.0.0.2"].map(|target| (to(target), &[2][..]));
        let others = ["10.9.9.9", "10.8.0.1"].map(|target| (to(target), &[][..]));
        send_all(fixture, &[written, others].concat());
    });
}

#[test]
fn an_output_compares_with_the_written_in_port() {
    // An output skips the port in `in_port`: the ingress port, or a value that a rule wrote to the
    // field.
    let rules = [
        "table=0,dl_src=00:00:00:00:00:0a,actions=load:3->NXM_OF_IN_PORT[],goto_table:1",
        "table=0,dl_src=00:00:00:00:00:0b,actions=goto_table:1",
        "table=1,tcp,nw_dst=10.0.0.0/24,actions=output:1,goto_table:2",
        "table=2,tcp,nw_dst=10.0.0.0/16,actions=output:3,in_port",
    ];
    let by = |port: u8, from: &str| tcp(&format!("in_port={port},{from}"));
    let packets: [Flow; 6] = [
        (by(1, A), &[1, 3]),
        (by(1, B), &[3, 1]),
        (by(3, A), &[1, 3]),
        (by(3, B), &[1, 3]),
        (by(4, A), &[1, 3]),
        (by(4, B), &[1, 3, 4]),
    ];
    everywhere(&rules, |fixture| send_all(fixture, &packets));
}

#[test]
fn no_received_header_sets_a_tag() {
    let rules = [
        "table=0,priority=1,dl_src=00:00:00:00:00:0a,actions=resubmit(,1)",
        "table=0,priority=0,actions=drop",
        "table=1,dl_src=00:00:00:00:00:00/ff:ff:ff:ff:ff:00,actions=resubmit(,2)",
        "table=2,tcp,nw_dst=10.0.0.0/24,actions=resubmit(,3)",
        "table=3,actions=output:2",
    ];
    everywhere(&rules, |fixture| {
        send_all(fixture, &[(tcp(A), &[2])]);
        for number in 0..64 {
            let forged =
                [format!("nw_tos={}", number << 2), format!("vlan_tci={}", 0x1000 | number)];
            for tag in forged {
                let packet = tcp(&format!("dl_src=00:00:00:00:00:0c,nw_dst=10.0.0.1,{tag}"));
                assert_eq!(fixture.send(&packet).ports, []);
            }
        }
    });
}

#[test]
fn no_tag_leaves_in_a_header() {
    let rules = [
        "table=0,priority=1,dl_src=00:00:00:00:00:0a,actions=resubmit(,1)",
        "table=1,tcp,nw_dst=10.0.0.0/24,actions=output:2",
    ];
    // The oracle compares all headers of sent packets. Packets of every traffic class hit.
    let of_class = |class: u8| tcp(&format!("{A},nw_tos={}", class << 2));
    let packets: Vec<Flow> = (0..64).map(|class| (of_class(class), &[2][..])).collect();
    everywhere(&rules, |fixture| send_all(fixture, &packets));
}

#[test]
fn a_changed_table_evicts_stale_entries() {
    let rules = ["table=0,actions=resubmit(,1)", "table=1,priority=1,tcp,actions=output:2"];
    everywhere(&rules, |fixture| {
        send_all(fixture, &[(tcp(A), &[2])]);
        fixture.change(&request(FlowModCommand::Modify, "table=1,tcp,actions=output:3"));
        send_all(fixture, &[(tcp(A), &[3])]);
        fixture.change(&request(
            FlowModCommand::Add,
            "table=1,priority=9,tcp,nw_dst=10.0.0.0/8,actions=output:4",
        ));
        send_all(fixture, &[(tcp(A), &[4]), (tcp(B), &[4])]);
        fixture.change(&request(FlowModCommand::Delete, "table=1"));
        send_all(fixture, &[(tcp(A), &[]), (tcp(B), &[])]);
        assert_eq!(fixture.tally.changes, 3);
        assert!(fixture.tally.stale >= 3, "{:?}", fixture.tally);
    });
}

#[test]
fn an_early_output_is_sent_once() {
    let rules = [
        "group_id=1,type=all,bucket=output:4,bucket=dec_ttl,output:4",
        "table=0,dl_src=00:00:00:00:00:0a,actions=output:3,resubmit(,1)",
        "table=1,tcp,nw_dst=10.0.0.0/24,actions=group:1,resubmit(,2)",
        "table=2,actions=output:2",
    ];
    everywhere(&rules, |fixture| send_all(fixture, &[(tcp(A), &[3, 4, 4, 2])]));
}

#[test]
fn non_ip_frames_are_sent_once() {
    let rules = ["table=0,actions=resubmit(,1)", "table=1,actions=output:2"];
    let other = packet("dl_type=0x88b5,dl_dst=00:00:00:00:00:02");
    everywhere(&rules, |fixture| send_all(fixture, &[(other.clone(), &[2])]));
}

#[test]
fn drops_are_cached() {
    let rules = ["table=0,tcp,nw_dst=10.0.0.0/24,actions=resubmit(,1)", "table=1,actions=drop"];
    everywhere(&rules, |fixture| {
        send_all(fixture, &[(tcp(A), &[]), (tcp(B), &[]), (packet("arp"), &[])]);
    });
}

#[test]
fn floods_controllers_and_the_ingress_port_are_cached() {
    let rules = [
        "table=0,dl_src=00:00:00:00:00:0a,actions=resubmit(,1)",
        "table=0,dl_src=00:00:00:00:00:0b,actions=resubmit(,2)",
        "table=0,dl_src=00:00:00:00:00:0c,actions=resubmit(,3)",
        "table=0,dl_src=00:00:00:00:00:0d,actions=resubmit(,4)",
        "table=1,actions=NORMAL",
        "table=2,actions=FLOOD",
        "table=3,actions=CONTROLLER:128,in_port",
        "table=4,ip,actions=ALL,dec_ttl,output:2",
    ];
    let from = |mac: &str| {
        tcp(&format!("dl_src=00:00:00:00:00:0{mac},dl_dst=00:00:00:00:00:0b,nw_dst=10.0.0.1"))
    };
    let ports: [&[u32]; 4] = [&[2, 3, 4], &[2, 3, 4], &[1], &[2, 3, 4, 2]];
    let packets: Vec<Flow> = ["a", "b", "c", "d"].map(from).into_iter().zip(ports).collect();
    everywhere(&rules, |fixture| {
        for (packet, _) in &packets {
            fixture.send(packet);
        }
        fixture.change(&Op::LearnFrom(Box::new(packets[0].0.clone())));
        send_all(fixture, &packets);
    });
}

#[test]
fn unseen_flows_hit_entries_of_other_flows() {
    let rules = [
        "table=0,dl_src=00:00:00:00:00:0a,actions=goto_table:1",
        "table=0,dl_src=00:00:00:00:00:0b,actions=goto_table:1",
        "table=1,tcp,nw_dst=10.0.0.1,actions=output:2",
        "table=1,tcp,nw_dst=10.0.0.2,actions=output:3",
    ];
    let flow =
        |mac: &str, host: u8| tcp(&format!("dl_src=00:00:00:00:00:0{mac},nw_dst=10.0.0.{host}"));
    let mut fixture = ChainFixture::with_rules(&rules, config(PolicyName::Joint, 4, 100));
    assert!(!fixture.send(&flow("a", 1)).is_hit);
    assert!(!fixture.send(&flow("b", 2)).is_hit);
    for crossed in [flow("a", 2), flow("b", 1)] {
        let sent = fixture.send(&crossed);
        assert_eq!((sent.is_hit, sent.entries), (true, 2));
    }
    let four = Coverage { chains: 4, pairs: 4, published: 4 };
    assert_eq!(fixture.cache.ltm().coverage(), four);
}

#[test]
fn a_partial_hit_resumes_with_rewritten_headers() {
    let rules = [
        "table=0,ip,actions=mod_nw_src:10.7.7.7,load:5->NXM_NX_REG3[],goto_table:1",
        "table=1,tcp,nw_dst=10.0.0.1,nw_src=10.7.7.7,reg3=5,actions=dec_ttl,output:2",
        "table=1,tcp,nw_dst=10.0.0.2,nw_src=10.7.7.7,reg3=5,actions=output:3",
    ];
    let config = config(PolicyName::OneToOne, 4, 100);
    let mut fixture = ChainFixture { resumes: true, ..ChainFixture::with_rules(&rules, config) };
    fixture.send(&tcp("nw_src=1.1.1.1,nw_dst=10.0.0.1"));
    let before = fixture.cache.counts().visits;
    assert!(!fixture.send(&tcp("nw_src=1.1.1.1,nw_dst=10.0.0.2")).is_hit);
    assert_eq!(fixture.resumed, 1);
    assert_eq!(
        fixture.cache.counts().visits,
        before + 1,
        "the first table was not looked up again"
    );
    assert!(fixture.send(&tcp("nw_src=1.1.1.1,nw_dst=10.0.0.2")).is_hit);
}
