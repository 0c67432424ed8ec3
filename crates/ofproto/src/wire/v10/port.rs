//! Ports and queues: `ofp_phy_port`, `OFPT_PORT_STATUS`, `OFPT_PORT_MOD`,
//! `OFPT_QUEUE_GET_CONFIG_*` (OpenFlow 1.0.0, 5.2.1, 5.2.2, 5.3.4, 5.3.5, 5.4.2).

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::{PortConfig, QueueId};

use crate::{
    error::ErrorCode,
    message::{LinkFeatures, PortDescription, PortMod, PortStatus, QueueConfig, QueueDescription},
    wire::{
        ByteReader,
        v13::{
            body::{
                port::{LINK_DOWN, NAME_LEN, read_reason, reason_number},
                queue::{put_rates, rates_len, read_rates},
            },
            port_no,
            text::put_text,
        },
    },
};

/// A wire bit and the field of [`PortConfig`] that holds it.
type PortSetting = (u32, fn(&mut PortConfig) -> &mut bool);

/// Bits of `ofp_port_config`; the others concern the spanning tree.
const CONFIG: [PortSetting; 5] = [
    (1, |config| &mut config.port_down),
    (1 << 2, |config| &mut config.no_recv),
    (1 << 4, |config| &mut config.no_flood),
    (1 << 5, |config| &mut config.no_fwd),
    (1 << 6, |config| &mut config.no_packet_in),
];

/// Reads the configuration of a port from its bits.
fn read_config(bits: u32) -> PortConfig {
    let mut config = PortConfig::default();
    for (bit, setting) in CONFIG {
        *setting(&mut config) = bits & bit != 0;
    }
    config
}

/// Returns the bits of the configuration of a port.
fn config_bits(mut config: PortConfig) -> u32 {
    let add = |bits, (bit, setting): &PortSetting| {
        if *setting(&mut config) { bits | bit } else { bits }
    };
    CONFIG.iter().fold(0, add)
}

/// The speeds up to 10 Gbit/s, which have the same bits in every version.
const SPEED_BITS: u32 = 0x7f;
/// Number of speeds that OpenFlow 1.1 added below the bits of media.
const ADDED_SPEEDS: u32 = 4;
/// The bits for media and negotiation in OpenFlow 1.0.
const MEDIUM_BITS: u32 = 0x1f << 7;

/// Returns the `ofp_port_features` of OpenFlow 1.0; higher speeds have no bit.
const fn features_10(features: u32) -> u32 {
    features & SPEED_BITS | features >> ADDED_SPEEDS & MEDIUM_BITS
}

/// Returns the `ofp_port_features` of later versions.
const fn features_13(features: u32) -> u32 {
    features & SPEED_BITS | (features & MEDIUM_BITS) << ADDED_SPEEDS
}

/// Reads an `ofp_phy_port`.
pub(super) fn read_port(reader: &mut ByteReader<'_>) -> Result<PortDescription, ErrorCode> {
    let (number, mac) = (port_no::widen(reader.u16()?), reader.array()?);
    let name = reader.text(NAME_LEN)?;
    let (config, state) = (read_config(reader.u32()?), reader.u32()?);
    let link = LinkFeatures {
        current: features_13(reader.u32()?),
        advertised: features_13(reader.u32()?),
        supported: features_13(reader.u32()?),
        peer: features_13(reader.u32()?),
        ..LinkFeatures::default()
    };
    let link_up = state & LINK_DOWN == 0;
    // OpenFlow 1.0 has no bit for liveness.
    let is_live = link_up && !config.port_down;
    Ok(PortDescription { number, mac, name, config, link_up, is_live, link })
}

/// Writes an `ofp_phy_port`.
pub(super) fn put_port(out: &mut Vec<u8>, port: &PortDescription) {
    put_port_number(out, port.number);
    out.extend_from_slice(&port.mac);
    put_text(out, &port.name, NAME_LEN);
    out.put_u32(config_bits(port.config));
    out.put_u32(if port.link_up { 0 } else { LINK_DOWN });
    let link = &port.link;
    let features = [link.current, link.advertised, link.supported, link.peer];
    features.iter().for_each(|bits| out.put_u32(features_10(*bits)));
}

/// Reads the body of a port-status.
pub(super) fn read_status(reader: &mut ByteReader<'_>) -> Result<PortStatus, ErrorCode> {
    let reason = read_reason(reader.u8()?)?;
    reader.skip(7)?;
    Ok(PortStatus { reason, port: read_port(reader)? })
}

