//! Writing whole fields, and parts of them in the form that Nicira gave it.
//!
//! OpenFlow 1.3 has no masks in set-field; a write to some bits travels as `NXAST_REG_LOAD2`.

use shunt_flow::{FieldId, field::Access};
use shunt_pipeline::Action;

use super::{list::standard, nicira, number as at};
use crate::{
    error::ErrorCode,
    wire::{
        Reader,
        v13::oxm::{put_field, read_field},
    },
};

/// The bit of `vlan_vid` that says that there is a tag (`OFPVID_PRESENT`).
const VLAN_PRESENT: u128 = 0x1000;

/// A write to all bits of a field.
pub(super) const fn whole(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

/// Reads the body of `OFPAT_SET_FIELD`.
pub(super) fn read(body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let set = read_field(body)?;
    if set.has_mask {
        return Err(ErrorCode::SetFieldMask);
    }
    let is_padding = body.rest().iter().all(|byte| *byte == 0);
    // The standard forbids in_port by name, and a VLAN id without its presence bit.
    let is_forbidden = match set.field {
        FieldId::InPort => true,
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
pub(super) fn read_masked(body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let set = read_field(body)?;
    if body.rest().iter().any(|byte| *byte != 0) {
        return Err(ErrorCode::MustBeZero);
    }
    check_writable(set.field)?;
    Ok(Action::SetField { field: set.field, value: set.value, mask: set.mask })
}

fn check_writable(field: FieldId) -> Result<(), ErrorCode> {
    let is_writable = field.info().access == Access::ReadWrite;
    if is_writable { Ok(()) } else { Err(ErrorCode::SetFieldArgument) }
}

/// Writes a set-field action.
pub(super) fn put(out: &mut Vec<u8>, field: FieldId, value: u128, mask: u128) {
    let (field, value, mask) = on_the_wire(field, value, mask);
    match field {
        _ if mask == field.value_max() && field != FieldId::InPort => {
            standard(out, at::SET_FIELD, |out| put_field(out, field, value, mask));
        }
        _ => nicira::put_masked_set_field(out, field, value, mask),
    }
}

/// The same write to a field that has a number: two spellings of VLAN fields have none.
const fn on_the_wire(field: FieldId, value: u128, mask: u128) -> (FieldId, u128, u128) {
    match field {
        FieldId::DlVlan => (FieldId::VlanVid, value | VLAN_PRESENT, mask | VLAN_PRESENT),
        FieldId::DlVlanPcp => (FieldId::VlanPcp, value, mask),
        _ => (field, value, mask),
    }
}
