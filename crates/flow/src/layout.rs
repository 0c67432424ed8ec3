//! The layout of a flow key: the slot of each field in 64-bit words, by layer.
//!
//! A [`FlowKey`](crate::FlowKey) is [`FLOW_WORDS`] words. Words are grouped into four [`Stage`]s in
//! the order of the layers: metadata that the switch knows without the packet, Ethernet, network,
//! transport. A staged lookup reads one stage after another and stops at the first that excludes a
//! rule, so that bits of later layers stay out of the mask.
//!
//! ```text
//!  0..64  hidden   registers, metadata, tunnel, connection state (zero, or one constant per port)
//!     64  ingress  in_port, packet_type
//! 65..70  link     MACs, Ethernet type, two VLAN tags, three MPLS labels, PBB
//! 70..80  network  IPv4 or ARP addresses, IPv6 addresses, ToS, TTL, protocol, ND, ARP hardware
//!     80  transport  ports or ICMP type and code, TCP flags
//! ```
//!
//! An NSH header is in words that otherwise only IPv6 packets use. The flags and option type of
//! neighbour discovery are in the word of the TCP flags. No packet has both fields of a shared
//! word, so the key stays short.
//!
//! Fields that a packet does not have are zero, so two keys are equal if and only if their words
//! are. Values are in host order: bit 0 of a word is its least significant bit. The first bit
//! of a field on the wire is the highest bit of its [`FieldSlot`].

use std::{fmt, ops::Range};

/// Number of 64-bit words of a flow key.
pub const FLOW_WORDS: usize = 81;

/// First word that header extraction writes; the words below it are hidden state.
pub const HEADER_START: usize = 64;

/// The words that header extraction writes.
pub const HEADER_WORDS: Range<usize> = HEADER_START..FLOW_WORDS;

/// The four groups of words that a staged lookup reads in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Hidden state and ingress, known before the packet is parsed.
    Metadata,
    /// The words of Ethernet, VLAN and MPLS fields.
    Link,
    /// IPv4, IPv6, ARP and neighbour discovery.
    Network,
    /// The words of TCP, UDP, SCTP and ICMP fields.
    Transport,
}

impl Stage {
    /// All stages, in the order of a lookup.
    pub const ALL: [Self; 4] = [Self::Metadata, Self::Link, Self::Network, Self::Transport];

    /// Returns the words of this stage.
    #[must_use]
    pub const fn words(self) -> Range<usize> {
        match self {
            Self::Metadata => 0..65,
            Self::Link => 65..70,
            Self::Network => 70..80,
            Self::Transport => 80..FLOW_WORDS,
        }
    }
}

/// Writes the words that are not zero as a map from index to hexadecimal value.
pub(crate) fn debug_words(words: &[u64; FLOW_WORDS], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let words = words.iter().enumerate().filter(|(_, word)| **word != 0);
    f.debug_map().entries(words.map(|(index, word)| (index, format!("{word:016x}")))).finish()
}

/// The slot of a field in a flow key.
///
/// A field of up to 64 bits is in one word. A wider field has 128 bits: `word` is its high half,
/// `word + 1` its low half, and `shift` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldSlot {
    /// Index of the word, or of the first of two words.
    pub word: u8,
    /// Distance of the field's lowest bit from bit 0 of the word.
    pub shift: u8,
    /// Width in bits: 1 to 64, or 128.
    pub width: u8,
}

impl FieldSlot {
    /// Creates a slot of `width` bits at bit `shift` of `word`.
    ///
    /// # Panics
    ///
    /// If the slot would cross words or leave the key. Slots are constants, so this is at compile
    /// time.
    #[must_use]
    pub const fn new(word: u8, shift: u8, width: u8) -> Self {
        assert!((width >= 1 && shift + width <= 64) || (width == 128 && shift == 0));
        assert!((word as usize) + (width as usize).div_ceil(64) <= FLOW_WORDS);
        Self { word, shift, width }
    }

    /// Returns all bits of the field, as a value.
    #[must_use]
    pub const fn value_max(self) -> u128 {
        if self.width == 128 { u128::MAX } else { (1 << self.width) - 1 }
    }

    /// Reads the field out of `words`.
    #[must_use]
    pub fn read(self, words: &[u64; FLOW_WORDS]) -> u128 {
        let word = usize::from(self.word);
        if self.width == 128 {
            u128::from(words[word]) << 64 | u128::from(words[word + 1])
        } else {
            u128::from(words[word] >> self.shift) & self.value_max()
        }
    }

    /// Writes the bits of the field that are set in `mask`.
    /// All other bits of the field keep their value.
    pub fn write(self, words: &mut [u64; FLOW_WORDS], value: u128, mask: u128) {
        let word = usize::from(self.word);
        let mask = mask & self.value_max();
        let (value_high, value_low) = halves(value & mask);
        let (mask_high, mask_low) = halves(mask);
        if self.width == 128 {
            words[word] = words[word] & !mask_high | value_high;
            words[word + 1] = words[word + 1] & !mask_low | value_low;
        } else {
            words[word] = words[word] & !(mask_low << self.shift) | value_low << self.shift;
        }
    }
}

