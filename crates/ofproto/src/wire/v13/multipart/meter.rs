//! `OFPMP_METER`, `OFPMP_METER_CONFIG`, `OFPMP_METER_FEATURES` (OpenFlow 1.3.5, 7.3.5.12 to 7.3.5.14).

use bytes::BufMut;
use shunt_pipeline::MeterId;

use super::group::{put_totals, read_totals};
use crate::{
    error::ErrorCode,
    message::{MeterDescription, MeterFeatures, MeterStatistics},
    wire::{
        ByteReader, MessageLengthError,
        v13::{
            body::{
                flow_removed::{put_duration, read_duration},
                meter::{flags_bits, put_bands, read_config},
            },
            length,
        },
    },
};

/// Reads the body of a request for meter statistics or configurations.
pub(super) fn read_filter(body: &mut ByteReader<'_>) -> Result<Option<MeterId>, ErrorCode> {
    let meter = MeterId::new(body.u32()?);
    body.skip(4)?;
    Ok(Some(meter).filter(|meter| *meter != MeterId::ALL))
}

/// Writes the body of a request for meter statistics or configurations.
pub(super) fn put_filter(out: &mut Vec<u8>, meter: Option<MeterId>) {
    out.put_u32(meter.unwrap_or(MeterId::ALL).number());
    out.put_u32(0);
}

/// Reads an entry of `OFPMP_METER`.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<MeterStatistics, ErrorCode> {
    let meter = MeterId::new(reader.u32()?);
    // The length includes the meter id before it.
    let length = usize::from(reader.u16()?).checked_sub(6).ok_or(MessageLengthError)?;
    let mut entry = ByteReader::new(reader.bytes(length)?);
    entry.skip(6)?;
    let flows = entry.u32()?;
    let total = read_totals(&mut entry)?;
    let duration = read_duration(&mut entry)?;
    let mut bands = Vec::new();
    while !entry.is_empty() {
        bands.push(read_totals(&mut entry)?);
    }
    Ok(MeterStatistics { meter, flows, duration, total, bands })
}

/// Writes an entry of `OFPMP_METER`.
pub(super) fn put(out: &mut Vec<u8>, meter: &MeterStatistics) {
    let start = out.len();
    out.put_u32(meter.meter.number());
    let length_at = length::reserve(out);
    out.put_bytes(0, 6);
    out.put_u32(meter.flows);
    put_totals(out, meter.total);
    put_duration(out, meter.duration);
    meter.bands.iter().for_each(|band| put_totals(out, *band));
    length::fill(out, length_at, start);
}

/// Reads an entry of `OFPMP_METER_CONFIG`.
pub(super) fn read_description(reader: &mut ByteReader<'_>) -> Result<MeterDescription, ErrorCode> {
    let length = usize::from(reader.u16()?).checked_sub(2).ok_or(MessageLengthError)?;
    let mut entry = ByteReader::new(reader.bytes(length)?);
    let (flags, meter) = (entry.u16()?, MeterId::new(entry.u32()?));
    Ok(MeterDescription { meter, config: read_config(flags, &mut entry)? })
}

/// Writes an entry of `OFPMP_METER_CONFIG`.
pub(super) fn put_description(out: &mut Vec<u8>, meter: &MeterDescription) {
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u16(flags_bits(&meter.config));
    out.put_u32(meter.meter.number());
    put_bands(out, &meter.config.bands);
    length::fill(out, length_at, start);
}

/// Reads the body of `OFPMP_METER_FEATURES`.
pub(super) fn read_features(body: &mut ByteReader<'_>) -> Result<MeterFeatures, ErrorCode> {
    let features = MeterFeatures {
        meters_max: body.u32()?,
        band_kinds: body.u32()?,
        capabilities: body.u32()?,
        bands_max: body.u8()?,
        colors_max: body.u8()?,
    };
    body.skip(2)?;
    Ok(features)
}

/// Writes the body of `OFPMP_METER_FEATURES`.
pub(super) fn put_features(out: &mut Vec<u8>, features: &MeterFeatures) {
    out.put_u32(features.meters_max);
    out.put_u32(features.band_kinds);
    out.put_u32(features.capabilities);
    out.put_u8(features.bands_max);
    out.put_u8(features.colors_max);
    out.put_u16(0);
}
