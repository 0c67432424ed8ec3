//! Ethernet, VLAN tags, SNAP, MPLS and provider backbone bridging (IEEE 802.1Q, RFC 1042, RFC 3032).

use super::{VlanLimit, frame::Parser};
use crate::{
    bytes::{be32, be64},
    layout::word,
};

/// A MAC address in the high 48 bits of a word.
pub(super) const MAC: u64 = !0xffff;

/// The bit of a TCI in a key that is set if the frame has the tag.
/// On the wire this bit is the drop-eligible indicator.
const TAG_PRESENT: u64 = 0x1000;

/// The least Ethernet type; smaller values are the length field of 802.3.
const ETHER_TYPE_MIN: u16 = 0x0600;

/// The Ethernet type of a frame that has none (`OFP_DL_TYPE_NOT_ETH_TYPE`).
const ETHER_TYPE_NONE: u16 = 0x05ff;

impl Parser<'_> {
    /// Parses the Ethernet header and the VLAN tags.
    /// Returns the Ethernet type after the tags.
    pub(super) fn ethernet(&mut self, vlan_limit: VlanLimit) -> Option<u16> {
        let header: &[u8; 14] = self.peek()?;
        let destination = be64::<0, _>(header) & MAC;
        self.set::<{ word::ETH_SRC }>(be64::<6, _>(header) & MAC);
        self.skip(12)?;
        self.tags(vlan_limit);
        let ether_type = self.ether_type()?;
        self.set::<{ word::ETH_DST }>(destination | u64::from(ether_type));
        Some(ether_type)
    }

    /// Parses the VLAN tags of the frame.
    fn tags(&mut self, vlan_limit: VlanLimit) {
        let Some(outer) = self.tag() else { return };
        let inner = if vlan_limit == VlanLimit::Two { self.tag() } else { None };
        self.set::<{ word::VLAN }>(outer << 32 | inner.unwrap_or(0));
    }

    /// Consumes a VLAN tag (TPID and TCI), if an Ethernet type follows it.
    fn tag(&mut self) -> Option<u64> {
        let tag: &[u8; 6] = self.peek()?;
        let ([0x81, 0x00, ..] | [0x88, 0xa8, ..]) = tag else { return None };
        self.skip(4)?;
        Some(u64::from(be32::<0, _>(tag)) | TAG_PRESENT)
    }

    /// Parses the Ethernet type, also behind an LLC and SNAP header.
    fn ether_type(&mut self) -> Option<u16> {
        let ether_type = u16::from_be_bytes(*self.take()?);
        if ether_type >= ETHER_TYPE_MIN {
            return Some(ether_type);
        }
        let Some(&[0xaa, 0xaa, 0x03, 0, 0, 0, high, low]) = self.peek() else {
            return Some(ETHER_TYPE_NONE);
        };
        self.skip(8)?;
        let ether_type = u16::from_be_bytes([high, low]);
        Some(if ether_type >= ETHER_TYPE_MIN { ether_type } else { ETHER_TYPE_NONE })
    }

    /// Parses up to three label stack entries.
    /// The payload after the labels is unknown until they are popped.
    pub(super) fn mpls(&mut self) {
        /// The bottom-of-stack bit of a label stack entry.
        const BOTTOM: u64 = 0x100;
        let mut entries = [0; 3];
        for entry in &mut entries {
            let Some(label) = self.take() else { break };
            *entry = u64::from(u32::from_be_bytes(*label));
            if *entry & BOTTOM != 0 {
                break;
            }
        }
        let [first, second, third] = entries;
        self.set::<{ word::MPLS }>(first << 32 | second);
        self.set::<{ word::MPLS_PBB }>(third << 32);
    }

    /// Parses the I-TAG of a provider backbone bridge (IEEE 802.1Q, 9.7).
    pub(super) fn provider_backbone(&mut self) {
        let Some(tag) = self.take() else { return };
        let tag = u32::from_be_bytes(*tag);
        let service = u64::from(tag & 0x00ff_ffff);
        let customer_address = u64::from(tag >> 27 & 1);
        self.set::<{ word::MPLS_PBB }>(service << 8 | customer_address);
    }
}
