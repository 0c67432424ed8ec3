//! The header of an entry: field, length, and mask flag.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::{fmt, sync::LazyLock};

use super::OxmError;
use crate::{
    FieldId,
    field::{Oxm, OxmClass},
};

/// The header of one OXM or NXM entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OxmHeader {
    /// The first 32 bits: class, field, mask flag and length.
    word: u32,
    /// The experimenter number, for an experimenter field.
    experimenter: Option<u32>,
}

impl OxmHeader {
    /// Parses the header at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// [`OxmError::BadLength`] if `bytes` end inside the header, or if its length leaves no room
    /// for the experimenter id of its class.
    pub fn read(bytes: &[u8]) -> Result<Self, OxmError> {
        let short = |needed| OxmError::BadLength { needed, present: bytes.len() };
        let (word, rest) = bytes.split_first_chunk().ok_or_else(|| short(4))?;
        let mut header = Self { word: u32::from_be_bytes(*word), experimenter: None };
        if header.class() == OxmClass::Onf.number() {
            let id = rest.first_chunk().ok_or_else(|| short(8))?;
            header.experimenter = Some(u32::from_be_bytes(*id));
            if header.payload_len() < 4 {
                return Err(short(8));
            }
        }
        Ok(header)
    }

    /// Appends the header to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.word.to_be_bytes());
        if let Some(id) = self.experimenter {
            out.extend_from_slice(&id.to_be_bytes());
        }
    }

    /// Returns the 32 bits of the header: class, field, mask flag, length.
    #[must_use]
    pub const fn word(&self) -> u32 {
        self.word
    }

    /// Returns the experimenter id, if the class has one.
    #[must_use]
    pub const fn experimenter(&self) -> Option<u32> {
        self.experimenter
    }

    /// Returns whether a mask follows the value.
    #[must_use]
    pub const fn has_mask(&self) -> bool {
        self.word & HAS_MASK != 0
    }

    /// Returns the length of this header on the wire, in bytes.
    /// The length is four, or eight with an experimenter id.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        if self.experimenter.is_some() { 8 } else { 4 }
    }

    /// Returns the length of value and mask on the wire, in bytes.
    #[must_use]
    pub const fn body_len(&self) -> usize {
        self.payload_len().saturating_sub(self.experimenter_len())
    }

    /// Returns the length of the complete entry on the wire, in bytes.
    #[must_use]
    pub const fn entry_len(&self) -> usize {
        self.header_len().saturating_add(self.body_len())
    }

    /// Returns the length of the value on the wire, in bytes.
    #[must_use]
    pub const fn value_len(&self) -> usize {
        if self.has_mask() { self.body_len() / 2 } else { self.body_len() }
    }

    /// Returns the field with this number and length, unless it is a tunnel option.
    ///
    /// The number of a tunnel option has no meaning without a table that binds it to a field.
    #[must_use]
    pub fn find_field(&self) -> Option<FieldId> {
        self.find_number().filter(|field| field.tunnel_option().is_none())
    }

    /// Returns the field with this number and length.
    pub(super) fn find_number(&self) -> Option<FieldId> {
        let class = ClassIndex::find(self.class(), self.experimenter)?;
        let (field, value_len) =
            NUMBERS.get(class.0)?.get(usize::from(self.number())).copied()??;
        // The length of a tunnel option depends on the table that binds it.
        let fits = body_len(value_len, self.has_mask()) == self.body_len();
        (fits || field.tunnel_option().is_some()).then_some(field)
    }

    /// Returns the header with the number `oxm` of `field`.
    #[must_use]
    pub(super) fn of(oxm: Oxm, field: FieldId, has_mask: bool) -> Self {
        let experimenter = oxm.class.experimenter();
        let value_len = oxm.wire_len(field.width());
        let id_len = if experimenter.is_some() { 4 } else { 0 };
        let length = body_len(value_len, has_mask).saturating_add(id_len);
        #[expect(clippy::cast_possible_truncation, reason = "a field has at most 16 bytes")]
        let length = length as u32;
        let class = u32::from(oxm.class.number());
        let mask_flag = if has_mask { HAS_MASK } else { 0 };
        let word = class << 16 | u32::from(oxm.number) << 9 | mask_flag | length;
        Self { word, experimenter }
    }

    /// Returns the class of the field.
    const fn class(&self) -> u16 {
        (self.word >> 16) as u16
    }

    /// Returns the number of the field in its class.
    const fn number(&self) -> u8 {
        (self.word >> 9 & 0x7f) as u8
    }

    /// Returns the number of bytes after the header word.
    const fn payload_len(&self) -> usize {
        (self.word & 0xff) as usize
    }

    /// Returns the number of bytes of the experimenter id.
    const fn experimenter_len(&self) -> usize {
        if self.experimenter.is_some() { 4 } else { 0 }
    }
}

