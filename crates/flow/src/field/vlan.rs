//! The parts of the tag control information (TCI) of a VLAN tag.

/// The presence bit, set in the key of every tagged packet.
/// The CFI bit on the wire is ignored.
pub(crate) const PRESENT: u128 = 0x1000;

/// The bits of the VLAN id in the TCI.
pub(crate) const VID: u128 = 0x0fff;

/// The bits of the priority in the TCI.
pub(crate) const PCP: u128 = 0xe000;
