//! Actions that read or write bits of a field.

use bytes::BufMut;
use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{Action, Subfield};

use super::{
    action_type::nx,
    list::expect_len,
    nicira::{experimenter, put_masked_set_field},
    set_field::on_the_wire,
    subfield::{bits, pack, put_header, unpack, writable},
};
use crate::{
    error::ErrorCode,
    wire::{
        ByteReader,
        v13::{
            oxm::{pull_header, read_header},
            port_no,
        },
    },
};

/// Reads the body of `NXAST_REG_LOAD`.
pub(super) fn read_load(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 14)?;
    let (offset, width) = unpack(body.u16()?);
    let field = read_header(body)?;
    let value = body.u64()?;
    if value.unbounded_shr(width.into()) != 0 {
        return Err(ErrorCode::LoadValue);
    }
    let target = writable(bits(field, offset, width)?)?;
    Ok(Action::Load { target, value })
}

/// Writes `NXAST_REG_LOAD`, or a masked set-field if the header is not of 32 bits.
pub(super) fn put_load(out: &mut Vec<u8>, target: Subfield, value: u64) {
    // `dl_vlan_pcp` has no header. `vlan_pcp` has the same bits, but takes no masked set-field.
    let target = match target.field {
        FieldId::DlVlanPcp => Subfield { field: FieldId::VlanPcp, ..target },
        _ => target,
    };
    if target.field.info().oxms.iter().all(|oxm| oxm.class.experimenter().is_some()) {
        // A masked set-field has the same effect.
        let value = u128::from(value).unbounded_shl(target.offset.into());
        let (field, value, mask) = on_the_wire(target.field, value, target.bits());
        put_masked_set_field(out, field, value, mask);
        return;
    }
    experimenter(out, nx::REG_LOAD, |out| {
        out.put_u16(pack(target));
        put_header(out, target);
        out.put_u64(value);
    });
}

/// Reads the body of `NXAST_REG_MOVE`.
pub(super) fn read_move(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    let width = body.u16()?;
    let (source_offset, target_offset) = (body.u16()?, body.u16()?);
    let source = pull_header(body)?;
    let target = pull_header(body)?;
    if body.rest().iter().any(|byte| *byte != 0) {
        return Err(ErrorCode::MustBeZero);
    }
    let source = bits(source, source_offset, width)?;
    let target = writable(bits(target, target_offset, width)?)?;
    Ok(Action::Move { source, target })
}

/// Writes `NXAST_REG_MOVE`.
pub(super) fn put_move(out: &mut Vec<u8>, source: Subfield, target: Subfield) {
    experimenter(out, nx::REG_MOVE, |out| {
        out.put_u16(u16::from(source.width));
        out.put_u16(u16::from(source.offset));
        out.put_u16(u16::from(target.offset));
        put_header(out, source);
        put_header(out, target);
    });
}

/// Reads the body of `NXAST_OUTPUT_REG`.
pub(super) fn read_output(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 14)?;
    let (offset, width) = unpack(body.u16()?);
    let field = read_header(body)?;
    let max_len = body.u16()?;
    output(body, bits(field, offset, width)?, max_len)
}

/// Reads the body of `NXAST_OUTPUT_REG2`, which has room for longer headers.
pub(super) fn read_output2(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 14)?;
    let (offset, width) = unpack(body.u16()?);
    let max_len = body.u16()?;
    let field = pull_header(body)?;
    output(body, bits(field, offset, width)?, max_len)
}

/// Returns `output:FIELD` if the rest of the action is padding.
fn output(rest: &ByteReader<'_>, source: Subfield, max_len: u16) -> Result<Action, ErrorCode> {
    let is_padding = rest.rest().iter().all(|byte| *byte == 0);
    let action = Action::OutputField { source, max_len };
    if is_padding { Ok(action) } else { Err(ErrorCode::ActionArgument) }
}

/// Writes `NXAST_OUTPUT_REG`, or `NXAST_OUTPUT_REG2` for a long header.
pub(super) fn put_output(out: &mut Vec<u8>, source: Subfield, max_len: u16) {
    let mut header = Vec::new();
    put_header(&mut header, source);
    if header.len() == 4 {
        experimenter(out, nx::OUTPUT_REG, |out| {
            out.put_u16(pack(source));
            out.extend_from_slice(&header);
            out.put_u16(max_len);
            out.put_bytes(0, 6);
        });
    } else {
        experimenter(out, nx::OUTPUT_REG2, |out| {
            out.put_u16(pack(source));
            out.put_u16(max_len);
            out.extend_from_slice(&header);
        });
    }
}

