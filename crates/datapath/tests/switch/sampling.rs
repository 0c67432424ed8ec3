//! Tests packet samples: their choice, their ports and VLAN tags.

use std::num::NonZeroU32;

use shunt_datapath::{
    BURST, Command, ThreadConfig,
    rule_sample::{CollectorSetId, RuleSample, rule_sampler},
    sample::{
        SampleReceiver, SampleUse, SampledEgress, SampledPacket, SamplerConfig, packet_sampler,
    },
};
use shunt_flow::testing::packet::PacketBuilder;
use shunt_pipeline::{BridgeId, DatapathPort};

use super::waiting::flow;
use crate::harness::{BRIDGE, Switch, added};

/// Makes thread 0 sample one packet in `rate` of a bridge for sFlow.
fn sample(switch: &mut Switch, bridge: BridgeId, rate: u32) -> SampleReceiver {
    sample_for(SampleUse::Sflow, switch, bridge, rate)
}

/// Makes thread 0 sample one packet in `rate` of a bridge for a protocol.
fn sample_for(
    protocol: SampleUse,
    switch: &mut Switch,
    bridge: BridgeId,
    rate: u32,
) -> SampleReceiver {
    let rate = NonZeroU32::new(rate).unwrap();
    let config = SamplerConfig { bridge, rate, header_length: 40, seed: 5 };
    let (sampler, receiver) = packet_sampler(config);
    switch.controls[0].send(Command::Sample(bridge, protocol, Some(Box::new(sampler)))).unwrap();
    receiver
}

fn take_samples(receiver: &mut SampleReceiver) -> Vec<SampledPacket> {
    std::iter::from_fn(|| receiver.pop()).collect()
}

const fn egress_port(number: u32) -> SampledEgress {
    SampledEgress::Port(DatapathPort::new(number))
}

#[test]
fn sample_has_ports_and_tags_of_packet() {
    let mut switch = Switch::new(1, 4, super::thread_config());
    switch.apply(&added(&[
        "in_port=1,udp,tp_src=1,actions=output:2",
        "in_port=1,udp,tp_src=2,actions=output:2,output:3",
        "in_port=1,udp,tp_src=3,actions=mod_vlan_vid:9,output:4",
        "in_port=1,udp,tp_src=4,actions=drop",
        "in_port=1,udp,tp_src=5,actions=in_port",
        "in_port=1,udp,tp_src=6,actions=controller",
        "in_port=1,udp,tp_src=7,actions=mod_dl_src:02:00:00:00:00:05,resubmit(,1)",
        "table=1,priority=40000,udp,vlan_tci=0x1000/0x1000,actions=strip_vlan,output:3",
        "table=1,udp,actions=output:3",
    ]));
    let mut receiver = sample(&mut switch, BRIDGE, 1);
    let expected = [
        egress_port(2),
        SampledEgress::Ports(2),
        egress_port(4),
        SampledEgress::Dropped,
        egress_port(1),
        SampledEgress::Controller,
        egress_port(3),
    ];
    // The first packet of each flow misses, and later packets hit.
    for round in 0..3 {
        for (number, expected) in (1..).zip(expected) {
            let frame = flow(number);
            assert!(switch.send(0, 1, &frame));
            switch.settle();
            let samples = take_samples(&mut receiver);
            assert_eq!(samples.len(), 1, "flow {number}, round {round}");
            let sample = &samples[0];
            assert_eq!(sample.egress, expected, "flow {number}, round {round}");
            assert_eq!(sample.ingress, DatapathPort::new(1));
            assert_eq!((sample.frame_length, sample.header()), (frame.len(), &frame[..40]));
            assert_eq!(sample.vlan_in, None);
            let tag = sample.vlan_out.map(|tci| tci & 0x0fff);
            assert_eq!(tag, (number == 3).then_some(9), "flow {number}, round {round}");
        }
    }
    assert_eq!((receiver.pool(), receiver.dropped()), (21, 0));
    let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tag(0x8100, 0x6007);
    assert!(switch.send(0, 1, &builder.udp(7, 53).build()));
    switch.settle();
    let samples = take_samples(&mut receiver);
    assert_eq!(
        (samples[0].vlan_in.map(|tci| tci & !0x1000), samples[0].vlan_out),
        (Some(0x6007), None)
    );
}

#[test]
fn a_second_lookup_makes_the_output_unknown() {
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&added(&["udp,actions=check_pkt_larger(9)->NXM_NX_REG0[0],output:2"]));
    let mut receiver = sample(&mut switch, BRIDGE, 1);
    for _ in 0..2 {
        assert!(switch.send(0, 1, &flow(1)));
        switch.settle();
        let samples = take_samples(&mut receiver);
        assert_eq!((samples.len(), samples[0].egress), (1, SampledEgress::Unknown));
    }
}

