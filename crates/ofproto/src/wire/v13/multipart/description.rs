//! `OFPMP_DESC` (OpenFlow 1.3.5, 7.3.5.1).

use crate::{
    error::ErrorCode,
    message::SwitchDescription,
    wire::{ByteReader, v13::text::put_text},
};

/// `DESC_STR_LEN`.
const TEXT_LEN: usize = 256;
/// `SERIAL_NUM_LEN`.
const SERIAL_LEN: usize = 32;

/// Reads an `ofp_desc`, which is the same in OpenFlow 1.0.
pub(in crate::wire) fn read(reader: &mut ByteReader<'_>) -> Result<SwitchDescription, ErrorCode> {
    Ok(SwitchDescription {
        manufacturer: reader.text(TEXT_LEN)?,
        hardware: reader.text(TEXT_LEN)?,
        software: reader.text(TEXT_LEN)?,
        serial: reader.text(SERIAL_LEN)?,
        datapath: reader.text(TEXT_LEN)?,
    })
}

/// Writes an `ofp_desc`.
pub(in crate::wire) fn put(out: &mut Vec<u8>, description: &SwitchDescription) {
    put_text(out, &description.manufacturer, TEXT_LEN);
    put_text(out, &description.hardware, TEXT_LEN);
    put_text(out, &description.software, TEXT_LEN);
    put_text(out, &description.serial, SERIAL_LEN);
    put_text(out, &description.datapath, TEXT_LEN);
}