/// Returns the upper and the lower half of a value.
#[expect(clippy::cast_possible_truncation, reason = "the function returns each half separately")]
const fn halves(value: u128) -> (u64, u64) {
    ((value >> 64) as u64, value as u64)
}

/// Word indices by name, for code that works on whole words.
pub mod word {
    /// 32 words of tunnel options (`tun_metadata`), two to a word.
    /// The even option is the high half.
    pub const TUN_METADATA: u8 = 0;
    /// One bit for each tunnel option, set if the packet carries it.
    /// No packet carries a tunnel option so far.
    pub const TUN_METADATA_PRESENT: u8 = 32;
    /// The word of the tunnel key.
    pub const TUN_ID: u8 = 33;
    /// Outer IPv6 source, two words.
    pub const TUN_IPV6_SRC: u8 = 34;
    /// Outer IPv6 destination, two words.
    pub const TUN_IPV6_DST: u8 = 36;
    /// Outer IPv4 source and destination.
    pub const TUN_IPV4: u8 = 38;
    /// Tunnel flags, ToS, TTL, group policy id and flags.
    pub const TUN_MISC: u8 = 39;
    /// Word with fields of ERSPAN and GTP-U tunnels.
    pub const TUN_PROTOCOL: u8 = 40;
    /// The word of the OpenFlow metadata.
    pub const METADATA: u8 = 41;
    /// Eight words of sixteen 32-bit registers; the even register is the high half.
    pub const REGS: u8 = 42;
    /// Word with connection state, zone and protocol.
    pub const CT_STATE: u8 = 50;
    /// Word with the connection mark and its ports.
    pub const CT_MARK: u8 = 51;
    /// First of two words with the connection label.
    pub const CT_LABEL: u8 = 52;
    /// Original IPv4 addresses of the connection.
    pub const CT_IPV4: u8 = 54;
    /// Original IPv6 source of the connection, two words.
    pub const CT_IPV6_SRC: u8 = 55;
    /// Original IPv6 destination of the connection, two words.
    pub const CT_IPV6_DST: u8 = 57;
    /// Word with packet mark and priority.
    pub const PKT_MARK: u8 = 59;
    /// Datapath hash and recirculation id.
    pub const RECIRC: u8 = 60;
    /// Output port of the action set, conjunction id.
    pub const ACTSET_OUTPUT: u8 = 61;
    /// Word with the physical ingress port.
    pub const IN_PHY_PORT: u8 = 62;
    /// The bridge that the packet is in.
    /// Caches serve all bridges, and no field names the bridge.
    pub const BRIDGE: u8 = 63;
    /// Ingress port (high half) and packet type (low half).
    pub const IN_PORT: u8 = 64;
    /// Word with the Ethernet destination and type.
    pub const ETH_DST: u8 = 65;
    /// Ethernet source (high 48 bits).
    pub const ETH_SRC: u8 = 66;
    /// Outer TPID, outer TCI, inner TPID, inner TCI.
    pub const VLAN: u8 = 67;
    /// First and second MPLS label stack entries.
    pub const MPLS: u8 = 68;
    /// Third MPLS label stack entry, PBB service id.
    pub const MPLS_PBB: u8 = 69;
    /// IPv4 or ARP protocol addresses.
    pub const IPV4: u8 = 70;
    /// First of two words with the IPv6 source.
    pub const IPV6_SRC: u8 = 71;
    /// First of two words with the IPv6 destination.
    pub const IPV6_DST: u8 = 73;
    /// The base header of NSH: flags, TTL, and its bytes from the third on.
    /// See RFC 8300, 2.2.
    pub const NSH: u8 = IPV6_SRC + 1;
    /// First and second word of the fixed NSH context.
    pub const NSH_CONTEXT_1: u8 = IPV6_DST + 1;
    /// Third and fourth word of the fixed NSH context.
    pub const NSH_CONTEXT_3: u8 = ND_TARGET + 1;
    /// Flow label, fragment, TTL, ToS, protocol or ARP operation.
    pub const IP_MISC: u8 = 75;
    /// Neighbour discovery target, two words.
    pub const ND_TARGET: u8 = 76;
    /// ARP source hardware address or ND source link-layer address.
    /// The word also has the IPv6 extension headers.
    pub const ARP_SHA: u8 = 78;
    /// ARP target hardware address or ND target link-layer address.
    pub const ARP_THA: u8 = 79;
    /// Transport ports or ICMP type and code, and TCP flags.
    /// The word also has the reserved bits and the type of the first option of neighbour discovery.
    pub const TRANSPORT: u8 = 80;
}

const _: () = assert!(FLOW_WORDS <= 128, "a WordMap has one bit per word");
const _: () = assert!(word::IN_PORT as usize == HEADER_START);
