//! `OFPMP_TABLE` and `OFPMP_TABLE_FEATURES` (OpenFlow 1.3.5, 7.3.5.4, 7.3.5.5).
//!
//! Apart from name and limit, all tables have the same features. `ovs-ofctl` requests the table features before most of its
//! commands, and requires at least one table with all eight mandatory properties. The reply lists
//! fields by their OpenFlow 1.3 numbers only, not by Nicira's numbers. The reply is a sixth as long
//! as that of Open vSwitch, which makes these commands faster.

use bytes::BufMut;
use shunt_flow::{
    FieldId,
    field::{Access, Maskable, Oxm, OxmClass},
};
use shunt_pipeline::TableId;

use crate::{
    error::ErrorCode,
    message::{TableFeatures, TableStatistics},
    wire::{
        ByteReader, MessageLengthError,
        v13::{action::STANDARD, length, property, text::put_text},
    },
};

/// Reads an entry of `OFPMP_TABLE`.
pub(super) fn read_statistics(reader: &mut ByteReader<'_>) -> Result<TableStatistics, ErrorCode> {
    let table = TableId::new(reader.u8()?).ok_or(ErrorCode::BadTableId)?;
    reader.skip(3)?;
    let (active, lookups, matches) = (reader.u32()?, reader.u64()?, reader.u64()?);
    Ok(TableStatistics { table, active, lookups, matches })
}

/// Writes an entry of `OFPMP_TABLE`.
pub(super) fn put_statistics(out: &mut Vec<u8>, table: &TableStatistics) {
    out.put_u8(table.table.number());
    out.put_bytes(0, 3);
    out.put_u32(table.active);
    out.put_u64(table.lookups);
    out.put_u64(table.matches);
}

/// Length of an entry without properties, in bytes.
const ENTRY_LEN: usize = 64;
/// `OFPTT_ALL`.
const ALL_TABLES: u8 = 255;
/// Length of a table name with its terminating zero, in bytes.
const NAME_LEN: usize = 32;
/// Instructions: goto-table, write-metadata, write/apply/clear-actions, meter.
const INSTRUCTIONS: [u16; 6] = [1, 2, 3, 4, 5, 6];

/// `ofp_table_feature_prop_type`, without the types `OFPTFPT_*_MISS`.
///
/// Replies have no properties of those types.
mod property_type {
    pub(super) const INSTRUCTIONS: u16 = 0;
    pub(super) const NEXT_TABLES: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 4;
    pub(super) const APPLY_ACTIONS: u16 = 6;
    pub(super) const MATCH: u16 = 8;
    pub(super) const WILDCARDS: u16 = 10;
    pub(super) const WRITE_SETFIELD: u16 = 12;
    pub(super) const APPLY_SETFIELD: u16 = 14;
    /// All types that Open vSwitch knows, with the table-miss variants.
    pub(super) const ALL: [u16; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 0xffff];
}

/// Checks a table features request, which may query but not set features.
///
/// Malformed entries are refused as malformed, in the order of Open vSwitch.
pub(super) fn check_request(body: &mut ByteReader<'_>) -> Result<(), ErrorCode> {
    if !body.len().is_multiple_of(8) {
        return Err(ErrorCode::BadLength);
    }
    if body.is_empty() {
        return Ok(());
    }
    let length = usize::from(body.u16()?);
    let properties_len = length.checked_sub(ENTRY_LEN).filter(|_| length.is_multiple_of(8));
    let properties_len = properties_len.ok_or(ErrorCode::PropertyLength)?;
    let mut check = || {
        let table = body.u8()?;
        body.skip(ENTRY_LEN.saturating_sub(3))?;
        let mut properties = ByteReader::new(body.bytes(properties_len)?);
        if table == ALL_TABLES {
            return Err(ErrorCode::TableFeaturesTable);
        }
        while !properties.is_empty() {
            check_property(&mut properties)?;
        }
        Err(ErrorCode::TableFeaturesPermission)
    };
    check().map_err(|code| match code {
        ErrorCode::BadLength => ErrorCode::PropertyLength,
        code => code,
    })
}

/// Refuses a property of a table that has an unknown type.
fn check_property(properties: &mut ByteReader<'_>) -> Result<(), ErrorCode> {
    let (kind, _) = property::read(properties)?;
    if property_type::ALL.contains(&kind) { Ok(()) } else { Err(ErrorCode::PropertyType) }
}

