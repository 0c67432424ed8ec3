//! `push` and `pop`: bits of fields on a stack (`nx_action_stack`).

use bytes::BufMut;
use shunt_pipeline::Subfield;

use super::{list::expect_len, nicira::experimenter, subfield};
use crate::{
    error::ErrorCode,
    wire::{Reader, v13::oxm::pull_header},
};

/// Reads the body of `NXAST_STACK_PUSH` and `NXAST_STACK_POP`.
pub(super) fn read(body: &mut Reader<'_>) -> Result<Subfield, ErrorCode> {
    expect_len(body, 14)?;
    let offset = body.u16()?;
    let field = pull_header(body)?;
    let width = body.u16()?;
    if body.rest().iter().any(|byte| *byte != 0) {
        return Err(ErrorCode::MustBeZero);
    }
    subfield::bits(field, offset, width)
}

/// Writes one of them.
pub(super) fn put(out: &mut Vec<u8>, subtype: u16, bits: Subfield) {
    experimenter(out, subtype, |out| {
        out.put_u16(bits.offset.into());
        subfield::put_header(out, bits);
        out.put_u16(bits.width.into());
    });
}
