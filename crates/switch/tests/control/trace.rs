//! Tests of the text form of traces.

use shunt_flow::testing::packet::PacketBuilder;
use shunt_ofproto::message::Message;
use shunt_pipeline::{MeterCommand, text::parse_meter_mod};
use shunt_switch::{
    Config, EntryExplanation, Trace,
    config::{CacheKind, PolicyName, PortOptions, PortVlanMode},
};

use crate::fixture::{SwitchFixture, frame, wait_until};

/// Returns a switch with the ports p1 to p3 and the given rules.
async fn fixture(rules: &[&str]) -> SwitchFixture {
    let fixture = SwitchFixture::start(1).await;
    for name in ["p1", "p2", "p3"] {
        fixture.add_port(name, 0).await;
    }
    fixture.switch.add_rules("br0", rules).await.unwrap();
    fixture
}

/// Traces a flow; returns the whole text of the trace.
fn trace(fixture: &SwitchFixture, flow: &str) -> String {
    show_trace(&fixture.switch.trace("br0", flow).unwrap())
}

/// Returns the text of a trace without some lines.
/// The lines with the packet's fields and with the bridge are left out.
fn show_trace(trace: &Trace) -> String {
    let text = trace.to_text();
    let is_flow = |line: &&str| line.starts_with("Flow: ") || line.starts_with("Final flow: ");
    let lines = text.lines().filter(|line| !is_flow(line));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.replace("\nbridge(\"br0\")\n-------------\n", "")
}

