//! `OFPT_FEATURES_REPLY` and `OFPT_ERROR` (OpenFlow 1.0.0, 5.3.1, 5.4.4).

use bytes::BufMut;

use super::{action, port};
use crate::{
    error::{ErrorCode, ErrorNumber},
    message::{ErrorMessage, Features, PortDescription},
    wire::ByteReader,
};

/// The bit of an ARP match in `ofp_capabilities`, which every bridge has.
const ARP_MATCH_IP: u32 = 1 << 7;
/// The bits of `ofp_capabilities` that [`Features`] also has.
///
/// Group statistics have a bit that OpenFlow 1.0 gave to the spanning tree.
const CAPABILITIES: u32 =
    Features::FLOW_STATS | Features::TABLE_STATS | Features::PORT_STATS | Features::QUEUE_STATS;

/// Reads the body of a features reply.
pub(super) fn read_features(
    reader: &mut ByteReader<'_>,
) -> Result<(Features, Vec<PortDescription>), ErrorCode> {
    let (datapath_id, buffers_count, tables_count) = (reader.u64()?, reader.u32()?, reader.u8()?);
    reader.skip(3)?;
    let capabilities = reader.u32()? & CAPABILITIES;
    reader.skip(4)?;
    let mut ports = Vec::new();
    while !reader.is_empty() {
        ports.push(port::read_port(reader)?);
    }
    let features =
        Features { datapath_id, buffers_count, tables_count, auxiliary_id: 0, capabilities };
    Ok((features, ports))
}

/// Writes the body of a features reply.
pub(super) fn put_features(out: &mut Vec<u8>, features: &Features, ports: &[PortDescription]) {
    out.put_u64(features.datapath_id);
    out.put_u32(features.buffers_count);
    out.put_u8(features.tables_count);
    out.put_bytes(0, 3);
    out.put_u32(features.capabilities & CAPABILITIES | ARP_MATCH_IP);
    out.put_u32(action::SUPPORTED);
    // A message has room for 1364 ports. Port statistics list the others.
    let room = usize::from(u16::MAX).saturating_sub(out.len()) / PORT_LEN;
    ports.iter().take(room).for_each(|port| port::put_port(out, port));
}

/// Length of an `ofp_phy_port` in bytes.
const PORT_LEN: usize = 48;

/// Type of a vendor error (`NXET_VENDOR`) and its code (`NXVC_VENDOR_ERROR`).
const VENDOR_ERROR: (u16, u16) = (0xb0c2, 0);

/// Reads the body of an error.
pub(super) fn read_error(reader: &mut ByteReader<'_>) -> Result<ErrorMessage, ErrorCode> {
    let number = match (reader.u16()?, reader.u16()?) {
        VENDOR_ERROR => {
            ErrorNumber::Vendor { vendor: reader.u32()?, kind: reader.u16()?, code: reader.u16()? }
        }
        (kind, code) => ErrorNumber::Standard { kind, code },
    };
    let data = reader.rest().to_vec();
    *reader = ByteReader::new(&[]);
    Ok(ErrorMessage { number, data })
}

/// Writes the body of an error; truncates data that does not fit.
pub(super) fn put_error(out: &mut Vec<u8>, error: &ErrorMessage) {
    let (kind, code) = VENDOR_ERROR;
    match error.number {
        ErrorNumber::Standard { kind, code } => {
            out.put_u16(kind);
            out.put_u16(code);
        }
        ErrorNumber::Vendor { vendor, kind: own_kind, code: own_code } => {
            out.put_u16(kind);
            out.put_u16(code);
            out.put_u32(vendor);
            out.put_u16(own_kind);
            out.put_u16(own_code);
        }
        // Experimenter errors are newer than OpenFlow 1.0, which has no such type.
        ErrorNumber::Experimenter { experimenter, code: own_code } => {
            out.put_u16(kind);
            out.put_u16(code);
            out.put_u32(experimenter);
            out.put_u16(0);
            out.put_u16(own_code);
        }
    }
    let room = usize::from(u16::MAX).saturating_sub(out.len());
    out.extend_from_slice(error.data.get(..room).unwrap_or(&error.data));
}