/// Writes the body of a port-status.
pub(super) fn put_status(out: &mut Vec<u8>, status: &PortStatus) {
    out.put_u8(reason_number(status.reason));
    out.put_bytes(0, 7);
    put_port(out, &status.port);
}

/// Reads the body of a port-mod.
pub(super) fn read_mod(reader: &mut ByteReader<'_>) -> Result<PortMod, ErrorCode> {
    let (port, mac) = (port_no::widen(reader.u16()?), reader.array()?);
    let (config, mask) = (read_config(reader.u32()?), read_config(reader.u32()?));
    let advertise = features_13(reader.u32()?);
    reader.skip(4)?;
    Ok(PortMod { port, mac, config, mask, advertise })
}

/// Writes the body of a port-mod.
pub(super) fn put_mod(out: &mut Vec<u8>, port_mod: &PortMod) {
    put_port_number(out, port_mod.port);
    out.extend_from_slice(&port_mod.mac);
    out.put_u32(config_bits(port_mod.config));
    out.put_u32(config_bits(port_mod.mask));
    out.put_u32(features_10(port_mod.advertise));
    out.put_u32(0);
}

/// Writes a port number.
pub(super) fn put_port_number(out: &mut Vec<u8>, port: PortNo) {
    out.put_u16(port_no::narrow(port).unwrap_or(PORT_UNUSED));
}

/// A reserved number without a meaning, for a number that has no form in 16 bits.
///
/// No port of a bridge has such a number.
pub(super) const PORT_UNUSED: u16 = 0xff00;

/// `OFPP_ALL`, which selects all ports in requests for queues.
const PORT_ALL: PortNo = PortNo::ALL;

/// Reads the port of a request for queues, where `OFPP_ALL` selects all ports.
pub(super) fn read_queue_port(reader: &mut ByteReader<'_>) -> Result<PortNo, ErrorCode> {
    match port_no::widen(reader.u16()?) {
        PORT_ALL => Ok(PortNo::ANY),
        // `OFPP_NONE` is no port.
        PortNo::ANY => Err(ErrorCode::QueuePort),
        port => Ok(port),
    }
}

/// Writes the port of a request for queues.
pub(super) fn put_queue_port(out: &mut Vec<u8>, port: PortNo) {
    put_port_number(out, if port == PortNo::ANY { PORT_ALL } else { port });
}

/// Reads the body of a queue configuration request.
pub(super) fn read_queues_request(reader: &mut ByteReader<'_>) -> Result<PortNo, ErrorCode> {
    let port = read_queue_port(reader)?;
    reader.skip(2)?;
    Ok(port)
}

/// Writes the body of a queue configuration request.
pub(super) fn put_queues_request(out: &mut Vec<u8>, port: PortNo) {
    put_queue_port(out, port);
    out.put_u16(0);
}

/// Length of an `ofp_packet_queue` without properties.
const QUEUE_LEN: u16 = 8;

/// Reads the body of a queue configuration reply, which is about one port.
pub(super) fn read_queues(reader: &mut ByteReader<'_>) -> Result<QueueConfig, ErrorCode> {
    let port = read_queue_port(reader)?;
    reader.skip(6)?;
    let mut queues = Vec::new();
    while !reader.is_empty() {
        let queue = QueueId::new(reader.u32()?);
        let left = reader.u16()?.checked_sub(QUEUE_LEN).ok_or(ErrorCode::BadLength)?;
        reader.skip(2)?;
        let (min_rate, max_rate) = read_rates(reader, left)?;
        queues.push(QueueDescription { port, queue, min_rate, max_rate });
    }
    Ok(QueueConfig { port, queues })
}

/// Writes the body of a queue configuration reply.
pub(super) fn put_queues(out: &mut Vec<u8>, config: &QueueConfig) {
    put_queue_port(out, config.port);
    out.put_bytes(0, 6);
    for queue in &config.queues {
        // OpenFlow 1.0 has no maximum rate, and os-ken cannot read one.
        let queue = QueueDescription { max_rate: None, ..*queue };
        out.put_u32(queue.queue.number());
        out.put_u16(QUEUE_LEN.saturating_add(rates_len(&queue)));
        out.put_u16(0);
        put_rates(out, &queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_features_convert_between_openflow_versions() {
        // `OFPPF_10GB_FD` and `OFPPF_COPPER`.
        assert_eq!(features_10(1 << 6 | 1 << 11), 1 << 6 | 1 << 7);
        for features in 0..1 << 12 {
            assert_eq!(features_10(features_13(features)), features);
        }
        // `OFPPF_40GB_FD` has no bit in OpenFlow 1.0.
        assert_eq!(features_10(1 << 7), 0);
    }
}
