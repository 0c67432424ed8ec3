//! The parser: a frame, its unparsed rest, and the key.

use crate::{
    FlowKey, Layers,
    layout::{FLOW_WORDS, HEADER_START, word},
};

/// Number of VLAN tags of a frame that are in its key; further tags are payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VlanLimit {
    /// Only the outermost VLAN tag is in the key.
    #[default]
    One,
    /// The outermost two VLAN tags.
    Two,
}

/// Extracts the headers of `frame` into the header words of `key`.
///
/// `extract` writes every header word and the packet type; words of missing headers are zero. The
/// ingress port and the hidden words keep their values.
pub fn extract(frame: &[u8], vlan_limit: VlanLimit, key: &mut FlowKey) -> Layers {
    let words = key.words_mut();
    clear(words);
    let mut parser = Parser { frame, rest: frame, words };
    // Fields that the frame lacks stay zero, so a layer that ends early needs no error handling.
    parser.layers(vlan_limit).unwrap_or_default()
}

/// A frame that is parsed into a key.
pub(super) struct Parser<'a> {
    /// The frame, up to the end given by the innermost length field.
    frame: &'a [u8],
    /// The bytes that are not parsed yet.
    pub(super) rest: &'a [u8],
    /// The words of the key.
    words: &'a mut [u64; FLOW_WORDS],
}

impl<'a> Parser<'a> {
    /// Returns the next `N` bytes without consuming them.
    pub(super) fn peek<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.rest.first_chunk()
    }

    /// Consumes the next `N` bytes.
    pub(super) fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(taken)
    }

    /// Skips the next `length` bytes.
    pub(super) fn skip(&mut self, length: usize) -> Option<()> {
        self.rest = self.rest.get(length..)?;
        Some(())
    }

    /// Drops the last `length` bytes.
    pub(super) fn drop_last(&mut self, length: usize) -> Option<()> {
        self.rest = self.rest.get(..self.rest.len().checked_sub(length)?)?;
        self.frame = self.frame.get(..self.frame.len().checked_sub(length)?)?;
        Some(())
    }

    /// Returns the offset of the unparsed bytes in the frame.
    pub(super) const fn offset(&self) -> usize {
        self.frame.len().saturating_sub(self.rest.len())
    }

    /// Returns the offset of the end of the packet in the frame.
    pub(super) const fn end(&self) -> usize {
        self.frame.len()
    }

    /// Sets one word of the key.
    #[expect(clippy::indexing_slicing, reason = "the assertion bounds the index at compile time")]
    pub(super) const fn set<const WORD: u8>(&mut self, value: u64) {
        const { assert!((WORD as usize) > HEADER_START && (WORD as usize) < FLOW_WORDS) };
        self.words[WORD as usize] = value;
    }

    /// Adds bits to one word of the key.
    #[expect(clippy::indexing_slicing, reason = "the assertion bounds the index at compile time")]
    pub(super) const fn add<const WORD: u8>(&mut self, bits: u64) {
        const { assert!((WORD as usize) > HEADER_START && (WORD as usize) < FLOW_WORDS) };
        self.words[WORD as usize] |= bits;
    }

    /// Parses all headers; `None` if the Ethernet header is not complete.
    fn layers(&mut self, vlan_limit: VlanLimit) -> Option<Layers> {
        let ether_type = self.ethernet(vlan_limit)?;
        let payload = self.offset();
        Some(self.packet(ether_type).unwrap_or_else(|| Layers::with_payload(payload)))
    }

    /// Parses the layer of an Ethernet type.
    /// Returns `None` after MPLS, PBB and unknown types, which have no layers.
    fn packet(&mut self, ether_type: u16) -> Option<Layers> {
        let packet = match ether_type {
            0x0800 => self.ipv4()?,
            0x86dd => self.ipv6()?,
            0x0806 | 0x8035 => return self.arp(),
            0x8847 | 0x8848 => {
                self.mpls();
                return None;
            }
            0x88e7 => {
                self.provider_backbone();
                return None;
            }
            0x894f => return self.service(),
            _ => return None,
        };
        Some(self.transport(&packet))
    }
}

/// Clears the words that extraction writes.
/// The cleared words are the low half of the ingress word, and all words after it.
fn clear(words: &mut [u64; FLOW_WORDS]) {
    /// The bits of the packet type in the ingress word.
    const PACKET_TYPE: u64 = 0xffff_ffff;
    let (ingress, headers) = words.split_at_mut(HEADER_START + 1);
    headers.fill(0);
    if let Some(ingress) = ingress.last_mut() {
        *ingress &= !PACKET_TYPE;
    }
}

const _: () = assert!(word::IN_PORT as usize == HEADER_START, "the first header word has in_port");
