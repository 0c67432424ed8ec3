//! Compares the exporter with a slow decoder.

use proptest::prelude::*;

use super::*;
use crate::testing::{DecodedNetflow, decode_netflow};

/// Generates a flow record.
fn record() -> impl Strategy<Value = NetflowRecord> {
    let count = prop_oneof![0..5000_u64, 0..1_u64 << 28];
    (any::<[u8; 8]>(), any::<[u16; 4]>(), count, any::<[u32; 2]>(), any::<[u8; 3]>()).prop_map(
        |([a, b, c, d, e, f, g, h], ports, packets, times, [tcp_flags, protocol, tos])| {
            let [input, output, source_port, destination_port] = ports;
            NetflowRecord {
                source: [a, b, c, d].into(),
                destination: [e, f, g, h].into(),
                input,
                output,
                packets,
                bytes: packets * 60,
                first_ms: times[0],
                last_ms: times[1],
                source_port,
                destination_port,
                tcp_flags,
                protocol,
                tos,
            }
        },
    )
}

/// Returns the sum of the records at the start that belong to one flow,
/// and their number.
fn merged(records: &[NetflowRecord]) -> Option<(NetflowRecord, usize)> {
    let first = *records.first()?;
    let of_first = |own: &NetflowRecord| {
        NetflowRecord { packets: 0, bytes: 0, ..*own }
            == NetflowRecord { packets: 0, bytes: 0, ..first }
    };
    let count = records.iter().take_while(|own| of_first(own)).count();
    let packets = records[..count].iter().map(|own| own.packets).sum();
    let bytes = records[..count].iter().map(|own| own.bytes).sum();
    Some((NetflowRecord { packets, bytes, ..first }, count))
}

proptest! {
    /// Every flow is decoded exactly once and in order, with its counts.
    #[test]
    fn datagrams_have_every_flow(
        kind: u8,
        id: u8,
        batches in prop::collection::vec(prop::collection::vec(record(), 0..70), 0..4),
    ) {
        let engine = NetflowEngine { kind, id };
        let mut exporter = NetflowExporter::new(engine);
        let mut sequence = 0;
        for (batch, uptime_ms) in batches.iter().zip(1..) {
            for flow in batch {
                exporter.add(flow);
            }
            let since_epoch = Duration::new(1_795_790_074, 447_819_498);
            let mut decoded = Vec::new();
            for datagram in exporter.take_datagrams(NetflowClock { uptime_ms, since_epoch }) {
                let ExportDatagram { bytes, records: count } = datagram;
                prop_assert!(bytes.len() <= DATAGRAM_MAX);
                let DecodedNetflow { header, records } = decode_netflow(&bytes).unwrap();
                prop_assert_eq!(u32::try_from(records.len()).unwrap(), count);
                prop_assert_eq!(header.uptime_ms, uptime_ms);
                prop_assert_eq!((header.seconds, header.nanoseconds), (1_795_790_074, 447_819_498));
                prop_assert_eq!(header.sequence, sequence);
                prop_assert_eq!(header.engine, engine);
                prop_assert!(!records.is_empty());
                sequence += u32::try_from(records.len()).unwrap();
                decoded.extend(records);
            }
            let mut rest = decoded.as_slice();
            for flow in batch {
                let parts = flow.packets.max(flow.bytes).div_ceil(u32::MAX.into()).max(1);
                let parts = usize::try_from(parts).unwrap();
                let (own, left) = rest.split_at(parts);
                prop_assert_eq!(merged(own), Some((*flow, parts)));
                rest = left;
            }
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused_as_netflow(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let with_version = [&[0, 5, 0, 1], &bytes[..]].concat();
        // The decoder must not panic on any bytes.
        let _ = (decode_netflow(&bytes), decode_netflow(&with_version));
    }
}

/// Open vSwitch 3.1 sent the expected datagram, for ICMP of type 8 and code 3.
#[test]
fn a_record_is_that_of_open_vswitch() {
    let mut exporter = NetflowExporter::new(NetflowEngine { kind: 4, id: 3 });
    exporter.add(&NetflowRecord {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        input: 1,
        output: 65535,
        packets: 1,
        bytes: 72,
        first_ms: 1561,
        last_ms: 1561,
        source_port: 0,
        destination_port: 2051,
        tcp_flags: 0,
        protocol: 1,
        tos: 0,
    });
    let since_epoch = Duration::new(0x6b09_94fa, 0x3a56_8a18);
    let datagrams = exporter.take_datagrams(NetflowClock { uptime_ms: 1570, since_epoch });
    let mut recorded = RECORDED.to_vec();
    // Open vSwitch counts datagrams instead of records in this field.
    recorded[16..20].fill(0);
    assert_eq!(datagrams, [ExportDatagram { bytes: recorded, records: 1 }]);
}

/// The bytes of the recorded datagram.
const RECORDED: [u8; 72] = [
    0x00, 0x05, 0x00, 0x01, 0x00, 0x00, 0x06, 0x22, 0x6b, 0x09, 0x94, 0xfa, 0x3a, 0x56, 0x8a, 0x18,
    0x00, 0x00, 0x00, 0x17, 0x04, 0x03, 0x00, 0x00, 0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x48,
    0x00, 0x00, 0x06, 0x19, 0x00, 0x00, 0x06, 0x19, 0x00, 0x00, 0x08, 0x03, 0x00, 0x00, 0x01, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];
