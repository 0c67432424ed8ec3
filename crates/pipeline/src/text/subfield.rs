//! Bits of fields: `NXM_NX_REG0[0..15]`.
//!
//! Two fields are wider in a flow key than in the text of a subfield. `vlan_vid` has 13 bits, one
//! of them for the presence of a tag; `vlan_vid[]` has the 12 bits of the number. `in_port` has 32
//! bits; `in_port[]` (`NXM_OF_IN_PORT`) has the 16 bits of OpenFlow 1.0, and `in_port_oxm[]`
//! (`OXM_OF_IN_PORT`) has all 32 bits.

use shunt_flow::{
    FieldId,
    field::Access,
    text::{integer, nearest_of},
};

use super::{RuleTextError, RuleTextProblem, slice::TextSlice};
use crate::action::Subfield;

/// Reads bits that an action reads.
pub(super) fn parse(slice: TextSlice<'_>) -> Result<Subfield, RuleTextError> {
    let (name, bits) = match slice.split_once("[") {
        Some((name, bits)) => (name, Some(bits)),
        None => (slice, None),
    };
    let field = parse_field(name)?;
    if field.info().oxms.is_empty() {
        return Err(name.error(RuleTextProblem::MatchOnly(field)));
    }
    let width = shown_width(field, name.text());
    let Some(bits) = bits else { return Ok(Subfield { field, offset: 0, width }) };
    let inner = bits.text().strip_suffix(']');
    range(inner, width).and_then(|(offset, width)| Subfield::new(field, offset, width)).ok_or_else(
        || {
            let text = format!("[{}", bits.text());
            let last = field.width().saturating_sub(1);
            bits.error(RuleTextProblem::BadBits { text, field, last })
        },
    )
}

/// The fields that an action may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// The fields of the packet and its metadata.
    Packet,
    /// The fields of [`Self::Packet`], and `dl_vlan` and `dl_vlan_pcp`.
    ///
    /// The last two add a missing tag. Only messages of OpenFlow 1.0 write these two fields, and
    /// rules that the switch has printed.
    PacketOrNewTag,
    /// The mark and the label of the connection, inside `ct`.
    Connection,
}

/// Reads bits that an action writes.
pub(super) fn parse_target(
    slice: TextSlice<'_>,
    writes: Writes,
) -> Result<Subfield, RuleTextError> {
    let target = parse(slice)?;
    writable(target.field, writes).map_err(|problem| slice.error(problem))?;
    Ok(target)
}

/// Returns an error for a field that the action cannot write.
pub(super) fn writable(field: FieldId, writes: Writes) -> Result<(), RuleTextProblem> {
    match (field, writes) {
        (FieldId::CtMark | FieldId::CtLabel, Writes::Connection) => Ok(()),
        (FieldId::CtMark | FieldId::CtLabel, Writes::Packet | Writes::PacketOrNewTag) => {
            Err(RuleTextProblem::OutsideCt(field.name()))
        }
        (_, Writes::Connection) => Err(RuleTextProblem::InsideCt { name: field.name().to_owned() }),
        (FieldId::DlVlan | FieldId::DlVlanPcp, Writes::PacketOrNewTag) => Ok(()),
        _ => writable_in_packet(field),
    }
}

/// Checks that actions may write a field.
fn writable_in_packet(field: FieldId) -> Result<(), RuleTextProblem> {
    match field {
        _ if field.info().access == Access::ReadOnly => Err(RuleTextProblem::ReadOnly(field)),
        _ if field.info().oxms.is_empty() => Err(RuleTextProblem::MatchOnly(field)),
        _ => Ok(()),
    }
}

/// Returns an error for a field with an OXM header of more than 32 bits.
pub(super) fn require_short(subfield: Subfield) -> Result<Subfield, RuleTextProblem> {
    let field = subfield.field;
    let is_short = field.info().oxms.iter().any(|oxm| oxm.class.experimenter().is_none());
    if is_short { Ok(subfield) } else { Err(RuleTextProblem::LongNumber(field)) }
}

/// Returns whether the text names a field, or bits of one.
pub(super) fn is_named(slice: TextSlice<'_>) -> bool {
    let name = slice.split_once("[").map_or(slice, |(name, _)| name).text();
    FieldId::find(name).or_else(|| FieldId::find_oxm_name(name)).is_some()
}

/// Returns the name of a field that has exactly these bits, without brackets.
pub(super) fn whole_name(subfield: Subfield) -> Option<&'static str> {
    let Subfield { field, offset, width } = subfield;
    let name = match field {
        FieldId::InPort if width == field.width() => "in_port_oxm",
        _ => field.name(),
    };
    (offset == 0 && width == shown_width(field, name)).then_some(name)
}

