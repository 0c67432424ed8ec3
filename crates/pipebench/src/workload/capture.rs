//! Statistics of a capture file.

use std::{collections::HashMap, io::Read};

use shunt_flow::{
    FlowKey,
    extract::{VlanLimit, extract},
};

use shunt_pcap::{PcapError, PcapReader};

use crate::{
    statistics::{StatisticRow, TrafficStatistics},
    traffic::{CHECK_SEQUENCE, Flow, published},
};

/// Returns the statistics of a capture, next to those of CAIDA's trace.
///
/// `name` appears in errors. Packets belong to one flow if their headers are equal, apart from
/// headers that change from packet to packet: TTL, TCP flags, type of service.
///
/// # Errors
///
/// If the capture is invalid.
///
/// # Panics
///
/// If the capture has 2^32 flows, which would fill 100 GiB.
pub fn capture_statistics(name: &str, source: impl Read) -> Result<Vec<StatisticRow>, PcapError> {
    let mut reader = PcapReader::new(name, source)?;
    let mut statistics = TrafficStatistics::default();
    // A capture may contain headers chosen to collide, so the hash has a random seed.
    let mut flows: HashMap<Flow, u32> = HashMap::new();
    while let Some(packet) = reader.next_packet()? {
        #[expect(clippy::expect_used, reason = "that many flows would fill 100 GiB")]
        let next = u32::try_from(flows.len()).expect("a capture has fewer than 2^32 flows");
        let flow = *flows.entry(flow_of(packet.frame)).or_insert(next);
        let bytes = packet.frame.len().saturating_add(CHECK_SEQUENCE);
        // A frame has at most FRAME_BYTES_MAX bytes, so its length fits.
        statistics.add(packet.time_ns, flow, u32::try_from(bytes).unwrap_or(u32::MAX));
    }
    let caida = &published().traces.caida;
    let rows = statistics.rows().into_iter();
    Ok(rows
        .map(|row| match row.what.as_str() {
            "packets per flow" => row.against(caida.flow_mean(), "CAIDA"),
            "mean gap" => row.against(caida.gap_mean_us, "CAIDA"),
            "deviation of gaps / mean gap" => {
                row.against(caida.gap_deviation_us / caida.gap_mean_us, "CAIDA")
            }
            _ => row,
        })
        .collect())
}

/// Returns the flow of a captured frame; fields that vary within a flow are zero.
fn flow_of(frame: &[u8]) -> Flow {
    use shunt_flow::FieldId::{IpDscp, IpEcn, Ipv6Label, NwTtl, TcpFlags};
    let mut key = FlowKey::ZERO;
    extract(frame, VlanLimit::Two, &mut key);
    for field in [NwTtl, TcpFlags, IpDscp, IpEcn, Ipv6Label] {
        key.set_field(field, 0);
    }
    Flow::new(&key, 0)
}