#[test]
fn only_packets_of_the_bridge_are_sampled() {
    let other = BridgeId::new(2);
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&added(&["actions=output:2"]));
    let mut of_other = sample(&mut switch, other, 1);
    let send = |switch: &mut Switch| {
        assert!(switch.send(0, 1, &flow(1)));
        switch.settle();
    };
    send(&mut switch);
    let mut receiver = sample(&mut switch, BRIDGE, 1);
    send(&mut switch);
    assert_eq!((take_samples(&mut of_other).len(), of_other.pool()), (0, 0));
    assert_eq!((take_samples(&mut receiver).len(), receiver.pool()), (1, 1));
    // A new sampler replaces the old sampler of its bridge and protocol.
    let mut newer = sample(&mut switch, BRIDGE, 1);
    send(&mut switch);
    assert_eq!((take_samples(&mut receiver).len(), take_samples(&mut newer).len()), (0, 1));
    // Each protocol has its own sampler.
    let mut other_protocol = sample_for(SampleUse::Ipfix, &mut switch, BRIDGE, 1);
    send(&mut switch);
    assert_eq!((take_samples(&mut newer).len(), take_samples(&mut other_protocol).len()), (1, 1));
    switch.controls[0].send(Command::Sample(BRIDGE, SampleUse::Sflow, None)).unwrap();
    send(&mut switch);
    assert_eq!((take_samples(&mut newer).len(), newer.pool()), (0, 2));
    assert_eq!(take_samples(&mut other_protocol).len(), 1);
}

/// A `sample` action samples the packet as changed so far, even if it is dropped.
#[test]
fn rules_sample_packets_for_their_collectors() {
    let mut switch = Switch::new(1, 3, super::thread_config());
    let sample = |set: u32| {
        format!("sample(probability=65535,collector_set_id={set},obs_domain_id=2,obs_point_id=3)")
    };
    let (one, other) = (sample(1), sample(9));
    let rules = [
        format!("udp,tp_src=1,actions={one},output:2"),
        format!("udp,tp_src=2,actions=output:2,{one}"),
        format!("udp,tp_src=3,actions={one}"),
        format!("udp,tp_src=4,actions={other},output:2"),
        format!("udp,tp_src=5,actions=output:3,mod_vlan_vid:9,{one},output:2"),
        format!("udp,tp_src=6,actions=clone({one}),output:2"),
    ];
    switch.apply(&added(&rules.each_ref().map(String::as_str)));
    let set = CollectorSetId { bridge: BRIDGE, number: 1 };
    let (sampler, mut receiver) = rule_sampler(vec![set], 5);
    switch.controls[0].send(Command::SampleByRules(Some(Box::new(sampler)))).unwrap();
    for round in 0..3 {
        for (number, expected) in (1..).zip([1, 1, 1, 0, 1, 1]) {
            let frame = flow(number);
            assert!(switch.send(0, 1, &frame));
            switch.settle();
            let samples: Vec<_> = std::iter::from_fn(|| receiver.pop()).collect();
            assert_eq!(samples.len(), expected, "flow {number}, round {round}");
            for RuleSample { request, packet } in samples {
                let action = &request.action;
                assert_eq!((request.bridge, packet.ingress), (BRIDGE, DatapathPort::new(1)));
                assert_eq!((action.observation_domain_id, action.observation_point_id), (2, 3));
                let is_tagged = number == 5;
                assert_eq!(packet.frame_length, frame.len() + if is_tagged { 4 } else { 0 });
                assert_eq!(packet.header()[12..14] == [0x81, 0], is_tagged, "flow {number}");
            }
            drop((switch.receive(0, 2), switch.receive(0, 3)));
        }
    }
    switch.controls[0].send(Command::SampleByRules(None)).unwrap();
    assert!(switch.send(0, 1, &flow(1)));
    switch.settle();
    assert!(receiver.is_empty() && receiver.dropped() == 0);
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

/// Samples of new flows use up no translation that packets need.
#[test]
fn samples_delay_no_packet() {
    let sent_by = |rate: Option<u32>| {
        let config = ThreadConfig { translations_per_iteration: 4, ..super::thread_config() };
        let mut switch = Switch::new(1, 2, config);
        switch.apply(&[super::waiting::per_flow(1, 2)]);
        let receiver = rate.map(|rate| sample(&mut switch, BRIDGE, rate));
        for number in 0..8 {
            assert!(switch.send(0, 1, &flow(number)));
        }
        switch.run_iteration(0);
        let samples = receiver.map(|mut receiver| take_samples(&mut receiver)).unwrap_or_default();
        let known = samples.iter().filter(|sample| sample.egress == egress_port(2)).count();
        (switch.receive(0, 2).len(), known)
    };
    let (sent, _) = sent_by(None);
    assert!(sent > 0);
    let (sent_with_samples, known) = sent_by(Some(1));
    assert_eq!(sent_with_samples, sent);
    assert!(known >= 4, "{known} samples with their output port");
}

/// Sampling changes no packet, even if packets wait for their translation.
#[test]
fn one_in_n_packets_is_sampled() {
    let config = ThreadConfig { translations_per_iteration: 2, ..super::thread_config() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[super::waiting::per_flow(1, 2)]);
    let mut receiver = sample(&mut switch, BRIDGE, 8);
    let (mut sampled, mut received) = (0, 0);
    for round in 0..200 {
        for number in 0..BURST {
            let number = u16::try_from(number).unwrap();
            assert!(switch.send(0, 1, &flow(round % 8 * 100 + number)));
        }
        switch.settle();
        received += switch.receive(0, 2).len();
        let samples = take_samples(&mut receiver);
        sampled += samples.len();
        let known = |sample: &SampledPacket| {
            [egress_port(2), SampledEgress::Unknown].contains(&sample.egress)
        };
        assert!(samples.iter().all(known));
    }
    let sent = 200 * BURST;
    assert_eq!((received, receiver.pool()), (sent, sent as u64));
    // The mean is 800, with a standard deviation of about 15.
    assert!((725..=875).contains(&sampled), "{sampled} of {sent}");
    assert_eq!(switch.counters(0).unaccounted(), 0);
}
