//! Fields with masks, in the syntax of Open vSwitch's datapath.

use std::net::{Ipv4Addr, Ipv6Addr};

use shunt_flow::{FieldId, FlowKey, FlowMask};

/// The field values and masks of an entry to write.
#[derive(Clone, Copy)]
pub(super) struct MaskedFields<'a> {
    pub(super) key: &'a FlowKey,
    pub(super) mask: &'a FlowMask,
    /// True if fields with an empty mask are written too.
    pub(super) with_wildcards: bool,
}

/// The text form of a field's value and of its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldSyntax {
    /// Decimal, with a mask such as `0xf`; an empty mask is `0`.
    Decimal,
    /// Decimal, with a mask such as `0xf`; an empty mask is `0x0`.
    DecimalHexMask,
    /// Decimal, with a mask such as `f`; an empty mask is `0`.
    DecimalBareMask,
    /// The value and the mask are hexadecimal.
    Hex,
    Mac,
    Ipv4,
    Ipv6,
}

impl MaskedFields<'_> {
    /// Returns `name=value` or `name=value/mask`.
    ///
    /// `None` for a field that is not written.
    pub(super) fn field(&self, name: &str, field: FieldId, syntax: FieldSyntax) -> Option<String> {
        let (value, mask) = (self.key.field(field), self.mask.field(field));
        let is_written = mask != 0 || self.with_wildcards;
        is_written.then(|| {
            let value = syntax.value(value);
            match mask == field.value_max() {
                true => format!("{name}={value}"),
                false => format!("{name}={value}/{}", syntax.mask(mask)),
            }
        })
    }

    /// Returns `name(fields)`; `None` if no field is written.
    pub(super) fn attribute(
        name: &str,
        fields: impl IntoIterator<Item = Option<String>>,
    ) -> Option<String> {
        let fields: Vec<String> = fields.into_iter().flatten().collect();
        (!fields.is_empty()).then(|| format!("{name}({})", fields.join(",")))
    }
}

impl FieldSyntax {
    /// Writes a value of the field.
    fn value(self, value: u128) -> String {
        match self {
            Self::Decimal | Self::DecimalHexMask | Self::DecimalBareMask => value.to_string(),
            Self::Hex => hex(value),
            Self::Mac => mac(value),
            Self::Ipv4 => {
                debug_assert!(u32::try_from(value).is_ok(), "IPv4 fields have 32 bits");
                Ipv4Addr::from(u32::try_from(value).unwrap_or(u32::MAX)).to_string()
            }
            Self::Ipv6 => Ipv6Addr::from(value).to_string(),
        }
    }

    /// Writes a mask of the field.
    fn mask(self, mask: u128) -> String {
        match self {
            Self::Decimal => hex(mask),
            Self::DecimalHexMask => format!("{mask:#x}"),
            Self::DecimalBareMask => format!("{mask:x}"),
            _ => self.value(mask),
        }
    }
}

/// Writes a number as `%#x` of C does: zero has no prefix `0x`.
pub(super) fn hex(value: u128) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

/// Formats a MAC address.
fn mac(value: u128) -> String {
    let [.., a, b, c, d, e, f] = value.to_be_bytes();
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}
