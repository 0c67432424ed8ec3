//! Errors of a match on the wire, by the codes of `OFPET_BAD_MATCH`.

use thiserror::Error;

use super::OxmHeader;
use crate::{FieldId, draft::value_bits};

/// The reason why a match was refused.
/// Each reason has a code of `OFPET_BAD_MATCH` (OpenFlow 1.3.5, 7.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OxmError {
    /// The bytes end inside an entry (`OFPBMC_BAD_LEN`).
    #[error(
        "the match is cut off: its last field needs {needed} bytes, but the message has only \
         {present} more"
    )]
    BadLength {
        /// Bytes that the entry needs.
        needed: usize,
        /// Bytes that are left.
        present: usize,
    },
    /// A value has bits outside its mask (`OFPBMC_BAD_WILDCARDS`).
    #[error("the match of {0} has value bits outside its mask: clear these bits")]
    BadWildcards(OxmHeader),
    /// No field has this number and length (`OFPBMC_BAD_FIELD`).
    #[error("{0} cannot be matched, because the switch does not know this field: leave it out")]
    BadField(OxmHeader),
    /// The bridge has no table that binds this tunnel option (`OFPBMC_BAD_FIELD`).
    ///
    /// Open vSwitch has its own code for this error, `NXFMFC_INVALID_TLV_FIELD`.
    #[error(
        "the field {} is not mapped to a tunnel option: map it first, as `ovs-ofctl add-tlv-map` \
         does",
        .0.name()
    )]
    Unbound(FieldId),
    /// The field has no such value (`OFPBMC_BAD_VALUE`).
    #[error(
        "the field {} cannot be {value:#x}: set only bits of {:#x}",
        .field.name(), value_bits(*.field)
    )]
    BadValue {
        /// The field with the refused value.
        field: FieldId,
        /// The value on the wire.
        value: u128,
    },
    /// The field can only be matched whole (`OFPBMC_BAD_MASK`).
    #[error("the field {} can only be matched whole: remove its mask {mask:#x}", .field.name())]
    BadMask {
        /// The field with the refused mask.
        field: FieldId,
        /// The mask on the wire.
        mask: u128,
    },
    /// The match lacks the prerequisite of the field (`OFPBMC_BAD_PREREQ`).
    #[error("a match of {} needs {}: add it before this field", .0.name(), .0.info().prerequisite)]
    BadPrereq(FieldId),
    /// An earlier entry of the match has the same field (`OFPBMC_DUP_FIELD`).
    #[error("the match has {} twice: send each field once", .0.name())]
    DupField(FieldId),
}

impl OxmError {
    /// Returns the code under `OFPET_BAD_MATCH`, as OpenFlow 1.2 and later number it.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::BadLength { .. } => 1,
            Self::BadWildcards(_) => 5,
            Self::BadField(_) | Self::Unbound(_) => 6,
            Self::BadValue { .. } => 7,
            Self::BadMask { .. } => 8,
            Self::BadPrereq(_) => 9,
            Self::DupField(_) => 10,
        }
    }
}
