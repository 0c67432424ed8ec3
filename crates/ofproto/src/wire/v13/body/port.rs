//! Ports: `ofp_port`, `OFPT_PORT_STATUS`, `OFPT_PORT_MOD` (OpenFlow 1.3.5, 7.2.1, 7.4.3, 7.3.4.3).

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::PortConfig;

use crate::{
    error::ErrorCode,
    message::{LinkFeatures, PortDescription, PortMod, PortStatus, PortStatusReason},
    wire::ByteReader,
};

/// Length of a port name with its terminating zero, in bytes.
pub(in crate::wire) const NAME_LEN: usize = 16;
/// `OFPPS_LINK_DOWN`.
pub(in crate::wire) const LINK_DOWN: u32 = 1;
/// `OFPPS_LIVE`.
const LIVE: u32 = 1 << 2;

/// A wire bit and the field of [`PortConfig`] that holds it.
type Setting = (u32, fn(&mut PortConfig) -> &mut bool);

/// Bits of `ofp_port_config`.
const CONFIG: [Setting; 4] = [
    (1, |config| &mut config.port_down),
    (1 << 2, |config| &mut config.no_recv),
    (1 << 5, |config| &mut config.no_fwd),
    (1 << 6, |config| &mut config.no_packet_in),
];

/// Reads settings from their bits; ignores unknown bits, as Open vSwitch does.
fn read_port_config(bits: u32) -> PortConfig {
    let mut config = PortConfig::default();
    for (bit, setting) in CONFIG {
        *setting(&mut config) = bits & bit != 0;
    }
    config
}

/// Returns the bits of the configuration of a port.
fn config_bits(mut config: PortConfig) -> u32 {
    let add = |bits, (bit, setting): &Setting| {
        if *setting(&mut config) { bits | bit } else { bits }
    };
    CONFIG.iter().fold(0, add)
}

/// Reads an `ofp_port`.
pub(in crate::wire) fn read_port(
    reader: &mut ByteReader<'_>,
) -> Result<PortDescription, ErrorCode> {
    let number = PortNo::new(reader.u32()?);
    reader.skip(4)?;
    let mac = reader.array()?;
    reader.skip(2)?;
    let name = reader.text(NAME_LEN)?;
    let (config, state) = (reader.u32()?, reader.u32()?);
    let link = LinkFeatures {
        current: reader.u32()?,
        advertised: reader.u32()?,
        supported: reader.u32()?,
        peer: reader.u32()?,
        speed_kbps: reader.u32()?,
        speed_max_kbps: reader.u32()?,
    };
    let config = read_port_config(config);
    let link_up = state & LINK_DOWN == 0;
    let is_live = state & LIVE != 0;
    Ok(PortDescription { number, mac, name, config, link_up, is_live, link })
}

/// Writes an `ofp_port`.
pub(in crate::wire) fn put_port(out: &mut Vec<u8>, port: &PortDescription) {
    out.put_u32(port.number.number());
    out.put_u32(0);
    out.extend_from_slice(&port.mac);
    out.put_u16(0);
    super::super::text::put_text(out, &port.name, NAME_LEN);
    out.put_u32(config_bits(port.config));
    let down = if port.link_up { 0 } else { LINK_DOWN };
    out.put_u32(down | if port.is_live { LIVE } else { 0 });
    let link = &port.link;
    let features = [link.current, link.advertised, link.supported, link.peer];
    features.iter().for_each(|bits| out.put_u32(*bits));
    out.put_u32(link.speed_kbps);
    out.put_u32(link.speed_max_kbps);
}

/// Reads the body of a port-status.
pub(in crate::wire) fn read_status(reader: &mut ByteReader<'_>) -> Result<PortStatus, ErrorCode> {
    let reason = read_reason(reader.u8()?)?;
    reader.skip(7)?;
    Ok(PortStatus { reason, port: read_port(reader)? })
}

/// Returns the reason for a number of `ofp_port_reason`.
pub(in crate::wire) const fn read_reason(number: u8) -> Result<PortStatusReason, ErrorCode> {
    Ok(match number {
        0 => PortStatusReason::Add,
        1 => PortStatusReason::Delete,
        2 => PortStatusReason::Modify,
        _ => return Err(ErrorCode::BadType),
    })
}

/// Returns the number of a reason, which is also its bit in asynchronous masks.
pub(crate) const fn reason_number(reason: PortStatusReason) -> u8 {
    match reason {
        PortStatusReason::Add => 0,
        PortStatusReason::Delete => 1,
        PortStatusReason::Modify => 2,
    }
}

/// Writes the body of a port-status.
pub(in crate::wire) fn put_status(out: &mut Vec<u8>, status: &PortStatus) {
    out.put_u8(reason_number(status.reason));
    out.put_bytes(0, 7);
    put_port(out, &status.port);
}

/// Reads the body of a port-mod.
pub(in crate::wire) fn read_mod(reader: &mut ByteReader<'_>) -> Result<PortMod, ErrorCode> {
    let port = PortNo::new(reader.u32()?);
    reader.skip(4)?;
    let mac = reader.array()?;
    reader.skip(2)?;
    let (config, mask) = (read_port_config(reader.u32()?), read_port_config(reader.u32()?));
    let advertise = reader.u32()?;
    reader.skip(4)?;
    Ok(PortMod { port, mac, config, mask, advertise })
}

/// Writes the body of a port-mod.
pub(in crate::wire) fn put_mod(out: &mut Vec<u8>, port_mod: &PortMod) {
    out.put_u32(port_mod.port.number());
    out.put_u32(0);
    out.extend_from_slice(&port_mod.mac);
    out.put_u16(0);
    out.put_u32(config_bits(port_mod.config));
    out.put_u32(config_bits(port_mod.mask));
    out.put_u32(port_mod.advertise);
    out.put_u32(0);
}

#[cfg(test)]
mod tests {
    use shunt_pipeline::{PortBfd, PortInfo};

    use super::*;

    #[test]
    fn a_port_is_live_if_it_carries_packets() {
        let state = |change: &dyn Fn(&mut PortInfo)| {
            let mut port = PortInfo::datapath(1);
            change(&mut port);
            let mut out = Vec::new();
            put_port(&mut out, &PortDescription::of(&port, LinkFeatures::default()));
            u32::from_be_bytes([out[36], out[37], out[38], out[39]])
        };
        assert_eq!(state(&|_| ()), LIVE);
        assert_eq!(state(&|port| port.config.port_down = true), 0);
        assert_eq!(state(&|port| port.link_up = false), LINK_DOWN);
        let up = PortBfd { destination: None, is_forwarding: true };
        assert_eq!(state(&|port| port.bfd = Some(up)), LIVE);
        let down = PortBfd { is_forwarding: false, ..up };
        assert_eq!(state(&|port| port.bfd = Some(down)), 0, "the session is down");
    }
}
