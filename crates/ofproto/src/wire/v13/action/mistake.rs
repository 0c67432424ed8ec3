//! Texts about wrong arguments of actions, for the log.
//!
//! The error code of a refused action has the rule that the action breaks. The text has the
//! arguments of the action, and the argument that breaks the rule.

use std::fmt;

use shunt_flow::{FieldId, field::Access, oxm::OxmHeader};

use super::{
    action_type::{self, nx},
    format::ActionFormat,
    subfield::{bits, unpack},
};
use crate::{
    error::NICIRA_EXPERIMENTER,
    wire::{ByteReader, v13::oxm::find_bad_value},
};

/// Returns the wrong argument of an action that cannot be decoded.
///
/// `None` if the action has another mistake, or if actions of this kind have no such text.
pub(super) fn find_mistake(
    kind: u16,
    body: &ByteReader<'_>,
    format: ActionFormat,
) -> Option<String> {
    let mut body = body.clone();
    match (kind, format) {
        (action_type::EXPERIMENTER, _) if body.u32() == Ok(NICIRA_EXPERIMENTER) => {
            of_nicira(&mut body)
        }
        (action_type::SET_FIELD, ActionFormat::V13) => of_value(body.rest()),
        (action_type::PUSH_VLAN, ActionFormat::V13) => {
            let ethertype = body.u16().ok().filter(|own| !matches!(own, 0x8100 | 0x88a8))?;
            Some(format!("push_vlan:{ethertype:#06x}, and not 0x8100 or 0x88a8"))
        }
        (action_type::PUSH_MPLS, ActionFormat::V13) => {
            let ethertype = body.u16().ok().filter(|own| !matches!(own, 0x8847 | 0x8848))?;
            Some(format!("push_mpls:{ethertype:#06x}, and not 0x8847 or 0x8848"))
        }
        _ => None,
    }
}

/// Returns the wrong argument of an action of Nicira.
fn of_nicira(body: &mut ByteReader<'_>) -> Option<String> {
    match body.u16().ok()? {
        nx::REG_LOAD => of_load(body),
        nx::REG_LOAD2 => of_value(body.rest()),
        nx::REG_MOVE => of_move(body),
        _ => None,
    }
}

/// Returns the mistake in a written field with its value.
fn of_value(entry: &[u8]) -> Option<String> {
    if let Some(mistake) = find_bad_value(entry) {
        return Some(mistake.to_string());
    }
    read_only(OxmHeader::read(entry).ok()?.find_field()?)
}

/// Returns the wrong argument of `NXAST_REG_LOAD`.
fn of_load(body: &mut ByteReader<'_>) -> Option<String> {
    let (offset, width) = unpack(body.u16().ok()?);
    let target = WireSubfield::read(body, offset, width)?;
    let value = body.u64().ok()?;
    let needed = u64::BITS.saturating_sub(value.leading_zeros());
    let too_long = || {
        let is_long = needed > u32::from(width);
        is_long.then(|| format!("the value needs {needed} bits, and the target has {width}"))
    };
    let mistake = target.unknown().or_else(too_long).or_else(|| target.mistake(Access::ReadWrite));
    Some(format!("load:{value:#x}->{target}: {}", mistake?))
}

/// Returns the wrong argument of `NXAST_REG_MOVE`.
fn of_move(body: &mut ByteReader<'_>) -> Option<String> {
    let width = body.u16().ok()?;
    let (source_offset, target_offset) = (body.u16().ok()?, body.u16().ok()?);
    let source = WireSubfield::read(body, source_offset, width)?;
    let target = WireSubfield::read(body, target_offset, width)?;
    let mistake = [source, target].iter().find_map(|own| own.masked().or_else(|| own.unknown()));
    let mistake = mistake
        .or_else(|| source.mistake(Access::ReadOnly))
        .or_else(|| target.mistake(Access::ReadWrite));
    Some(format!("move:{source}->{target}: {}", mistake?))
}

