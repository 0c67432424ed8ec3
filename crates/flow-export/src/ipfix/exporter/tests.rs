//! Compares the exporter with a slow decoder.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    ipfix::{
        FlowDirection, FlowEndReason, FlowTransport, IpfixCounts, IpfixFlowKey, IpfixNetwork,
        ObservationPoint,
    },
    testing::{DecodedIpfixRecord, IpfixDecoder},
};

/// Generates the network header of a flow.
fn network() -> impl Strategy<Value = Option<IpfixNetwork>> {
    let v4 =
        any::<([u8; 4], [u8; 4], u8, u8)>().prop_map(|(source, destination, tos, protocol)| {
            let (source, destination) = (source.into(), destination.into());
            Some(IpfixNetwork::V4 { source, destination, tos, protocol })
        });
    let v6 = (any::<[[u8; 16]; 2]>(), 0..1_u32 << 20, any::<[u8; 2]>()).prop_map(
        |([source, destination], flow_label, [tos, protocol])| {
            let (source, destination) = (source.into(), destination.into());
            Some(IpfixNetwork::V6 { source, destination, flow_label, tos, protocol })
        },
    );
    prop_oneof![Just(None), v4, v6]
}

/// Generates the transport header of a flow.
fn transport() -> impl Strategy<Value = FlowTransport> {
    prop_oneof![
        Just(FlowTransport::Other),
        any::<[u16; 2]>()
            .prop_map(|[source, destination]| FlowTransport::Ports { source, destination }),
        any::<[u8; 2]>().prop_map(|[kind, code]| FlowTransport::Icmp { kind, code }),
    ]
}

/// Generates a flow.
fn flow() -> impl Strategy<Value = IpfixFlow> {
    let key = (
        any::<([u32; 3], bool)>(),
        any::<[[u8; 6]; 2]>(),
        any::<Option<u16>>(),
        any::<u16>(),
        network(),
        transport(),
    );
    let reason = prop_oneof![
        Just(FlowEndReason::ActiveTimeout),
        Just(FlowEndReason::ForcedEnd),
        Just(FlowEndReason::LackOfResources),
    ];
    (key, any::<[u64; 5]>(), any::<u16>(), any::<[u8; 2]>(), reason).prop_map(
        |(key, counts, tcp_flags, [ttl_min, ttl_max], end_reason)| {
            let (observed, macs, vlan_tci, ethernet_type, network, transport) = key;
            let ([ingress, egress, point], is_egress) = observed;
            let [source_mac, destination_mac] = macs;
            let [packets, ip_bytes, frame_bytes, start_ms, end_ms] = counts;
            IpfixFlow {
                key: IpfixFlowKey {
                    observed_at: ObservationPoint { domain: 0, point },
                    direction: if is_egress {
                        FlowDirection::Egress
                    } else {
                        FlowDirection::Ingress
                    },
                    ingress,
                    egress,
                    source_mac,
                    destination_mac,
                    vlan_tci,
                    ethernet_type,
                    network,
                    transport,
                },
                counts: IpfixCounts {
                    packets,
                    ip_bytes,
                    frame_bytes,
                    start_ms,
                    end_ms,
                    tcp_flags,
                    ttl_min,
                    ttl_max,
                },
                end_reason,
            }
        },
    )
}

/// Returns bytes as a number.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

