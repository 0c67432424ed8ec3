//! Hello, error and switch-wide messages (OpenFlow 1.3.5, 7.3.1, 7.3.2, 7.5).

use bytes::BufMut;
use shunt_pipeline::TableId;

use crate::{
    error::{ErrorCode, ErrorNumber},
    message::{ErrorMessage, Features, Hello, SwitchConfig, TableMod},
    wire::{ByteReader, MessageLengthError, v13::length},
};

/// `OFPHET_VERSIONBITMAP`.
const VERSION_BITMAP: u16 = 1;
/// `OFPET_EXPERIMENTER`.
const ERROR_EXPERIMENTER: u16 = 0xffff;

/// Reads the body of a hello, which always decodes: invalid elements are ignored.
///
/// Of several bitmaps, the last one with a version counts, as in Open vSwitch.
pub(in crate::wire) fn read_hello(version: u8, reader: &mut ByteReader<'_>) -> Hello {
    let mut bitmap = None;
    while let Ok((kind, mut body)) = hello_element(reader) {
        if kind == VERSION_BITMAP
            && let Ok(versions) = body.u32()
            // Bit 0 is no version.
            && (versions > 1 || bitmap.is_none())
        {
            bitmap = Some(versions);
        }
    }
    *reader = ByteReader::new(&[]);
    Hello { version, bitmap }
}

/// Returns the type and the body of the next element of a hello.
fn hello_element<'a>(
    reader: &mut ByteReader<'a>,
) -> Result<(u16, ByteReader<'a>), MessageLengthError> {
    let (kind, length) = (reader.u16()?, reader.u16()?);
    let body = reader.bytes(usize::from(length).checked_sub(4).ok_or(MessageLengthError)?)?;
    // Many peers leave out the padding of the last element.
    let padding = length::padding(usize::from(length)).min(reader.len());
    reader.skip(padding)?;
    Ok((kind, ByteReader::new(body)))
}

/// Writes the body of a hello.
pub(in crate::wire) fn put_hello(out: &mut Vec<u8>, hello: Hello) {
    if let Some(bitmap) = hello.bitmap {
        out.put_u16(VERSION_BITMAP);
        out.put_u16(8);
        out.put_u32(bitmap);
    }
}

/// Reads the body of an error.
pub(in crate::wire) fn read_error(reader: &mut ByteReader<'_>) -> Result<ErrorMessage, ErrorCode> {
    let (kind, code) = (reader.u16()?, reader.u16()?);
    let number = if kind == ERROR_EXPERIMENTER {
        ErrorNumber::Experimenter { experimenter: reader.u32()?, code }
    } else {
        ErrorNumber::Standard { kind, code }
    };
    let data = reader.rest().to_vec();
    *reader = ByteReader::new(&[]);
    Ok(ErrorMessage { number, data })
}

/// Writes the body of an error; truncates data that does not fit.
pub(in crate::wire) fn put_error(out: &mut Vec<u8>, error: &ErrorMessage) {
    match error.number {
        ErrorNumber::Standard { kind, code } => {
            out.put_u16(kind);
            out.put_u16(code);
        }
        ErrorNumber::Experimenter { experimenter, code }
        // The error of OpenFlow 1.0: its type has no form in this version.
        | ErrorNumber::Vendor { vendor: experimenter, code, kind: _ } => {
            out.put_u16(ERROR_EXPERIMENTER);
            out.put_u16(code);
            out.put_u32(experimenter);
        }
    }
    let room = usize::from(u16::MAX).saturating_sub(out.len());
    out.extend_from_slice(error.data.get(..room).unwrap_or(&error.data));
}

/// Reads the body of a features reply.
pub(in crate::wire) fn read_features(reader: &mut ByteReader<'_>) -> Result<Features, ErrorCode> {
    let (datapath_id, buffers_count) = (reader.u64()?, reader.u32()?);
    let (tables_count, auxiliary_id) = (reader.u8()?, reader.u8()?);
    reader.skip(2)?;
    let capabilities = reader.u32()?;
    reader.skip(4)?;
    Ok(Features { datapath_id, buffers_count, tables_count, auxiliary_id, capabilities })
}

/// Writes the body of a features reply.
pub(in crate::wire) fn put_features(out: &mut Vec<u8>, features: &Features) {
    out.put_u64(features.datapath_id);
    out.put_u32(features.buffers_count);
    out.put_u8(features.tables_count);
    out.put_u8(features.auxiliary_id);
    out.put_u16(0);
    out.put_u32(features.capabilities);
    out.put_u32(0);
}

/// Reads a switch configuration. The only fragment policy is normal.
pub(in crate::wire) fn read_config(reader: &mut ByteReader<'_>) -> Result<SwitchConfig, ErrorCode> {
    let (flags, miss_send_len) = (reader.u16()?, reader.u16()?);
    if flags == 0 { Ok(SwitchConfig { miss_send_len }) } else { Err(ErrorCode::ConfigFlags) }
}

/// Writes a switch configuration.
pub(in crate::wire) fn put_config(out: &mut Vec<u8>, config: SwitchConfig) {
    out.put_u16(0);
    out.put_u16(config.miss_send_len);
}

/// Reads the body of a table-mod.
pub(in crate::wire) fn read_table_mod(reader: &mut ByteReader<'_>) -> Result<TableMod, ErrorCode> {
    let number = reader.u8()?;
    reader.skip(3)?;
    // OpenFlow 1.3 defines no setting and reserves the bits of 1.1 for old controllers.
    reader.skip(4)?;
    match (TableId::new(number), number) {
        (Some(table), _) => Ok(TableMod { table: Some(table) }),
        (None, 255) => Ok(TableMod { table: None }),
        (None, _) => Err(ErrorCode::TableModTable),
    }
}

/// Writes the body of a table-mod.
pub(in crate::wire) fn put_table_mod(out: &mut Vec<u8>, table_mod: TableMod) {
    out.put_u8(table_mod.table.map_or(255, TableId::number));
    out.put_bytes(0, 7);
}