impl fmt::Display for OxmHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = self.find_number() {
            return f.write_str(field.name());
        }
        let (class, number, length) = (self.class(), self.number(), self.value_len());
        write!(f, "field {number} of class {class:#06x}")?;
        if let Some(experimenter) = self.experimenter {
            write!(f, " of experimenter {experimenter:#010x}")?;
        }
        write!(f, " with {length} bytes")
    }
}

/// Returns the header under which `field` is sent, without a mask.
/// The result is `None` if the field has no number on the wire.
#[must_use]
pub fn header(field: FieldId) -> Option<OxmHeader> {
    preferred(field).map(|oxm| OxmHeader::of(oxm, field, false))
}

/// Returns the field of a 32-bit header.
/// Experimenter classes have an id after the header.
#[must_use]
pub fn find_header(word: u32, experimenter: Option<u32>) -> Option<FieldId> {
    OxmHeader { word, experimenter }.find_field()
}

/// Returns the number under which a field is sent.
///
/// A number that OpenFlow 1.3 knows is preferred. For the fields of OpenFlow 1.5 the preferred
/// number is the ONF experimenter number. An NXM number is used only if the field has no other
/// number.
pub(super) fn preferred(field: FieldId) -> Option<Oxm> {
    /// Classes, the preferred one first.
    const ORDER: [OxmClass; 3] = [OxmClass::Onf, OxmClass::Basic, OxmClass::PacketRegs];
    let oxms = field.info().oxms;
    let of_class = |class| oxms.iter().find(|oxm| oxm.class == class);
    ORDER.into_iter().find_map(of_class).or_else(|| oxms.first()).copied()
}

/// Returns the length of a value, with its mask if it has one.
const fn body_len(value_len: usize, has_mask: bool) -> usize {
    if has_mask { value_len.saturating_mul(2) } else { value_len }
}

/// Index of a class in [`NUMBERS`].
struct ClassIndex(usize);

impl ClassIndex {
    /// Returns the index of the class with these numbers.
    fn find(number: u16, experimenter: Option<u32>) -> Option<Self> {
        let is =
            |class: &OxmClass| class.number() == number && class.experimenter() == experimenter;
        CLASSES.iter().position(is).map(Self)
    }
}

/// All classes, in the order of [`ClassIndex`].
const CLASSES: [OxmClass; 8] = [
    OxmClass::Basic,
    OxmClass::Nxm1,
    OxmClass::Nxm0,
    OxmClass::PacketRegs,
    OxmClass::Onf,
    OxmClass::Nicira,
    OxmClass::Nsh,
    OxmClass::Ericsson,
];

/// Field and value length in bytes, by class and number.
type FieldNumbers = [[Option<(FieldId, usize)>; 128]; CLASSES.len()];

/// Fields by class and number.
static NUMBERS: LazyLock<FieldNumbers> = LazyLock::new(|| {
    let mut numbers: FieldNumbers = [[None; 128]; CLASSES.len()];
    for field in FieldId::all() {
        for oxm in field.info().oxms {
            let value_len = oxm.wire_len(field.width());
            let class = ClassIndex::find(oxm.class.number(), oxm.class.experimenter());
            let numbers = class.and_then(|class| numbers.get_mut(class.0));
            if let Some(number) = numbers.and_then(|all| all.get_mut(usize::from(oxm.number))) {
                *number = Some((field, value_len));
            }
        }
    }
    numbers
});

/// The bit of the header for a value with a mask.
const HAS_MASK: u32 = 0x100;