/// Reads a table features entry, without the features that all tables have.
pub(super) fn read_features(reader: &mut ByteReader<'_>) -> Result<TableFeatures, ErrorCode> {
    let length = usize::from(reader.u16()?).checked_sub(2).ok_or(MessageLengthError)?;
    let mut entry = ByteReader::new(reader.bytes(length)?);
    let table = TableId::new(entry.u8()?).ok_or(ErrorCode::BadTableId)?;
    entry.skip(5)?;
    let name = entry.text(NAME_LEN)?;
    // The metadata bits that can be matched and written, and the configuration.
    entry.skip(8 + 8 + 4)?;
    Ok(TableFeatures { table, name, entries_max: entry.u32()? })
}

/// Writes the table features entry of a table.
pub(super) fn put_features(out: &mut Vec<u8>, features: &TableFeatures) {
    let table = features.table;
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u8(table.number());
    out.put_bytes(0, 5);
    // Tools show a name in place of the number.
    put_text(out, &features.name, NAME_LEN);
    out.put_u64(u64::MAX);
    out.put_u64(u64::MAX);
    out.put_u32(0);
    out.put_u32(features.entries_max);
    put_ids(out, property_type::INSTRUCTIONS, &INSTRUCTIONS);
    let next_tables = table.number().saturating_add(1)..=TableId::MAX.number();
    put_property(out, property_type::NEXT_TABLES, |out| out.extend(next_tables));
    put_ids(out, property_type::WRITE_ACTIONS, &STANDARD);
    put_ids(out, property_type::APPLY_ACTIONS, &STANDARD);
    put_fields(out, property_type::MATCH, |_| true);
    put_fields(out, property_type::WILDCARDS, |_| true);
    // The standard's set-field cannot write the ingress port; Nicira's actions can.
    let is_writable =
        |field: FieldId| field.info().access == Access::ReadWrite && field != FieldId::InPort;
    put_fields(out, property_type::WRITE_SETFIELD, is_writable);
    put_fields(out, property_type::APPLY_SETFIELD, is_writable);
    length::fill(out, length_at, start);
}

/// Writes a property with padding that its length does not include.
fn put_property(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    let length_at = length::reserve(out);
    body(out);
    length::fill(out, length_at, start);
    length::pad(out, start);
}

/// Writes types of instructions or actions, each with the length of its header.
fn put_ids(out: &mut Vec<u8>, kind: u16, ids: &[u16]) {
    put_property(out, kind, |out| {
        for id in ids {
            out.put_u16(*id);
            out.put_u16(4);
        }
    });
}

/// Writes the headers of the OpenFlow 1.3 fields for which `choose` returns true.
fn put_fields(out: &mut Vec<u8>, kind: u16, choose: impl Fn(FieldId) -> bool) {
    /// The highest field number of OpenFlow 1.3 (`OFPXMT_OFB_IPV6_EXTHDR`).
    const NUMBER_MAX: u8 = 39;
    let basic = |field: FieldId| {
        let is_basic = |oxm: &&Oxm| oxm.class == OxmClass::Basic && oxm.number <= NUMBER_MAX;
        field.info().oxms.iter().find(is_basic).map(|oxm| (field, oxm))
    };
    put_property(out, kind, |out| {
        let chosen = FieldId::all().filter(|field| choose(*field)).filter_map(basic);
        for (field, oxm) in chosen {
            let has_mask =
                kind == property_type::MATCH && field.info().maskable == Maskable::Maskable;
            let bits = if oxm.wire_bits == 0 { field.width() } else { oxm.wire_bits };
            let value_len = bits.div_ceil(8);
            out.put_u16(oxm.class.number());
            out.put_u8(oxm.number << 1 | u8::from(has_mask));
            out.put_u8(if has_mask { value_len.saturating_mul(2) } else { value_len });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Open vSwitch checks the length, then the table, then the properties.
    #[test]
    fn features_of_all_tables_cannot_be_set() {
        let entry = |table: u8, properties: &[u8]| {
            let mut entry = vec![0; ENTRY_LEN];
            entry.extend_from_slice(properties);
            entry[1] = u8::try_from(entry.len()).unwrap();
            entry[2] = table;
            check_request(&mut ByteReader::new(&entry))
        };
        let unknown = [0, 77, 0, 4, 0, 0, 0, 0];
        assert_eq!(entry(ALL_TABLES, &[]), Err(ErrorCode::TableFeaturesTable));
        assert_eq!(entry(ALL_TABLES, &unknown), Err(ErrorCode::TableFeaturesTable));
        assert_eq!(entry(3, &unknown), Err(ErrorCode::PropertyType));
        assert_eq!(entry(3, &[]), Err(ErrorCode::TableFeaturesPermission));
    }
}