/// Returns a text if actions cannot write a field.
fn read_only(field: FieldId) -> Option<String> {
    let is_writable = field.info().access == Access::ReadWrite;
    (!is_writable).then(|| format!("{} is read-only", field.name()))
}

/// Bits of a field as an action has them, also if the field lacks these bits.
#[derive(Clone, Copy)]
struct WireSubfield {
    /// The OXM or NXM header of the field.
    header: OxmHeader,
    /// Index of the first bit in the field.
    offset: u16,
    /// Number of bits of the subfield.
    width: u16,
}

impl WireSubfield {
    /// Reads the header of the field; `None` if the bytes end before.
    fn read(body: &mut ByteReader<'_>, offset: u16, width: u16) -> Option<Self> {
        let header = OxmHeader::read(body.rest()).ok()?;
        body.skip(header.header_len()).ok()?;
        Some(Self { header, offset, width })
    }

    /// Returns a text if the header has the mask bit.
    fn masked(&self) -> Option<String> {
        self.header.has_mask().then(|| format!("the header of {} has the mask bit", self.header))
    }

    /// Returns a text if actions have no such field.
    fn unknown(&self) -> Option<String> {
        let is_known = self.header.find_field().is_some();
        (!is_known).then(|| format!("{} is not a field of actions", self.header))
    }

    /// Returns a text if the field lacks the bits, or if actions lack the access.
    fn mistake(&self, needed: Access) -> Option<String> {
        let field = self.header.find_field()?;
        if self.width == 0 {
            return Some("the number of bits is 0".to_owned());
        }
        if bits(field, self.offset, self.width).is_err() {
            return Some(format!("{} has {} bits", field.name(), field.width()));
        }
        if needed == Access::ReadWrite { read_only(field) } else { None }
    }
}

impl fmt::Display for WireSubfield {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.header.find_field() {
            Some(field) => f.write_str(field.name())?,
            None => f.write_str("?")?,
        }
        let end = self.offset.saturating_add(self.width.saturating_sub(1));
        write!(f, "[{}..{end}]", self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorCode, wire::v13::action::read_actions};

    /// Headers of `reg0`, of `eth_type` and of a field that does not exist.
    const REG0: [u8; 4] = [0x00, 0x01, 0x00, 0x04];
    /// The OXM header of the Ethernet type.
    const ETH_TYPE: [u8; 4] = [0x80, 0x00, 0x0a, 0x02];
    /// The OXM header of an unknown field.
    const UNKNOWN: [u8; 4] = [0x80, 0x00, 0x7e, 0x02];

    /// Checks the text about an action of Nicira, which is refused.
    #[track_caller]
    fn check(subtype: u16, rest: &[&[u8]], code: ErrorCode, expected: Option<&str>) {
        let rest = rest.concat();
        let length = u16::try_from(rest.len() + 10).unwrap();
        let start = [0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20];
        let mut action = [&start[..], &subtype.to_be_bytes(), &rest].concat();
        action[2..4].copy_from_slice(&length.to_be_bytes());
        for format in [ActionFormat::V10, ActionFormat::V13] {
            assert_eq!(read_actions(&action, format), Err(code));
            let body = ByteReader::new(&action[4..]);
            let found = find_mistake(action_type::EXPERIMENTER, &body, format);
            assert_eq!(found.as_deref(), expected);
        }
    }

    /// Returns the packed form of `width` bits at an offset.
    fn packed(offset: u16, width: u16) -> [u8; 2] {
        (offset << 6 | (width - 1)).to_be_bytes()
    }

