//! Foreign bits: the bits of a lookup key that are not those of the packet.

use shunt_flow::{FieldId, layout::word};

/// The bits of a lookup key that are not those of the packet.
#[derive(Clone, Copy, Default)]
pub(in crate::translate) struct ForeignBits {
    /// [`IN_PORT_BITS`], or 0 if the lookup has the packet's ingress port.
    pub(in crate::translate) in_port: u64,
    /// [`PORTS_BITS`], or 0 if the lookup has the packet's transport ports.
    pub(in crate::translate) ports: u64,
    /// [`CONJ_ID_BITS`], or 0 if the lookup has the packet's `conj_id`.
    pub(in crate::translate) conj_id: u64,
}

/// Index of the word with the ingress port.
const IN_PORT: usize = word::IN_PORT as usize;
/// The word of `nw_frag`, and the bit in it that fragments have.
pub(in crate::translate) const FRAGMENT: (usize, u64) = {
    let slot = FieldId::NwFrag.slot();
    (slot.word as usize, 1 << slot.shift)
};
/// Index of the word with the transport ports.
pub(in crate::translate) const TRANSPORT: usize = word::TRANSPORT as usize;
/// Index of the word with the conjunction id.
pub(in crate::translate) const CONJ_ID: usize = word::ACTSET_OUTPUT as usize;
/// The bits of `in_port` in its word.
pub(in crate::translate) const IN_PORT_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of transport ports, or of ICMP type and code, in their word.
pub(in crate::translate) const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of `conj_id` in its word.
pub(in crate::translate) const CONJ_ID_BITS: u64 = 0x0000_0000_ffff_ffff;

impl ForeignBits {
    /// Returns the foreign bits of a word.
    pub(super) const fn bits(self, word: usize) -> u64 {
        match word {
            IN_PORT => self.in_port,
            TRANSPORT => self.ports,
            CONJ_ID => self.conj_id,
            _ => 0,
        }
    }
}