/// Returns the error for an unknown field.
pub(super) fn unknown_field(slice: TextSlice<'_>) -> RuleTextError {
    let names = FieldId::all().flat_map(|field| field.info().names.iter().copied());
    let nearest = nearest_of(slice.text(), names);
    slice.error(RuleTextProblem::UnknownField { name: slice.text().to_owned(), nearest })
}

/// Prints bits of a field.
pub(super) fn format(subfield: Subfield) -> String {
    let Subfield { field, offset, width } = subfield;
    let end = offset.saturating_add(width);
    let oxms = field.info().oxms;
    // `NXM_OF_IN_PORT`, the first number of in_port, has fewer bits than the field.
    let oxm = oxms.iter().find(|oxm| field != FieldId::InPort || end <= oxm.wire_bits);
    let name = oxm.or_else(|| oxms.last()).map_or_else(|| field.name(), |oxm| oxm.name);
    let last = end.saturating_sub(1);
    match width {
        _ if offset == 0 && width == shown_width(field, name) => format!("{name}[]"),
        1 => format!("{name}[{offset}]"),
        _ => format!("{name}[{offset}..{last}]"),
    }
}

/// Parses the name of a field.
fn parse_field(name: TextSlice<'_>) -> Result<FieldId, RuleTextError> {
    let text = name.text();
    let field = FieldId::find(text).or_else(|| FieldId::find_oxm_name(text));
    field.ok_or_else(|| unknown_field(name))
}

/// Reads offset and width from the text between brackets.
fn range(inner: Option<&str>, width: u8) -> Option<(u8, u8)> {
    let bit = |text: &str| u8::try_from(integer(text)?).ok();
    match inner? {
        "" => Some((0, width)),
        bits => match bits.split_once("..") {
            Some((first, last)) => {
                let (first, last) = (bit(first)?, bit(last)?);
                Some((first, last.checked_sub(first)?.checked_add(1)?))
            }
            None => Some((bit(bits)?, 1)),
        },
    }
}

/// Returns the width of a field under this name.
fn shown_width(field: FieldId, name: &str) -> u8 {
    match field {
        FieldId::VlanVid => 12,
        FieldId::InPort if name.eq_ignore_ascii_case("in_port") || name == "NXM_OF_IN_PORT" => 16,
        _ => field.width(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print_again(text: &str) -> Result<String, RuleTextProblem> {
        parse(TextSlice::whole(text)).map(format).map_err(|error| error.problem)
    }

    #[test]
    fn bit_ranges_print_with_wire_names() {
        let cases = [
            ("reg0", "NXM_NX_REG0[]"),
            ("reg0[]", "NXM_NX_REG0[]"),
            ("reg0[0..31]", "NXM_NX_REG0[]"),
            ("NXM_NX_REG0[3]", "NXM_NX_REG0[3]"),
            ("xreg1[3..20]", "OXM_OF_PKT_REG1[3..20]"),
            ("OXM_OF_ETH_SRC[]", "NXM_OF_ETH_SRC[]"),
            ("vlan_vid[]", "OXM_OF_VLAN_VID[]"),
            ("vlan_vid[0..12]", "OXM_OF_VLAN_VID[0..12]"),
            ("in_port", "NXM_OF_IN_PORT[]"),
            ("in_port[8..15]", "NXM_OF_IN_PORT[8..15]"),
            ("in_port_oxm[]", "OXM_OF_IN_PORT[]"),
            ("OXM_OF_IN_PORT[8..31]", "OXM_OF_IN_PORT[8..31]"),
        ];
        for (text, expected) in cases {
            assert_eq!(print_again(text).as_deref(), Ok(expected), "{text}");
            assert_eq!(print_again(expected).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn printed_bit_ranges_are_read_unchanged() {
        for field in FieldId::all().filter(|field| !field.info().oxms.is_empty()) {
            for (offset, width) in [(0, field.width()), (0, 1), (field.width() - 1, 1)] {
                let subfield = Subfield::new(field, offset, width).unwrap();
                let text = format(subfield);
                assert_eq!(parse(TextSlice::whole(&text)), Ok(subfield), "{text}");
            }
        }
    }

    #[test]
    fn bits_outside_the_field_are_refused() {
        for text in ["reg0[32]", "reg0[5..3]", "reg0[0..32]", "reg0[", "reg0[0", "reg0[0..]"] {
            assert!(matches!(print_again(text), Err(RuleTextProblem::BadBits { .. })), "{text}");
        }
        let unknown = RuleTextProblem::UnknownField { name: "rge0".into(), nearest: Some("reg0") };
        assert_eq!(print_again("rge0[]"), Err(unknown));
        assert_eq!(print_again("dl_vlan[]"), Err(RuleTextProblem::MatchOnly(FieldId::DlVlan)));
    }
}
