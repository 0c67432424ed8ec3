//! Bits of fields, as Nicira's actions name them.

use bytes::BufMut;
use shunt_flow::{FieldId, field::Access};
use shunt_pipeline::Subfield;

use crate::{
    error::ErrorCode,
    wire::{ByteReader, v13::oxm},
};

/// The header of a field of 16 bits that shares its place with `OXM_OF_IN_PORT`.
const NXM_OF_IN_PORT: u32 = 0x0000_0002;
/// The header of the whole of `in_port`.
const OXM_OF_IN_PORT: u32 = 0x8000_0004;

/// Some bits of a field, if it has them.
pub(super) fn bits(field: FieldId, offset: u16, width: u16) -> Result<Subfield, ErrorCode> {
    let (Ok(offset), Ok(width)) = (u8::try_from(offset), u8::try_from(width)) else {
        return Err(ErrorCode::SetFieldLength);
    };
    Subfield::new(field, offset, width).ok_or(ErrorCode::SetFieldLength)
}

/// The same bits, if actions may write them.
pub(super) fn writable(target: Subfield) -> Result<Subfield, ErrorCode> {
    let is_writable = target.field.info().access == Access::ReadWrite;
    if is_writable { Ok(target) } else { Err(ErrorCode::SetFieldArgument) }
}

/// Offset and width in the sixteen bits that `ofs_nbits` has for them.
pub(super) fn unpack(offset_width: u16) -> (u16, u16) {
    (offset_width >> 6, (offset_width & 0x3f).saturating_add(1))
}

/// Offset and width as `ofs_nbits`.
pub(super) fn pack(subfield: Subfield) -> u16 {
    u16::from(subfield.offset) << 6 | u16::from(subfield.width).wrapping_sub(1) & 0x3f
}

/// Reads bits that `ofs_nbits` gave, of the field whose header comes next.
pub(super) fn read_packed(
    body: &mut ByteReader<'_>,
    ofs_nbits: u16,
) -> Result<Subfield, ErrorCode> {
    let (offset, width) = unpack(ofs_nbits);
    bits(oxm::read_header(body)?, offset, width)
}

/// Reads a field and then an offset in it, as `learn` has them.
pub(super) fn read_in_place(body: &mut ByteReader<'_>, width: u16) -> Result<Subfield, ErrorCode> {
    let field = oxm::read_header(body)?;
    bits(field, body.u16()?, width)
}

/// Writes a field and then an offset in it.
pub(super) fn put_in_place(out: &mut Vec<u8>, subfield: Subfield) {
    put_header(out, subfield);
    out.put_u16(subfield.offset.into());
}

/// Writes the header of the field; that of 16 bits for those of `in_port` that OpenFlow 1.0 knew,
/// because it is the one that clients use, and what they send comes back to them as it was.
pub(super) fn put_header(out: &mut Vec<u8>, subfield: Subfield) {
    match subfield.field {
        FieldId::InPort if subfield.bits() <= 0xffff => out.put_u32(NXM_OF_IN_PORT),
        FieldId::InPort => out.put_u32(OXM_OF_IN_PORT),
        field => oxm::put_header(out, field),
    }
}
