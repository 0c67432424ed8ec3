//! `ct` and `nat` (`nx_action_conntrack`, `nx_action_nat`).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use bytes::BufMut;
use shunt_pipeline::{
    Action, CLONE_DEPTH_MAX, CtAction, CtZone, NatAction, NatKind, NatRange, TableId,
};

use super::{
    action_type::nx,
    format::ActionFormat,
    list::{Position, put_actions, read_list},
    nicira::experimenter,
    subfield,
};
use crate::{error::ErrorCode, wire::ByteReader};

/// `NX_CT_F_COMMIT`.
const COMMIT: u16 = 1;
/// `NX_CT_F_FORCE`.
const FORCE: u16 = 1 << 1;
/// No table to recirculate to (`NX_CT_RECIRC_NONE`).
const TABLE_NONE: u8 = 255;
/// Width of a zone in bits.
const ZONE_BITS: u8 = 16;

/// Reads the body of `NXAST_CT` in the list at `position`.
pub(super) fn read(body: &mut ByteReader<'_>, position: Position) -> Result<CtAction, ErrorCode> {
    let Position { depth, format } = position;
    let flags = body.u16()?;
    let (mut source, zone) = (ByteReader::new(body.bytes(4)?), body.u16()?);
    let table = body.u8()?;
    body.skip(3)?;
    let alg = body.u16()?;
    let zone = if source.rest() == [0; 4] {
        CtZone::Number(zone)
    } else {
        let bits = subfield::read_packed(&mut source, zone)?;
        if bits.width != ZONE_BITS {
            return Err(ErrorCode::SetFieldLength);
        }
        CtZone::Field(bits)
    };
    let (commit, force) = (flags & COMMIT != 0, flags & FORCE != 0);
    if force && !commit {
        return Err(ErrorCode::ActionArgument);
    }
    // Open vSwitch accepts unknown flags and table 254. This codec refuses unknown flags and table
    // 254 as an unsupported action.
    if flags & !(COMMIT | FORCE) != 0 {
        return Err(ErrorCode::ActionExperimenterType);
    }
    let table = match (TableId::new(table), table) {
        (None, TABLE_NONE) => None,
        (None, _) => return Err(ErrorCode::ActionExperimenterType),
        (table, _) => table,
    };
    if depth >= CLONE_DEPTH_MAX {
        return Err(ErrorCode::ActionTooMany);
    }
    let actions: Box<[Action]> = read_list(body.rest(), depth.saturating_add(1), format)?.into();
    // Only `ct(commit)` can write fields or addresses of a connection.
    let is_legal = |action: &Action| match action {
        Action::Nat(nat) => commit || nat.kind.is_none(),
        Action::SetField { .. } | Action::Load { .. } | Action::Move { .. } => commit,
        _ => false,
    };
    if !actions.iter().all(is_legal) {
        return Err(ErrorCode::ActionArgument);
    }
    Ok(CtAction { commit, force, zone, table, alg, actions })
}

/// Writes `NXAST_CT`.
pub(super) fn put(out: &mut Vec<u8>, action: &CtAction, format: ActionFormat) {
    experimenter(out, nx::CT, |out| {
        let force = if action.force { FORCE } else { 0 };
        out.put_u16(if action.commit { COMMIT | force } else { force });
        match action.zone {
            CtZone::Number(zone) => {
                out.put_u32(0);
                out.put_u16(zone);
            }
            CtZone::Field(source) => {
                subfield::put_header(out, source);
                out.put_u16(subfield::pack(source));
            }
        }
        out.put_u8(action.table.map_or(TABLE_NONE, TableId::number));
        out.put_bytes(0, 3);
        out.put_u16(action.alg);
        put_actions(out, &action.actions, format);
    });
}

/// `NX_NAT_F_*`.
mod flag {
    pub(super) const SRC: u16 = 1;
    pub(super) const DST: u16 = 1 << 1;
    pub(super) const PERSISTENT: u16 = 1 << 2;
    pub(super) const PROTO_HASH: u16 = 1 << 3;
    pub(super) const PROTO_RANDOM: u16 = 1 << 4;
    pub(super) const ALL: u16 = 0x1f;
}

/// `NX_NAT_RANGE_*`.
mod range {
    pub(super) const IPV4_MIN: u16 = 1;
    pub(super) const IPV4_MAX: u16 = 1 << 1;
    pub(super) const IPV6_MIN: u16 = 1 << 2;
    pub(super) const IPV6_MAX: u16 = 1 << 3;
    pub(super) const PROTO_MIN: u16 = 1 << 4;
    pub(super) const PROTO_MAX: u16 = 1 << 5;
}