/// Reads the body of `NXAST_CHECK_PKT_LARGER`.
pub(super) fn read_check_larger(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    if body.len() < 14 {
        return Err(ErrorCode::ActionLength);
    }
    let (length, offset) = (body.u16()?, body.u16()?);
    let field = pull_header(body)?;
    if body.rest().iter().any(|byte| *byte != 0) {
        return Err(ErrorCode::MustBeZero);
    }
    let target = writable(bits(field, offset, 1)?)?;
    Ok(Action::CheckPktLarger { length, target })
}

/// Writes `NXAST_CHECK_PKT_LARGER`.
pub(super) fn put_check_larger(out: &mut Vec<u8>, length: u16, target: Subfield) {
    experimenter(out, nx::CHECK_PKT_LARGER, |out| {
        out.put_u16(length);
        out.put_u16(target.offset.into());
        put_header(out, target);
    });
}

/// Reads the body of `NXAST_RESUBMIT`.
pub(super) fn read_resubmit(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 6)?;
    Ok(Action::Resubmit { port: resubmit_port(body.u16()?), table: None })
}

/// Returns the ingress port for the lookup; `None` keeps that of the packet.
pub(super) fn resubmit_port(number: u16) -> Option<PortNo> {
    Some(port_no::widen(number)).filter(|port| *port != PortNo::IN_PORT)
}

/// Reads the body of `NXAST_STACK_PUSH` or `NXAST_STACK_POP` (`nx_action_stack`).
pub(super) fn read_stack(body: &mut ByteReader<'_>) -> Result<Subfield, ErrorCode> {
    expect_len(body, 14)?;
    let offset = body.u16()?;
    let field = pull_header(body)?;
    let width = body.u16()?;
    if body.rest().iter().any(|byte| *byte != 0) {
        return Err(ErrorCode::MustBeZero);
    }
    bits(field, offset, width)
}

/// Writes `NXAST_STACK_PUSH` or `NXAST_STACK_POP`.
pub(super) fn put_stack(out: &mut Vec<u8>, subtype: u16, subfield: Subfield) {
    experimenter(out, subtype, |out| {
        out.put_u16(subfield.offset.into());
        put_header(out, subfield);
        out.put_u16(subfield.width.into());
    });
}

#[cfg(test)]
mod tests {
    use super::{super::set_field::read_masked, *};

    fn encode_load(width: u8) -> Vec<u8> {
        let mut out = Vec::new();
        let target = Subfield::new(FieldId::InPort, 0, width).unwrap();
        put_load(&mut out, target, 0);
        // The bytes between the action number and the value.
        out.get(10..16).unwrap().to_vec()
    }

    #[test]
    fn the_short_in_port_has_its_own_number() {
        assert_eq!(encode_load(16), [0x00, 0x0f, 0x00, 0x00, 0x00, 0x02]);
        assert_eq!(encode_load(32), [0x00, 0x1f, 0x80, 0x00, 0x00, 0x04]);
    }

    /// `dl_vlan_pcp` has no number on the wire; the load is written to `vlan_pcp`.
    #[test]
    fn load_of_priority_bits_is_written_to_the_field_with_a_header() {
        let mut out = Vec::new();
        put_load(&mut out, Subfield::new(FieldId::DlVlanPcp, 1, 2).unwrap(), 3);
        let target = Subfield::new(FieldId::VlanPcp, 1, 2).unwrap();
        let read = read_load(&mut ByteReader::new(&out[10..]));
        assert_eq!(read, Ok(Action::Load { target, value: 3 }));
    }

    /// A load of `dl_vlan` is written as `vlan_vid`, because `dl_vlan` has no number.
    ///
    /// The load includes the present bit.
    #[test]
    fn load_of_a_vlan_id_is_written_as_a_masked_set_field() {
        let mut out = Vec::new();
        put_load(&mut out, Subfield::new(FieldId::DlVlan, 0, 12).unwrap(), 5);
        let read = read_masked(&mut ByteReader::new(&out[10..]));
        let expected = Action::SetField { field: FieldId::VlanVid, value: 0x1005, mask: 0x1fff };
        assert_eq!(read, Ok(expected));
    }
}
