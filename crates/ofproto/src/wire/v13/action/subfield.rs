//! Bits of fields in Nicira's actions.

use bytes::BufMut;
use shunt_flow::{FieldId, field::Access};
use shunt_pipeline::Subfield;

use crate::{
    error::ErrorCode,
    wire::{ByteReader, v13::oxm},
};

/// Header of the 16-bit field that is a part of `OXM_OF_IN_PORT`.
const NXM_OF_IN_PORT: u32 = 0x0000_0002;
/// Header of the 32-bit `in_port`.
const OXM_OF_IN_PORT: u32 = 0x8000_0004;

/// Returns a subfield, if all of its bits are in the field.
pub(super) fn bits(field: FieldId, offset: u16, width: u16) -> Result<Subfield, ErrorCode> {
    let (Ok(offset), Ok(width)) = (u8::try_from(offset), u8::try_from(width)) else {
        return Err(ErrorCode::SetFieldLength);
    };
    Subfield::new(field, offset, width).ok_or(ErrorCode::SetFieldLength)
}

/// Returns the subfield, if actions may write it.
pub(super) fn writable(target: Subfield) -> Result<Subfield, ErrorCode> {
    let is_writable = target.field.info().access == Access::ReadWrite;
    if is_writable { Ok(target) } else { Err(ErrorCode::SetFieldArgument) }
}

/// Unpacks offset and width from the 16 bits of `ofs_nbits`.
pub(super) fn unpack(offset_width: u16) -> (u16, u16) {
    (offset_width >> 6, (offset_width & 0x3f).saturating_add(1))
}

/// Packs offset and width into `ofs_nbits`.
pub(super) fn pack(subfield: Subfield) -> u16 {
    u16::from(subfield.offset) << 6 | u16::from(subfield.width).wrapping_sub(1) & 0x3f
}

/// Reads the field header that follows and applies `ofs_nbits` to it.
pub(super) fn read_packed(
    body: &mut ByteReader<'_>,
    ofs_nbits: u16,
) -> Result<Subfield, ErrorCode> {
    let (offset, width) = unpack(ofs_nbits);
    bits(oxm::read_header(body)?, offset, width)
}

/// Reads a field and an offset, as in `learn`.
pub(super) fn read_in_place(body: &mut ByteReader<'_>, width: u16) -> Result<Subfield, ErrorCode> {
    let field = oxm::read_header(body)?;
    bits(field, body.u16()?, width)
}

/// Writes a field and an offset.
pub(super) fn put_in_place(out: &mut Vec<u8>, subfield: Subfield) {
    put_header(out, subfield);
    out.put_u16(subfield.offset.into());
}

/// Writes the field header of a subfield.
///
/// The low 16 bits of `in_port` use the 16-bit header of OpenFlow 1.0. Clients use this header, so
/// they get back the form that they sent.
pub(super) fn put_header(out: &mut Vec<u8>, subfield: Subfield) {
    match subfield.field {
        FieldId::InPort if subfield.bits() <= 0xffff => out.put_u32(NXM_OF_IN_PORT),
        FieldId::InPort => out.put_u32(OXM_OF_IN_PORT),
        field => oxm::put_header(out, field),
    }
}
