//! Writes of whole fields, and masked writes in Nicira's form.
//!
//! OpenFlow 1.3 has no masked set-field; a write of some bits is sent as `NXAST_REG_LOAD2`.

use bytes::BufMut;
use shunt_flow::{
    FieldId, PortNo,
    field::{Access, OxmClass},
    oxm::OxmHeader,
};
use shunt_pipeline::Action;

use super::{action_type, list::standard, nicira};
use crate::{
    error::ErrorCode,
    wire::{
        ByteReader,
        v13::oxm::{put_field, read_field},
    },
};

/// The bit of `vlan_vid` that is set if the packet has a tag (`OFPVID_PRESENT`).
const VLAN_PRESENT: u128 = 0x1000;

/// Returns a write of all bits of a field.
pub(super) const fn whole(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

/// Reads the body of `OFPAT_SET_FIELD`.
pub(super) fn read(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    let is_basic = |header: OxmHeader| header.word() >> 16 == OxmClass::Basic.number().into();
    let is_standard = OxmHeader::read(body.rest()).is_ok_and(is_basic);
    let set = read_field(body)?;
    if set.has_mask {
        return Err(ErrorCode::SetFieldMask);
    }
    let is_padding = body.rest().iter().all(|byte| *byte == 0);
    // The standard forbids writes to `in_port`, but not to Nicira's separate field number. The
    // standard also forbids a VLAN id without its present bit.
    let is_forbidden = match set.field {
        FieldId::InPort => is_standard,
        FieldId::VlanVid => set.value & VLAN_PRESENT == 0,
        _ => false,
    };
    if is_forbidden || !is_padding {
        return Err(ErrorCode::SetFieldArgument);
    }
    check_writable(set.field)?;
    Ok(whole(set.field, set.value))
}

/// Reads the body of `NXAST_REG_LOAD2`.
pub(super) fn read_masked(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    let set = read_field(body)?;
    if body.rest().iter().any(|byte| *byte != 0) {
        return Err(ErrorCode::MustBeZero);
    }
    check_writable(set.field)?;
    Ok(Action::SetField { field: set.field, value: set.value, mask: set.mask })
}

/// Refuses a field that no action may write.
fn check_writable(field: FieldId) -> Result<(), ErrorCode> {
    let is_writable = field.info().access == Access::ReadWrite;
    if is_writable { Ok(()) } else { Err(ErrorCode::SetFieldArgument) }
}

/// Writes a set-field action.
pub(super) fn put(out: &mut Vec<u8>, field: FieldId, value: u128, mask: u128) {
    let (field, value, mask) = on_the_wire(field, value, mask);
    match field {
        _ if mask == field.value_max() && field != FieldId::InPort => {
            standard(out, action_type::SET_FIELD, |out| put_field(out, field, value, mask));
        }
        _ => match short_port(field, value).filter(|_| mask == field.value_max()) {
            Some(port) => standard(out, action_type::SET_FIELD, |out| {
                out.put_u32(NXM_OF_IN_PORT);
                out.put_u16(port);
            }),
            None => nicira::put_masked_set_field(out, field, value, mask),
        },
    }
}

/// Header of the 16-bit ingress port that Nicira defined.
const NXM_OF_IN_PORT: u32 = 2;

/// Returns the ingress port in 16 bits, if it fits.
fn short_port(field: FieldId, value: u128) -> Option<u16> {
    let port = u16::try_from(value & 0xffff).ok()?;
    let is_whole = u128::from(PortNo::widened(port.into()).number()) == value;
    (field == FieldId::InPort && is_whole).then_some(port)
}

/// Returns the same write to a field with a wire number; two VLAN fields have none.
pub(super) const fn on_the_wire(field: FieldId, value: u128, mask: u128) -> (FieldId, u128, u128) {
    match field {
        FieldId::DlVlan => (FieldId::VlanVid, value | VLAN_PRESENT, mask | VLAN_PRESENT),
        FieldId::DlVlanPcp => (FieldId::VlanPcp, value, mask),
        _ => (field, value, mask),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ingress_port_is_written_by_nicira_number() {
        let by_nicira = [0x00, 0x00, 0x00, 0x02, 0xff, 0xfe, 0, 0, 0, 0, 0, 0];
        let local = u128::from(PortNo::LOCAL.number());
        assert_eq!(read(&mut ByteReader::new(&by_nicira)), Ok(whole(FieldId::InPort, local)));
        let mut again = Vec::new();
        put(&mut again, FieldId::InPort, local, FieldId::InPort.value_max());
        assert_eq!(again[4..10], by_nicira[..6]);
        let by_the_standard = [0x80, 0x00, 0x00, 0x04, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0];
        let refused = read(&mut ByteReader::new(&by_the_standard));
        assert_eq!(refused, Err(ErrorCode::SetFieldArgument));
    }
}