/// Returns the elements that the record of a flow must have, with their values.
fn expected(flow: &IpfixFlow) -> Vec<(u16, u128)> {
    let IpfixFlow { key, counts, end_reason } = flow;
    let mut values = vec![
        (138, key.observed_at.point.into()),
        (61, if key.direction == FlowDirection::Egress { 1 } else { 0 }),
        (10, key.ingress.into()),
        (14, key.egress.into()),
        (56, number(&key.source_mac)),
        (80, number(&key.destination_mac)),
        (256, key.ethernet_type.into()),
        (240, if key.vlan_tci.is_some() { 18 } else { 14 }),
        (152, counts.start_ms.into()),
        (153, counts.end_ms.into()),
        (2, counts.packets.into()),
        (352, counts.frame_bytes.into()),
    ];
    values.push((
        136,
        match end_reason {
            FlowEndReason::ActiveTimeout => 2,
            FlowEndReason::ForcedEnd => 4,
            FlowEndReason::LackOfResources => 5,
        },
    ));
    if let Some(tci) = key.vlan_tci {
        let id = (tci % 4096).into();
        values.extend([(58, id), (243, id), (244, (tci >> 13).into())]);
    }
    let Some(network) = key.network else { return values };
    let (version, common_tos, common_protocol, is_v6) = match network {
        IpfixNetwork::V4 { source, destination, tos, protocol } => {
            values.extend([(8, number(&source.octets())), (12, number(&destination.octets()))]);
            (4, tos, protocol, false)
        }
        IpfixNetwork::V6 { source, destination, flow_label, tos, protocol } => {
            values.extend([(27, number(&source.octets())), (28, number(&destination.octets()))]);
            values.push((31, flow_label.into()));
            (6, tos, protocol, true)
        }
    };
    values.extend([(60, version), (4, common_protocol.into()), (5, common_tos.into())]);
    values.extend([(195, (common_tos / 4).into()), (1, counts.ip_bytes.into())]);
    values.extend([(52, counts.ttl_min.into()), (53, counts.ttl_max.into())]);
    match key.transport {
        FlowTransport::Other => {}
        FlowTransport::Ports { source, destination } => {
            values.extend([(7, source.into()), (11, destination.into())]);
            values.push((6, counts.tcp_flags.into()));
        }
        FlowTransport::Icmp { kind, code } if is_v6 => {
            values.extend([(178, kind.into()), (179, code.into())]);
        }
        FlowTransport::Icmp { kind, code } => {
            values.extend([(176, kind.into()), (177, code.into())]);
        }
    }
    values
}

proptest! {
    /// Every flow is decoded exactly once and in order, after the templates.
    #[test]
    fn messages_have_every_flow(
        domain: u32,
        sampling: Option<u32>,
        virtual_id in prop_oneof![Just(String::new()), "[a-z]{1,3}", "[a-z]{254}"],
        batches in prop::collection::vec((any::<bool>(), prop::collection::vec(flow(), 0..40)), 0..4),
    ) {
        let mut exporter = IpfixExporter::new(domain, sampling).with_virtual_id(&virtual_id);
        let ids = [virtual_id].into_iter().filter(|own| !own.is_empty());
        let ids: BTreeMap<_, _> = ids.map(|own| ((6876, 898), own.into_bytes())).collect();
        let mut decoder = IpfixDecoder::default();
        let mut sequence = 0;
        for (round, ((again, batch), time)) in batches.iter().zip(1_795_790_113..).enumerate() {
            let has_templates = *again || round == 0;
            if has_templates {
                exporter.add_templates(time);
            }
            batch.iter().for_each(|flow| exporter.add_flow(flow, time));
            let (mut records, mut templates, mut flows) = (Vec::new(), 0, 0);
            for message in exporter.take_messages(time) {
                prop_assert!(message.bytes.len() <= DATAGRAM_MAX);
                let decoded = decoder.decode(&message.bytes).unwrap();
                flows += message.records;
                prop_assert_eq!((decoded.time, decoded.domain), (time, domain));
                prop_assert_eq!(decoded.sequence, sequence);
                sequence += u32::try_from(decoded.records.len()).unwrap();
                templates += decoded.templates;
                records.extend(decoded.records);
            }
            let has_options = has_templates && sampling.is_some();
            prop_assert_eq!(templates, if has_templates { 14 + usize::from(has_options) } else { 0 });
            let mut rest = records.as_slice();
            if let Some(sampling) = sampling.filter(|_| has_options) {
                let (options, flows) = records.split_first().unwrap();
                let values = [(149, domain.into()), (34, sampling.into()), (35, 2)];
                prop_assert_eq!(&options.values, &values.into_iter().collect());
                rest = flows;
            }
            prop_assert_eq!(rest.len(), batch.len());
            prop_assert_eq!(usize::try_from(flows).unwrap(), batch.len());
            for (flow, record) in batch.iter().zip(rest) {
                let DecodedIpfixRecord { values, of_enterprises, .. } = record;
                prop_assert_eq!(values, &expected(flow).into_iter().collect());
                prop_assert_eq!(of_enterprises, &ids);
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused_as_ipfix(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let length = u16::try_from(bytes.len() + 4).unwrap().to_be_bytes();
        let with_header = [&[0, 10], &length[..], &bytes].concat();
        let mut decoder = IpfixDecoder::default();
        // The decoder must not panic on any bytes.
        let _ = (decoder.decode(&bytes), decoder.decode(&with_header));
    }
}
