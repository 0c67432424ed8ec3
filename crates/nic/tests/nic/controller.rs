//! Tests of a NIC without representors: packets that miss go to the controller.

use std::time::Duration;

use shunt_flow::{FieldId, FlowKey, testing::PacketBuilder};
use shunt_gigaflow::{
    ltm::{Next, Tag},
    offload::{OffloadError, Refusal},
};
use shunt_nic::{NicDropReason, NicLimits};
use shunt_p4runtime::client::PacketToSend;

use crate::fixture::{NicFixture, frame, rule, with_output};

#[tokio::test]
async fn a_miss_goes_unchanged_to_the_controller() {
    let mut fixture = NicFixture::new().await;
    fixture.send(0, &frame());
    let packet = fixture.receive_punted().await;
    assert_eq!(packet.payload, frame());
    assert_eq!((packet.ingress_port, packet.reason, packet.miss_tag), (1, 0, 0));
}

#[tokio::test]
async fn a_partial_hit_leaves_the_packet_unchanged() {
    let mut fixture = NicFixture::new().await;
    let ttl = (FieldId::NwTtl, 9);
    let first = rule(0, &[(FieldId::EthType, 0x0800)], &[ttl], Next::Tag(Tag::new(5)));
    fixture.insert(0, first).await;
    fixture.send(0, &frame());
    let packet = fixture.receive_punted().await;
    assert_eq!((&packet.payload, packet.miss_tag, packet.last_stage), (&frame(), 5, 1));
    assert_eq!((fixture.traffic.partial_hits(), fixture.traffic.hits()), (1, 0));
    // The packet matches no entry of stage 1. The last stage matches the values that stage 0 wrote.
    fixture.insert(2, with_output(2, rule(5, &[ttl], &[(FieldId::TcpDst, 7777)], Next::End))).await;
    fixture.send(0, &frame());
    let sent = fixture.receive(1).await;
    let mut key = FlowKey::ZERO;
    shunt_flow::extract::extract(&sent, Default::default(), &mut key);
    assert_eq!((key.field(FieldId::NwTtl), key.field(FieldId::UdpDst)), (9, 7777));
    // No packet is sent back to its ingress port. A packet to the second port that arrived on the
    // first is sent.
    fixture.send(1, &PacketBuilder::ipv4([10, 0, 0, 9], [10, 0, 0, 2]).udp(1000, 2000).build());
    fixture.send(0, &frame());
    assert_eq!(fixture.receive(1).await, sent);
    assert_eq!(fixture.expect_nothing(1).await, Ok(()));
    assert_eq!(fixture.traffic.dropped(NicDropReason::Rule), 1);
}

#[tokio::test]
async fn a_refusal_names_the_limit() {
    let limits = NicLimits { key_bits_max: Some(17), ..NicLimits::default() };
    let mut fixture = NicFixture::limited(limits).await;
    let of = |fields: &[(FieldId, u128)]| rule(0, fields, &[], Next::End);
    fixture.insert(0, of(&[(FieldId::EthType, 0x0800)])).await;
    let wide = of(&[(FieldId::EthType, 0x0800), (FieldId::IpProto, 17)]);
    let refused = Err(OffloadError::Refused(Refusal::KeyBits));
    assert_eq!(fixture.try_insert(0, wide).await, refused);
    let limits = NicLimits { masks_max: Some(1), ..NicLimits::default() };
    let mut fixture = NicFixture::limited(limits).await;
    fixture.insert(0, of(&[(FieldId::EthType, 0x0800)])).await;
    let another = of(&[(FieldId::InPort, 1)]);
    assert_eq!(fixture.try_insert(0, another).await, Err(OffloadError::Refused(Refusal::Masks)));
}

#[tokio::test]
async fn a_truncated_header_never_enters_the_tables() {
    let mut fixture = NicFixture::new().await;
    let arp = 0x0806u16;
    fixture
        .insert(0, with_output(2, rule(0, &[(FieldId::EthType, arp.into())], &[], Next::End)))
        .await;
    let mut whole = [vec![2; 12], arp.to_be_bytes().to_vec()].concat();
    whole.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    whole.extend([0; 20]);
    for length in [16, whole.len() - 1] {
        fixture.send(0, &whole[..length]);
        let packet = fixture.receive_punted().await;
        assert_eq!((packet.reason, packet.payload.len()), (1, length));
    }
    fixture.send(0, &whole);
    assert_eq!(fixture.receive(1).await, whole);
}

#[tokio::test]
async fn packet_for_missing_port_is_not_sent() {
    let mut fixture = NicFixture::new().await;
    fixture.target.send(PacketToSend::Direct { port: 9, payload: frame() }).unwrap();
    fixture.target.send(PacketToSend::Direct { port: 2, payload: Vec::new() }).unwrap();
    fixture.target.send(PacketToSend::Direct { port: 2, payload: frame() }).unwrap();
    assert_eq!(fixture.receive(1).await, frame());
    assert_eq!(fixture.traffic.received(), 1);
}

#[tokio::test]
async fn every_packet_is_counted_exactly_once() {
    let mut fixture = NicFixture::new().await;
    fixture.insert(0, with_output(2, rule(0, &[(FieldId::EthType, 0x0800)], &[], Next::End))).await;
    for end in [0, 1, 0] {
        fixture.send(end, &frame());
    }
    fixture.send(0, &[0; 14]);
    fixture.receive_punted().await;
    fixture.receive(1).await;
    fixture.receive(1).await;
    let counts = || {
        let traffic = &fixture.traffic;
        let dropped: u64 = NicDropReason::ALL.iter().map(|reason| traffic.dropped(*reason)).sum();
        (traffic.received(), traffic.sent() + traffic.handed_over() + dropped)
    };
    for _ in 0..1000 {
        if counts() == (4, 4) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{:?}", counts());
}

#[tokio::test]
async fn packet_outs_are_sent_or_run_the_stages() {
    let mut fixture = NicFixture::new().await;
    let direct = PacketToSend::Direct { port: 2, payload: frame() };
    fixture.target.send(direct).unwrap();
    assert_eq!(fixture.receive(1).await, frame());
    let resubmit = || PacketToSend::Resubmit { port: 2, payload: frame() };
    fixture.target.send(resubmit()).unwrap();
    assert_eq!(fixture.receive_punted().await.ingress_port, 2);
    fixture.insert(0, with_output(1, rule(0, &[(FieldId::InPort, 2)], &[], Next::End))).await;
    fixture.target.send(resubmit()).unwrap();
    assert_eq!(fixture.receive(0).await, frame());
}