    #[test]
    fn a_refused_load_has_field_and_value() {
        let load = |bits: [u8; 2], field: [u8; 4], value: u64, code, expected: &str| {
            check(nx::REG_LOAD, &[&bits, &field, &value.to_be_bytes()], code, Some(expected));
        };
        let expected = "load:0x10->reg0[4..7]: the value needs 5 bits, and the target has 4";
        load(packed(4, 4), REG0, 16, ErrorCode::LoadValue, expected);
        let expected = "load:0x1->reg0[30..33]: reg0 has 32 bits";
        load(packed(30, 4), REG0, 1, ErrorCode::SetFieldLength, expected);
        let expected = "load:0x800->eth_type[0..15]: eth_type is read-only";
        load(packed(0, 16), ETH_TYPE, 0x800, ErrorCode::SetFieldArgument, expected);
        let expected = "load:0x1->?[0..15]: field 63 of class 0x8000 with 2 bytes is not a field \
                        of actions";
        load(packed(0, 16), UNKNOWN, 1, ErrorCode::SetFieldType, expected);
    }

    #[test]
    fn a_refused_move_has_both_fields() {
        let moved = |numbers: [u16; 3], source: [u8; 4], target: [u8; 4], code, expected| {
            let numbers = numbers.map(u16::to_be_bytes).concat();
            check(nx::REG_MOVE, &[&numbers, &source, &target], code, expected);
        };
        let code = ErrorCode::SetFieldLength;
        let expected = "move:reg0[0..15]->reg0[20..35]: reg0 has 32 bits";
        moved([16, 0, 20], REG0, REG0, code, Some(expected));
        let expected = "move:eth_type[8..23]->reg0[0..15]: eth_type has 16 bits";
        moved([16, 8, 0], ETH_TYPE, REG0, code, Some(expected));
        let expected = "move:reg0[0..0]->reg0[0..0]: the number of bits is 0";
        moved([0, 0, 0], REG0, REG0, code, Some(expected));
        let expected = "move:reg0[0..15]->eth_type[0..15]: eth_type is read-only";
        moved([16, 0, 0], REG0, ETH_TYPE, ErrorCode::SetFieldArgument, Some(expected));
        let expected = "move:?[0..15]->reg0[0..15]: field 63 of class 0x8000 with 2 bytes is not a \
                        field of actions";
        moved([16, 0, 0], UNKNOWN, REG0, ErrorCode::MatchField, Some(expected));
        let masked = [0x00, 0x01, 0x01, 0x08];
        let expected = "move:reg0[0..15]->reg0[0..15]: the header of reg0 has the mask bit";
        moved([16, 0, 0], masked, REG0, ErrorCode::MatchMask, Some(expected));
    }

    #[test]
    fn a_refused_push_has_its_ethernet_type() {
        let text = |kind: u8, ethertype: [u8; 2], code| {
            let action = [&[0, kind, 0, 8][..], &ethertype, &[0, 0]].concat();
            assert_eq!(read_actions(&action, ActionFormat::V13), Err(code));
            find_mistake(kind.into(), &ByteReader::new(&action[4..]), ActionFormat::V13).unwrap()
        };
        let vlan = text(17, [0x12, 0x34], ErrorCode::PushVlanType);
        assert_eq!(vlan, "push_vlan:0x1234, and not 0x8100 or 0x88a8");
        let mpls = text(19, [0x00, 0x08], ErrorCode::PushMplsType);
        assert_eq!(mpls, "push_mpls:0x0008, and not 0x8847 or 0x8848");
        for code in [ErrorCode::LoadValue, ErrorCode::PushVlanType, ErrorCode::PushMplsType] {
            // Open vSwitch has the same number.
            assert_eq!(code.number(), ErrorCode::ActionArgument.number());
        }
    }

    #[test]
    fn a_read_only_field_is_named() {
        let entry = [&ETH_TYPE[..], &[0x08, 0x00], &[0; 6]].concat();
        let action = [&[0, 25, 0, 16][..], &entry].concat();
        assert_eq!(read_actions(&action, ActionFormat::V13), Err(ErrorCode::SetFieldArgument));
        let body = ByteReader::new(&action[4..]);
        let found = find_mistake(action_type::SET_FIELD, &body, ActionFormat::V13);
        assert_eq!(found.as_deref(), Some("eth_type is read-only"));
    }
}
