//! Compares the exporter with a slow decoder.

use proptest::prelude::*;

use super::*;
use crate::{
    sflow::{DiscardReason, LinkDuplex, SampledInterface, SampledTag},
    testing::{DecodedSample, decode_sflow},
};

/// A packet sample that owns its header, or the counters of an interface.
#[derive(Clone, Debug)]
enum Added {
    Flow { words: [u32; 4], output: SampledInterface, tags: [u16; 2], header: Vec<u8> },
    Counters(InterfaceStatistics),
}

impl Added {
    /// Returns the flow sample, if it is one.
    fn flow(&self) -> Option<FlowSample<'_>> {
        let Self::Flow { words: [rate, pool, drops, input], output, tags, header } = self else {
            return None;
        };
        let [vlan_in, vlan_out] = tags.map(|tci| SampledTag::of_tci(Some(tci)));
        Some(FlowSample {
            source: SourceId::bridge(),
            rate: *rate,
            pool: *pool,
            drops: *drops,
            input: SampledInterface::Index(*input),
            output: *output,
            vlan_in,
            vlan_out,
            frame_length: 5000,
            header,
        })
    }

    fn is_decoded(&self, sequence: u32, decoded: &DecodedSample) {
        match self {
            Self::Flow { words: [rate, pool, drops, input], tags, header, output } => {
                let output = match output {
                    SampledInterface::Unknown => 0,
                    SampledInterface::Internal => 0x3fff_ffff,
                    SampledInterface::Index(index) => *index,
                    SampledInterface::Discarded(_) => 0x4000_0100,
                    SampledInterface::Multiple(count) => 0x8000_0000 + count,
                };
                let words = [sequence, 0x0200_03e8, *rate, *pool, *drops, *input, output];
                assert_eq!((decoded.format, &decoded.words[..]), (1, &words[..]));
                let [a, b] = tags.map(u32::from);
                let tags = [a % 4096, a >> 13, b % 4096, b >> 13];
                assert_eq!(decoded.words_of(1001).unwrap(), tags);
                assert_eq!(decoded.header().unwrap(), *header);
                assert_eq!(decoded.words_of(1).unwrap()[..3], [1, 5004, 4]);
            }
            Self::Counters(own) => {
                assert_eq!((decoded.format, &decoded.words[..]), (2, &[sequence, own.index][..]));
                assert_eq!(decoded.port_name().as_ref(), Some(&own.name));
                let halves = |value: u64| [low(value >> 32), low(value)];
                let [dpid_high, dpid_low] = halves(own.datapath_id);
                assert_eq!(decoded.words_of(1004).unwrap(), [dpid_high, dpid_low, own.port_number]);
                let generic = decoded.words_of(1).unwrap();
                assert_eq!(generic.len(), 22);
                assert_eq!(generic[..2], [own.index, 6]);
                assert_eq!(generic[2..4], halves(own.speed_bps));
                let up = u32::from(own.is_admin_up) + 2 * u32::from(own.is_link_up);
                assert_eq!((generic[4], generic[5]), (1, up));
                assert_eq!(generic[6..8], halves(own.rx_bytes));
                assert_eq!([generic[8], generic[11]], [own.rx_packets, own.rx_dropped].map(low));
                assert_eq!(generic[14..16], halves(own.tx_bytes));
                assert_eq!([generic[16], generic[19]], [own.tx_packets, own.tx_dropped].map(low));
                for unknown in [9, 10, 12, 13, 17, 18, 20, 21] {
                    assert_eq!(generic[unknown], u32::MAX, "word {unknown}");
                }
            }
        }
    }
}

/// Returns the lower half of a word.
#[expect(clippy::cast_possible_truncation, reason = "counters of 32 bits wrap around")]
const fn low(value: u64) -> u32 {
    value as u32
}

/// Generates an output interface.
fn output() -> impl Strategy<Value = SampledInterface> {
    prop_oneof![
        Just(SampledInterface::Unknown),
        Just(SampledInterface::Internal),
        (1..1_u32 << 24).prop_map(SampledInterface::Index),
        Just(SampledInterface::Discarded(DiscardReason::Unknown)),
        (0..1000_u32).prop_map(SampledInterface::Multiple),
    ]
}

/// Generates a sample to add.
fn added() -> impl Strategy<Value = Added> {
    let header = prop::collection::vec(any::<u8>(), 0..=256);
    let flow = (any::<[u32; 3]>(), 0..1_u32 << 24, output(), any::<[u16; 2]>(), header).prop_map(
        |([rate, pool, drops], input, output, tags, header)| Added::Flow {
            words: [rate, pool, drops, input],
            output,
            tags,
            header,
        },
    );
    let counters =
        (1..4_u32, any::<[u64; 8]>(), any::<[bool; 2]>(), any::<u32>(), "[a-z0-9]{0,15}").prop_map(
            |(index, counts, [is_admin_up, is_link_up], port_number, name)| {
                let [
                    speed_bps,
                    rx_bytes,
                    rx_packets,
                    rx_dropped,
                    tx_bytes,
                    tx_packets,
                    tx_dropped,
                    id,
                ] = counts;
                Added::Counters(InterfaceStatistics {
                    index,
                    speed_bps,
                    duplex: LinkDuplex::Full,
                    is_admin_up,
                    is_link_up,
                    rx_bytes,
                    rx_packets,
                    rx_dropped,
                    tx_bytes,
                    tx_packets,
                    tx_dropped,
                    datapath_id: id,
                    port_number,
                    name,
                })
            },
        );
    prop_oneof![flow, counters]
}

