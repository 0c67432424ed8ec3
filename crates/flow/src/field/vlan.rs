//! Parts of a VLAN tag control information field.

/// The presence bit: set in the key of every tagged packet, whatever the tag's own CFI says.
pub(crate) const PRESENT: u128 = 0x1000;

/// The VLAN id.
pub(crate) const VID: u128 = 0x0fff;

/// The priority.
pub(crate) const PCP: u128 = 0xe000;
