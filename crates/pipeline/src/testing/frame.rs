//! The properties of a frame by which the tests of this crate compare frames.
//!
//! The key of a test packet holds more than extraction would give. A key with MPLS labels also has
//! the words of the packet that the labels hide, and its Ethernet type. Every key has the length of
//! its frame. The hidden type and the length are stored in the service id of provider backbone
//! bridging, a field that no packet of these tests has. [`visible`] returns the key that a switch
//! sees.
//!
//! A pop may name an Ethernet type that does not match the payload: then extraction finds no
//! headers in it. The frames that `frame_of` makes in the tests of the datapath behave the same,
//! because labels and packets cannot be confused in them.

use std::ops::Range;

use shunt_flow::{
    FieldId, FlowKey,
    layout::{FLOW_WORDS, word},
    rewrite::TtlCopy,
};

/// Index of the word with the VLAN tags.
const VLAN: usize = word::VLAN as usize;
/// Index of the word with the first two MPLS labels.
const MPLS: usize = word::MPLS as usize;
/// Index of the word with the third label, the hidden Ethernet type and the length.
const TEST_WORD: usize = word::MPLS_PBB as usize;
/// Words of the Ethernet header and its VLAN tags.
const LINK: Range<usize> = word::ETH_DST as usize..VLAN + 1;
/// Words of the headers after the labels.
const PAYLOAD: Range<usize> = word::IPV4 as usize..FLOW_WORDS;
/// The bottom-of-stack bit of a label stack entry.
const BOTTOM: u32 = 0x100;

/// Stores the Ethernet type after the labels of a test packet, if there are labels.
/// The function also stores the length of the frame.
pub fn set_test_word(key: &mut FlowKey, hidden_type: u16, length: u16) {
    let stored = u64::from(hidden_type) << 16 | u64::from(length);
    let word = &mut key.words_mut()[TEST_WORD];
    *word = *word & !0xffff_ffff | stored;
}

/// Returns the key that a switch extracts from a test packet.
#[must_use]
pub fn visible(key: &FlowKey) -> FlowKey {
    let mut key = key.clone();
    key.words_mut()[TEST_WORD] &= !0xffff_ffff;
    if is_mpls(key.eth_type()) {
        key.words_mut()[PAYLOAD].fill(0);
    }
    key
}

/// Returns whether the Ethernet type is one of the two of MPLS.
const fn is_mpls(ether_type: u16) -> bool {
    matches!(ether_type, 0x8847 | 0x8848)
}

/// A frame.
/// The keys are boxed, because the oracle recurses with copies of the frame.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// MAC addresses, Ethernet type and tags.
    link: Box<FlowKey>,
    /// Label stack entries, the outermost first.
    pub(super) labels: Vec<u32>,
    /// The Ethernet type after the labels; without labels that of the frame.
    hidden_type: u16,
    /// The words of the headers after the labels.
    payload: Box<FlowKey>,
    /// Length of the frame without tags and labels.
    length: i64,
}

impl Frame {
    /// Returns the frame that a test key with its extra words describes.
    pub(super) fn of(key: &FlowKey) -> Self {
        let (mut link, mut payload) = (Box::<FlowKey>::default(), Box::<FlowKey>::default());
        link.words_mut()[LINK].copy_from_slice(&key.words()[LINK]);
        payload.words_mut()[PAYLOAD].copy_from_slice(&key.words()[PAYLOAD]);
        let stored = key.words()[TEST_WORD];
        let ether_type = key.eth_type();
        let mut frame = Self {
            link,
            labels: Vec::new(),
            hidden_type: ether_type,
            payload,
            length: low(stored).into(),
        };
        if is_mpls(ether_type) {
            let words = [key.words()[MPLS] >> 32, key.words()[MPLS], stored >> 32];
            for entry in words.map(entry) {
                frame.labels.push(entry);
                if entry & BOTTOM != 0 {
                    break;
                }
            }
            frame.hidden_type = low(stored >> 16);
        }
        frame.length -= frame.shims();
        frame
    }