fn digits(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_trace_shows_the_clauses_of_a_conjunction() {
    let fixture = fixture(&[
        "priority=10,ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)",
        "priority=10,tcp,tp_dst=80,actions=conjunction(7,2/2)",
        "priority=5,ip,conj_id=7,actions=output:p2",
    ])
    .await;
    let text = trace(&fixture, "in_port=p1,tcp,nw_src=10.0.0.1,tp_dst=80");
    assert_eq!(
        text,
        " 0. conj_id 7 matches these clauses:
        ip,nw_src=10.0.0.1, priority 10, cookie 0x0
        tcp,tp_dst=80, priority 10, cookie 0x0
    conj_id=7,ip, priority 5, cookie 0x0
    output:p2

Megaflow: tcp,nw_src=10.0.0.1,nw_frag=no,tp_dst=80
Datapath actions: p2
"
    );
    let trace = fixture.switch.trace("br0", "in_port=p1,tcp,nw_src=10.0.0.1,tp_dst=80").unwrap();
    assert_eq!((trace.visits.len(), trace.visits[0].conjunctions[0].conj_id), (1, 7));
    // A conjunction without a result is shown before the rule that matches.
    let more =
        ["priority=12,ip,actions=conjunction(9,1/2)", "priority=12,tcp,actions=conjunction(9,2/2)"];
    fixture.switch.add_rules("br0", &more).await.unwrap();
    let trace = fixture.switch.trace("br0", "in_port=p1,tcp,nw_src=10.0.0.1,tp_dst=80").unwrap();
    let ids: Vec<_> = trace.visits[0].conjunctions.iter().map(|own| own.conj_id).collect();
    assert_eq!((ids, trace.visits.len()), (vec![9, 7], 1));
}

#[tokio::test]
async fn trace_explains_fields_of_packet_in() {
    let fixture = fixture(&["priority=0,actions=CONTROLLER:65535"]).await;
    let text = trace(&fixture, "in_port=p1");
    let expected = "so the megaflow matches them)\n\
                    Datapath actions: userspace(controller(reason=no_match,max_len=65535))\n";
    assert!(text.ends_with(expected), "{text}");
}

#[tokio::test]
async fn a_megaflow_without_fields_covers_any_packet() {
    let fixture = fixture(&["actions=drop"]).await;
    let text = trace(&fixture, "in_port=p1,tcp");
    assert!(text.contains("Megaflow: any packet\n"), "{text}");
}

#[tokio::test]
async fn a_trace_shows_what_the_switch_would_learn() {
    let learn = "learn(table=1,priority=7,idle_timeout=60,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
                 output:NXM_OF_IN_PORT[])";
    let fixture = fixture(&[&format!("actions={learn},NORMAL")]).await;
    let text = trace(&fixture, "in_port=p1,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("Learns: ")).collect();
    let expected = [
        "Learns: table=1,priority=7,idle_timeout=60,dl_dst=02:00:00:00:00:01 actions=output:p1",
        "Learns: 02:00:00:00:00:01 is at port p1 in VLAN 0",
    ];
    assert_eq!(lines, expected);
}

/// Returns the lines of a trace that begin with one of the given words.
fn lines_with(text: &str, words: &[&str]) -> Vec<String> {
    let is_shown = |line: &&str| words.iter().any(|word| line.trim_start().starts_with(word));
    text.lines().filter(is_shown).map(|line| line.trim().to_owned()).collect()
}

#[tokio::test]
async fn a_trace_explains_what_normal_does() {
    let fixture = fixture(&["actions=NORMAL"]).await;
    let vlans = PortOptions { name: "p1".to_owned(), tag: Some(10), ..PortOptions::default() };
    fixture.switch.set_vlans(&vlans).await.unwrap();
    let lines = |flow: &str| lines_with(&trace(&fixture, flow), &["->", "Drop reason"]);
    let from_1 = "in_port=p1,dl_src=02:00:00:00:00:01";
    assert_eq!(
        lines(&format!("{from_1},dl_vlan=20,dl_dst=02:00:00:00:00:02")),
        [
            "-> NORMAL: the packet is tagged with VLAN 20, and port 1 (p1) is an access port of VLAN 10: dropped",
            "Drop reason: vlan_not_allowed",
        ]
    );
    let tunnel = PortOptions {
        vlan_mode: Some(PortVlanMode::Dot1qTunnel),
        cvlans: vec![7],
        ..vlans.clone()
    };
    fixture.switch.set_vlans(&tunnel).await.unwrap();
    assert_eq!(
        lines(&format!("{from_1},dl_vlan=20,dl_dst=02:00:00:00:00:02")),
        [
            "-> NORMAL: the packet is tagged with VLAN 20, and port 1 (p1) is a dot1q-tunnel port of VLAN 10 without customer VLAN 20: dropped",
            "Drop reason: vlan_not_allowed",
        ]
    );
    let flooded = lines(&format!("{from_1},dl_vlan=7,dl_dst=02:00:00:00:00:02"));
    assert_eq!(
        flooded[..2],
        [
            "-> NORMAL: a packet of customer VLAN 7 from dot1q-tunnel port 1 (p1) is in service VLAN 10",
            "-> NORMAL: the destination is unknown: flooded in VLAN 10",
        ]
    );
    fixture.switch.set_vlans(&vlans).await.unwrap();
    assert_eq!(
        lines(&format!("{from_1},dl_dst=01:80:c2:00:00:00")),
        [
            "-> NORMAL: destination 01:80:c2:00:00:00 is reserved, bridges do not forward it: dropped",
            "Drop reason: reserved_destination",
        ]
    );
    let flood = lines(&format!("{from_1},dl_dst=02:00:00:00:00:02"));
    assert_eq!(flood, ["-> NORMAL: the destination is unknown: flooded in VLAN 10"]);
}

#[tokio::test]
async fn why_names_the_decision_of_an_entry() {
    let fixture = SwitchFixture::start(1).await;
    let (one, _two) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    fixture.switch.add_rules("br0", &["actions=NORMAL"]).await.unwrap();
    let mut reserved = frame(1);
    reserved[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
    one.send(&reserved);
    wait_until(|| fixture.switch.drops().dropped == [("reserved_destination", 1)]).await;
    let entries = fixture.switch.entries(1).await.entries;
    let EntryExplanation::Live(live) =
        fixture.switch.explain_entry(&entries[0].entry).await.unwrap()
    else {
        panic!("the entry is valid")
    };
    assert_eq!(live.drop_reason, Some("reserved_destination"));
    let decision =
        "NORMAL: destination 01:80:c2:00:00:00 is reserved, bridges do not forward it: dropped";
    assert_eq!(live.visits[0].decisions, [decision]);
}

#[tokio::test]
async fn trace_shows_frame_longer_than_mtu() {
    let fixture = fixture(&["actions=output:p2,push_vlan:0x8100,output:p3"]).await;
    let of_length = |length: usize| {
        let mut frame = frame(1);
        frame.resize(length, 0);
        lines_with(&trace(&fixture, &format!("in_port=p1 {}", digits(&frame))), &[">> output"])
    };
    assert_eq!(of_length(1514), Vec::<String>::new(), "a tag is not counted");
    assert_eq!(
        of_length(1614),
        [
            ">> output port 2 (p2): frame of 1614 bytes exceeds MTU 1500: dropped",
            ">> output port 3 (p3): frame of 1618 bytes exceeds MTU 1500: dropped",
        ]
    );
}

#[tokio::test]
async fn a_trace_shows_buckets_and_meters() {
    let fixture = fixture(&[]).await;
    let select = "group_id=1,type=select,bucket=weight:0,actions=output:2,\
                  bucket=weight:5,actions=group:2";
    let all = "group_id=2,type=all,bucket=actions=output:2,bucket=actions=output:3";
    fixture.add_groups(&[all, select]).await;
    let mut controller = fixture.controller().await;
    let text = "meter=3 pktps bands=type=drop rate=100";
    let request = parse_meter_mod(MeterCommand::Add, text).unwrap();
    controller.send(&Message::MeterMod(request)).await;
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    fixture.switch.add_rules("br0", &["actions=meter:3,group:1"]).await.unwrap();
    assert_eq!(
        trace(&fixture, "in_port=p1"),
        " 0. priority 32768, cookie 0x0
    meter:3,group:1

Group 1 of br0: bucket 1
Group 2 of br0: all buckets
Meter: meter=3 pktps bands=type=drop rate=100
Megaflow: vlan_tci=0x0000/0x1fff,dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00,dl_type=0x0000
Datapath actions: meter(3),p2,p3
"
    );
}

#[tokio::test]
async fn a_trace_continues_after_a_pop() {
    let fixture = fixture(&[
        "mpls,actions=pop_mpls:0x0800,resubmit(,1)",
        "table=1,udp,tp_dst=53,actions=dec_ttl,output:p2",
    ])
    .await;
    let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 53).mpls(7, 0, 64);
    let flow = format!("in_port=p1 {}", digits(&packet.build()));
    let trace = fixture.switch.trace("br0", &flow).unwrap();
    // The megaflow has all registers, metadata and tunnel fields that the packet could have.
    let text = show_trace(&trace).replace(&trace.megaflow, "CARRIED");
    let line = "=".repeat(72);
    assert_eq!(
        text,
        format!(
            " 0. mpls, priority 32768, cookie 0x0
    pop_mpls:0x0800,resubmit(,1)

Megaflow: CARRIED
     (a recirculation keeps registers, metadata and tunnel fields of the packet, so the megaflow matches them)
Datapath actions: pop_mpls(eth_type=0x0800),recirc(0x1)

{line}
recirc(0x1) - recirculated: the packet is parsed again
{line}
 1. udp,tp_dst=53, priority 32768, cookie 0x0
    dec_ttl,output:p2

Megaflow: recirc_id=1,udp,nw_ttl=64,nw_frag=no,tp_dst=53
Datapath actions: set(nw_ttl=63),p2
"
        )
    );
}

#[tokio::test]
async fn a_trace_follows_both_branches_without_a_frame() {
    let fixture = fixture(&[
        "actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,1)",
        "table=1,reg0=1,actions=output:p2",
        "table=1,reg0=0,actions=output:p3",
    ])
    .await;
    let ways = |flow: &str| {
        let trace = fixture.switch.trace("br0", flow).unwrap();
        let way = |own: &Trace| {
            (own.recirculation.as_ref().unwrap().reason.clone(), own.actions.join(","))
        };
        trace.resumed.iter().map(way).collect::<Vec<_>>()
    };
    let larger = ("longer than 100 bytes".to_owned(), "p2".to_owned());
    let other = ("not longer than 100 bytes".to_owned(), "p3".to_owned());
    assert_eq!(ways("in_port=p1"), [larger.clone(), other.clone()]);
    let frame = |length| format!("in_port=p1 {}", digits(&vec![2; length]));
    assert_eq!((ways(&frame(101)), ways(&frame(100))), (vec![larger], vec![other]));
}

#[tokio::test]
async fn a_field_is_named_by_the_protocol() {
    let fixture = fixture(&[
        "in_port=p1,dl_type=0x894f,actions=set_field:9->nsh_ttl,output:p2",
        "in_port=p1,udp,actions=set_field:9->udp_dst,output:p2",
        "in_port=p1,tcp,actions=set_field:9->tcp_dst,output:p2",
    ])
    .await;
    for (packet, written) in
        [("dl_type=0x894f", "nsh_ttl=9"), ("udp", "udp_dst=9"), ("tcp", "tcp_dst=9")]
    {
        let trace = fixture.switch.trace("br0", &format!("in_port=p1,{packet}")).unwrap();
        assert_eq!(trace.actions, [&format!("set({written})"), "p2"], "{packet}");
    }
}

#[tokio::test]
async fn a_trace_warns_of_missing_ports() {
    let fixture = fixture(&[
        "udp,actions=output:77,output:p2,clone(output:78,output:77),output:CONTROLLER",
        "ip,nw_proto=1,actions=write_actions(output:79)",
    ])
    .await;
    let group = "group_id=1,type=all,bucket=actions=output:80,bucket=actions=output:1";
    fixture.add_groups(&[group]).await;
    fixture.switch.add_rules("br0", &["tcp,actions=group:1"]).await.unwrap();
    let notes = |flow: &str| {
        let text = trace(&fixture, &format!("in_port=p1,{flow}"));
        let lines = text.lines().filter_map(|line| line.strip_prefix("     >> "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(notes("udp"), ["port 77 does not exist", "port 78 does not exist"]);
    assert_eq!(notes("icmp"), ["port 79 does not exist"]);
    assert_eq!(notes("tcp"), ["port 80 does not exist"]);
    assert_eq!(notes("arp"), [""; 0]);
}

#[tokio::test]
async fn a_copy_does_not_change_the_original() {
    let fixture =
        fixture(&["actions=clone(push_vlan:0x8100,set_field:4103->vlan_vid,output:p2),output:p3"])
            .await;
    let trace = fixture.switch.trace("br0", "in_port=p1").unwrap();
    assert_eq!(trace.actions, ["push_vlan(tpid=0x8100,vid=7,pcp=0)", "p2", "pop_vlan", "p3"]);
}

/// Returns the trace of a packet to 10.0.0.1 for a policy and a number of stages.
async fn trace_with(policy: PolicyName, stages: u8) -> String {
    let mut config = Config::default();
    config.caches.kind = CacheKind::Gigaflow;
    (config.caches.gigaflow.policy, config.caches.gigaflow.stages) = (policy, stages);
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    let rules = [
        "table=0,ip,nw_src=10.0.0.0/8,actions=goto_table:1",
        "table=1,tcp,tp_dst=80,actions=goto_table:2",
        "table=2,ip,nw_dst=10.0.0.0/24,actions=goto_table:3",
        "table=3,ip,nw_dst=10.0.0.1,actions=output:2",
    ];
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    trace(&fixture, "in_port=1,tcp,nw_src=10.1.0.1,nw_dst=10.0.0.1,tp_dst=80")
}

#[tokio::test]
async fn a_trace_explains_partition_points() {
    for (policy, stages, expected) in [
        (
            PolicyName::Joint,
            4,
            &[
                "fields: ip_src\n",
                ">> partitioned after table 0: ip_src before and",
                "are unrelated (score 1 + 1 if partitioned, 0 if not)",
                ">> not partitioned after table 2: both sides match ip_dst (score 1 + 1 if partitioned, 2 if not)",
            ][..],
        ),
        (PolicyName::Joint, 1, &[">> not partitioned after table 0: no stage is left (score 1"]),
        (
            PolicyName::Profiled,
            4,
            &["0 if not; the policy uses scores until it has measured sharing)"],
        ),
        (PolicyName::FirstFit, 4, &[">> not partitioned after table 2: both sides match ip_dst"]),
        (
            PolicyName::OneToOne,
            4,
            &[">> partitioned after table 2: the policy puts each table in its own sub-traversal"],
        ),
        (PolicyName::OneToOne, 2, &[">> not partitioned after table 2: no stage is left"]),
        (PolicyName::Random, 4, &["after table 0: random choice"]),
        (
            PolicyName::Megaflow,
            4,
            &[">> not partitioned after table 0: the policy never partitions"],
        ),
    ] {
        let text = trace_with(policy, stages).await;
        for expected in expected {
            assert!(text.contains(expected), "{policy:?} {stages} {expected}: {text}");
        }
    }
}