/// Reads the body of `NXAST_NAT`.
pub(super) fn read_nat(body: &mut ByteReader<'_>) -> Result<NatAction, ErrorCode> {
    body.skip(2)?;
    let (flags, present) = (body.u16()?, body.u16()?);
    let has = |flag: u16| flags & flag != 0;
    let kind = match (has(flag::SRC), has(flag::DST)) {
        (false, false) => None,
        (true, false) => Some(NatKind::Source),
        (false, true) => Some(NatKind::Destination),
        (true, true) => return Err(ErrorCode::ActionArgument),
    };
    let (hash, random) = (has(flag::PROTO_HASH), has(flag::PROTO_RANDOM));
    if flags & !flag::ALL != 0 || hash && random {
        return Err(ErrorCode::ActionArgument);
    }
    // Open vSwitch reports a truncated range as a bad argument, like an invalid one.
    let range = read_range(body, present).map_err(|_| ErrorCode::ActionArgument)?;
    Ok(NatAction { kind, range, persistent: has(flag::PERSISTENT), hash, random })
}

/// Reads the range of addresses and ports of a `nat` action.
fn read_range(body: &mut ByteReader<'_>, present: u16) -> Result<Option<NatRange>, ErrorCode> {
    let mut v4 = |bit: u16| -> Result<Option<IpAddr>, ErrorCode> {
        Ok(if present & bit == 0 { None } else { Some(Ipv4Addr::from(body.u32()?).into()) })
    };
    let short = (v4(range::IPV4_MIN)?, v4(range::IPV4_MAX)?);
    let mut v6 = |bit: u16| -> Result<Option<IpAddr>, ErrorCode> {
        Ok(if present & bit == 0 { None } else { Some(Ipv6Addr::from(body.array()?).into()) })
    };
    let long = (v6(range::IPV6_MIN)?, v6(range::IPV6_MAX)?);
    let mut port = |bit: u16| -> Result<Option<u16>, ErrorCode> {
        Ok(if present & bit == 0 { None } else { Some(body.u16()?) })
    };
    let ports = (port(range::PROTO_MIN)?, port(range::PROTO_MAX)?);
    let (short, long, ports) = (span(short)?, span(long)?, span(ports)?);
    let addresses = match (short, long) {
        (None, None) if ports.is_none() => return Ok(None),
        (Some(addresses), None) | (None, Some(addresses)) => addresses,
        (Some(_), Some(_)) | (None, None) => return Err(ErrorCode::ActionArgument),
    };
    if addresses.start().is_unspecified() {
        return Err(ErrorCode::ActionArgument);
    }
    Ok(Some(NatRange { addresses, ports }))
}

/// Returns the range from first to last; the last value defaults to the first.
fn span<T: PartialOrd + Copy>(
    (first, last): (Option<T>, Option<T>),
) -> Result<Option<RangeInclusive<T>>, ErrorCode> {
    match (first, last) {
        (None, None) => Ok(None),
        (Some(first), None) => Ok(Some(first..=first)),
        (Some(first), Some(last)) if first <= last => Ok(Some(first..=last)),
        (None, Some(_)) | (Some(_), Some(_)) => Err(ErrorCode::ActionArgument),
    }
}

/// Writes `NXAST_NAT`.
pub(super) fn put_nat(out: &mut Vec<u8>, action: &NatAction) {
    let kind = match action.kind {
        None => 0,
        Some(NatKind::Source) => flag::SRC,
        Some(NatKind::Destination) => flag::DST,
    };
    let when = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
    let flags = kind
        | when(action.persistent, flag::PERSISTENT)
        | when(action.hash, flag::PROTO_HASH)
        | when(action.random, flag::PROTO_RANDOM);
    experimenter(out, nx::NAT, |out| {
        out.put_u16(0);
        out.put_u16(flags);
        match &action.range {
            None => out.put_u16(0),
            Some(range) => put_range(out, range),
        }
    });
}

/// Writes the range of addresses and ports of a `nat` action.
fn put_range(out: &mut Vec<u8>, range: &NatRange) {
    let (first, last) = (range.addresses.start(), range.addresses.end());
    let (min, max) = match first {
        IpAddr::V4(_) => (range::IPV4_MIN, range::IPV4_MAX),
        IpAddr::V6(_) => (range::IPV6_MIN, range::IPV6_MAX),
    };
    let mut present = if first == last { min } else { min | max };
    let mut body = Vec::new();
    let mut put = |address: &IpAddr| match address {
        IpAddr::V4(address) => body.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => body.extend_from_slice(&address.octets()),
    };
    put(first);
    if first != last {
        put(last);
    }
    if let Some(ports) = &range.ports {
        present |= range::PROTO_MIN;
        body.put_u16(*ports.start());
        if ports.start() != ports.end() {
            present |= range::PROTO_MAX;
            body.put_u16(*ports.end());
        }
    }
    out.put_u16(present);
    out.extend_from_slice(&body);
}