    /// Returns the header words that extraction gives.
    pub(super) fn view(&self) -> FlowKey {
        let mut key = FlowKey::clone(&self.link);
        if is_mpls(self.ether_type()) {
            let [first, second, third] = self.shown();
            key.words_mut()[MPLS] = first << 32 | second;
            key.words_mut()[TEST_WORD] = third << 32;
        } else if self.is_open() {
            key.words_mut()[PAYLOAD].copy_from_slice(&self.payload.words()[PAYLOAD]);
        }
        key
    }

    /// Returns the length of the frame with its tags and labels, in bytes.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.length + self.shims()).unwrap_or(0)
    }

    /// Returns the Ethernet type before the labels.
    pub(super) fn ether_type(&self) -> u16 {
        self.link.eth_type()
    }

    /// Writes the Ethernet type before the labels.
    pub(super) fn set_ether_type(&mut self, ether_type: u16) {
        self.link.set_field(FieldId::EthType, ether_type.into());
    }

    /// Writes words of the link, of the outermost label, or of the payload.
    /// The payload is written only if no label hides it.
    pub(super) fn write(&mut self, word: usize, value: u64, mask: u64) {
        let target = if LINK.contains(&word) {
            &mut self.link.words_mut()[word]
        } else if PAYLOAD.contains(&word) && self.is_open() {
            &mut self.payload.words_mut()[word]
        } else if let (true, Some(label)) = (word == MPLS, self.labels.first_mut()) {
            let (value, mask) = (entry(value >> 32), entry(mask >> 32));
            *label = *label & !mask | value & mask;
            return;
        } else {
            return;
        };
        *target = *target & !mask | value & mask;
    }

    /// Returns the DSCP of an IP packet that no label hides.
    pub(super) fn dscp(&self) -> Option<u128> {
        let is_ip = matches!(self.ether_type(), 0x0800 | 0x86dd);
        (is_ip && self.is_open()).then(|| self.payload.field(FieldId::IpDscp))
    }

    /// Writes the DSCP of the packet.
    pub(super) fn set_dscp(&mut self, dscp: u128) {
        self.payload.set_field(FieldId::IpDscp, dscp);
    }

    /// Copies a TTL between the last label and the IP header after the label.
    pub(super) fn copy_ttl(&mut self, copy: TtlCopy) {
        let [label] = &mut self.labels[..] else { return };
        if !matches!(self.hidden_type, 0x0800 | 0x86dd) {
            return;
        }
        match copy {
            TtlCopy::In => self.payload.set_field(FieldId::NwTtl, u128::from(*label & 0xff)),
            TtlCopy::Out => {
                let ttl = u32::try_from(self.payload.field(FieldId::NwTtl)).unwrap_or(0);
                *label = *label & !0xff | ttl;
            }
        }
    }

    /// Returns whether the payload is of the kind that the Ethernet type names.
    fn is_open(&self) -> bool {
        self.labels.is_empty() && self.ether_type() == self.hidden_type
    }

    /// Returns the first three label stack entries, which extraction reads.
    fn shown(&self) -> [u64; 3] {
        let mut shown = [0; 3];
        for (shown, entry) in shown.iter_mut().zip(&self.labels) {
            *shown = u64::from(*entry);
            if entry & BOTTOM != 0 {
                break;
            }
        }
        shown
    }

    /// Returns the length of tags and labels in bytes.
    fn shims(&self) -> i64 {
        let vlan = self.link.words()[VLAN];
        let tags = i64::from(vlan & 0x1000 != 0) + i64::from(vlan & 0x1000 << 32 != 0);
        let labels = i64::try_from(self.labels.len()).unwrap_or(0);
        4 * (tags + labels)
    }
}

/// Returns the lower 16 bits of a word.
fn low(word: u64) -> u16 {
    u16::try_from(word & 0xffff).unwrap_or_default()
}

/// Returns the lower 32 bits of a word: a label stack entry.
fn entry(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).unwrap_or_default()
}
