//! `OFPT_METER_MOD` and bands (OpenFlow 1.3.5, 7.3.4.4).

use bytes::BufMut;
use shunt_pipeline::{
    MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterId, MeterMod, MeterUnit,
};

use crate::{error::ErrorCode, wire::ByteReader};

/// Length of a band in bytes.
const BAND_LEN: u16 = 16;

/// `ofp_meter_flags`.
pub(in crate::wire) mod flag {
    pub(super) const KBPS: u16 = 1;
    pub(super) const PKTPS: u16 = 1 << 1;
    pub(super) const BURST: u16 = 1 << 2;
    pub(super) const STATS: u16 = 1 << 3;
}

/// `ofp_meter_band_type`.
pub(in crate::wire) mod band {
    pub(super) const DROP: u16 = 1;
    pub(super) const DSCP_REMARK: u16 = 2;
}

/// Reads the body of a meter-mod.
pub(in crate::wire) fn read(reader: &mut ByteReader<'_>) -> Result<MeterMod, ErrorCode> {
    let (command, flags, meter) = (reader.u16()?, reader.u16()?, MeterId::new(reader.u32()?));
    let command = match command {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        _ => return Err(ErrorCode::MeterCommand),
    };
    if command == MeterCommand::Delete {
        *reader = ByteReader::new(&[]);
        let meter = Some(meter).filter(|meter| *meter != MeterId::ALL);
        return Ok(MeterMod { command, meter, config: empty_config() });
    }
    // Zero and `ALL` are never valid. Numbers above `MeterId::MAX` are refused after flags and
    // bands were read, so errors in flags and bands are reported first.
    if meter.number() == 0 || meter == MeterId::ALL {
        return Err(ErrorCode::MeterInvalid);
    }
    let config = read_config(flags, reader)?;
    if meter > MeterId::MAX {
        return Err(ErrorCode::MeterInvalid);
    }
    Ok(MeterMod { command, meter: Some(meter), config })
}

/// Returns the empty configuration of a delete command.
pub(crate) fn empty_config() -> MeterConfig {
    MeterConfig { unit: MeterUnit::Kilobits, burst: false, stats: false, bands: Box::default() }
}

/// Writes the body of a meter-mod.
pub(in crate::wire) fn put(out: &mut Vec<u8>, meter_mod: &MeterMod) {
    let (number, flags) = match meter_mod.command {
        MeterCommand::Add => (0, flags_bits(&meter_mod.config)),
        MeterCommand::Modify => (1, flags_bits(&meter_mod.config)),
        MeterCommand::Delete => (2, 0),
    };
    out.put_u16(number);
    out.put_u16(flags);
    out.put_u32(meter_mod.meter.unwrap_or(MeterId::ALL).number());
    put_bands(out, &meter_mod.config.bands);
}

/// Reads bands to the end of the message.
pub(in crate::wire) fn read_config(
    flags: u16,
    reader: &mut ByteReader<'_>,
) -> Result<MeterConfig, ErrorCode> {
    let mut bands = Vec::new();
    let unit = match flags & (flag::KBPS | flag::PKTPS) {
        flag::KBPS => MeterUnit::Kilobits,
        flag::PKTPS => MeterUnit::Packets,
        _ => return Err(ErrorCode::MeterFlags),
    };
    if flags & !(flag::KBPS | flag::PKTPS | flag::BURST | flag::STATS) != 0 {
        return Err(ErrorCode::MeterFlags);
    }
    while !reader.is_empty() {
        bands.push(read_band(reader)?);
    }
    let (burst, stats) = (flags & flag::BURST != 0, flags & flag::STATS != 0);
    Ok(MeterConfig { unit, burst, stats, bands: bands.into() })
}

/// Reads a band of a meter.
fn read_band(reader: &mut ByteReader<'_>) -> Result<MeterBand, ErrorCode> {
    let mut band = ByteReader::new(reader.bytes(BAND_LEN.into())?);
    let (kind, length) = (band.u16()?, band.u16()?);
    let (rate, burst_size, precedence) = (band.u32()?, band.u32()?, band.u8()?);
    let kind = match kind {
        band::DROP => MeterBandKind::Drop,
        band::DSCP_REMARK => MeterBandKind::DscpRemark { precedence },
        _ => return Err(ErrorCode::MeterBand),
    };
    if length != BAND_LEN {
        return Err(ErrorCode::BadLength);
    }
    if rate == 0 {
        return Err(ErrorCode::MeterRate);
    }
    Ok(MeterBand { kind, rate, burst_size })
}

/// Returns the flags of a meter.
pub(in crate::wire) fn flags_bits(config: &MeterConfig) -> u16 {
    let unit = match config.unit {
        MeterUnit::Kilobits => flag::KBPS,
        MeterUnit::Packets => flag::PKTPS,
    };
    let burst = if config.burst { flag::BURST } else { 0 };
    let stats = if config.stats { flag::STATS } else { 0 };
    unit | burst | stats
}

/// Writes bands.
pub(in crate::wire) fn put_bands(out: &mut Vec<u8>, bands: &[MeterBand]) {
    for band in bands {
        let (kind, precedence) = match band.kind {
            MeterBandKind::Drop => (band::DROP, 0),
            MeterBandKind::DscpRemark { precedence } => (band::DSCP_REMARK, precedence),
        };
        out.put_u16(kind);
        out.put_u16(BAND_LEN);
        out.put_u32(band.rate);
        out.put_u32(band.burst_size);
        out.put_u8(precedence);
        out.put_bytes(0, 3);
    }
}