/// Generates an IP address.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

proptest! {
    /// Every sample is decoded exactly once and in order, with its sequence number.
    #[test]
    fn datagrams_have_every_sample(
        address in address(),
        sub_agent: u32,
        batches in prop::collection::vec(prop::collection::vec(added(), 0..20), 0..4),
    ) {
        let mut exporter = SflowExporter::new(SflowAgent { address, sub_agent });
        let mut sequences = BTreeMap::new();
        let mut last = 0;
        for (batch, uptime) in batches.iter().zip(1..) {
            for sample in batch {
                match sample {
                    Added::Counters(statistics) => exporter.add_counters(statistics, uptime),
                    Added::Flow { .. } => exporter.add_flow(&sample.flow().unwrap(), uptime),
                }
            }
            let (mut decoded, mut packets) = (Vec::new(), 0);
            for datagram in exporter.take_datagrams(uptime) {
                prop_assert!(datagram.bytes.len() <= DATAGRAM_MAX);
                packets += datagram.records;
                let datagram = decode_sflow(&datagram.bytes).unwrap();
                prop_assert_eq!((datagram.address, datagram.sub_agent), (address, sub_agent));
                last += 1;
                prop_assert_eq!((datagram.sequence, datagram.uptime_ms), (last, uptime));
                prop_assert!(!datagram.samples.is_empty());
                decoded.extend(datagram.samples);
            }
            prop_assert_eq!(decoded.len(), batch.len());
            let expected = batch.iter().filter(|own| matches!(own, Added::Flow { .. })).count();
            prop_assert_eq!(usize::try_from(packets).unwrap(), expected);
            for (sample, decoded) in batch.iter().zip(&decoded) {
                let source = match sample {
                    Added::Counters(statistics) => statistics.index,
                    Added::Flow { .. } => 0,
                };
                let sequence = sequences.entry(source).or_insert(0);
                *sequence += 1;
                sample.is_decoded(*sequence, decoded);
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let with_version = [&[0, 0, 0, 5, 0, 0, 0, 1], &bytes[..]].concat();
        // The decoder must not panic on any bytes.
        let _ = (decode_sflow(&bytes), decode_sflow(&with_version));
    }
}

/// The expected flow sample was sent by Open vSwitch 3.1;
/// its header bytes are omitted.
///
/// A tagged frame of 264 bytes was flooded to three ports of a bridge with `sampling=1`.
#[test]
fn flow_sample_has_fields_of_open_vswitch() {
    let tag = SampledTag { vid: 7, pcp: 3 };
    let mut exporter =
        SflowExporter::new(SflowAgent { address: [127, 0, 0, 1].into(), sub_agent: 0 });
    let sample = FlowSample {
        source: SourceId::bridge(),
        rate: 1,
        pool: 1,
        drops: 0,
        input: SampledInterface::Index(3),
        output: SampledInterface::Multiple(3),
        vlan_in: tag,
        vlan_out: tag,
        frame_length: 264,
        header: &[0xaa; 128],
    };
    exporter.add_flow(&sample, 0);
    let datagram = exporter.take_datagrams(0).remove(0).bytes;
    let words: Vec<u32> =
        datagram.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    // The words: version, address type and address, sub-agent, sequence, uptime, number of samples;
    // format and length of the sample.
    assert_eq!(words[..9], [5, 1, 0x7f00_0001, 0, 1, 0, 1, 1, 208]);
    assert_eq!(words[9..17], [1, 0x0200_03e8, 1, 1, 0, 3, 0x8000_0003, 2]);
    assert_eq!(words[17..23], [1001, 16, 7, 3, 7, 3]);
    assert_eq!(words[23..29], [1, 144, 1, 268, 4, 128]);
    assert_eq!(datagram.len(), 4 * 29 + 128);
}

#[test]
fn sequence_numbers_of_forgotten_interfaces_restart() {
    let mut exporter =
        SflowExporter::new(SflowAgent { address: [1, 1, 1, 1].into(), sub_agent: 0 });
    let statistics = InterfaceStatistics { index: 9, ..Default::default() };
    let sequence = |exporter: &mut SflowExporter| {
        exporter.add_counters(&statistics, 0);
        decode_sflow(&exporter.take_datagrams(0)[0].bytes).unwrap().samples[0].words[0]
    };
    assert_eq!((sequence(&mut exporter), sequence(&mut exporter)), (1, 2));
    exporter.retain_interfaces(|source| source == SourceId::interface(9));
    assert_eq!(sequence(&mut exporter), 3);
    exporter.retain_interfaces(|_| false);
    assert_eq!(sequence(&mut exporter), 1);
}
