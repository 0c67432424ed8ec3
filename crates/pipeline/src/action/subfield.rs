//! The bits of a field that an action names.

use shunt_flow::FieldId;

/// Some consecutive bits of a field, such as `NXM_NX_REG0[0..15]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subfield {
    /// The field that has the bits.
    pub field: FieldId,
    /// Lowest bit, counted from the field's least significant one.
    pub offset: u8,
    /// Number of bits, at least 1; `offset + width` is at most the field's width.
    pub width: u8,
}

impl Subfield {
    /// Returns all bits of a field.
    #[must_use]
    pub const fn whole(field: FieldId) -> Self {
        Self { field, offset: 0, width: field.width() }
    }

    /// Returns these bits, or `None` if the field does not have them.
    #[must_use]
    pub fn new(field: FieldId, offset: u8, width: u8) -> Option<Self> {
        let end = u16::from(offset) + u16::from(width);
        (width > 0 && end <= u16::from(field.width())).then_some(Self { field, offset, width })
    }

    /// Returns the bits as a mask of the field's value.
    #[must_use]
    pub const fn bits(self) -> u128 {
        (u128::MAX >> (128 - self.width)) << self.offset
    }
}
