//! Header extraction: from the bytes of a frame to the header words of a [`FlowKey`].
//!
//! One pass, no allocation, and no error: a key has all that can be read from the frame. Fields
//! that are absent, cut short or inconsistent are zero in the key, layer by layer, as in Open
//! vSwitch 3.1. Recorded keys of Open vSwitch are the oracle of `tests/extracted_keys.rs`:
//!
//! | frame | key |
//! | --- | --- |
//! | shorter than 14 bytes | nothing |
//! | cut within a VLAN tag, or tagged beyond the limit | `eth_type` is the type of the tag |
//! | 802.3 length field | `eth_type` of the SNAP header if there is one, else 0x05ff |
//! | MPLS | three label stack entries, nothing after them |
//! | IPv4 with lengths that disagree with the frame | nothing from IPv4 on |
//! | IPv6 longer than the frame | nothing from IPv6 on |
//! | IPv6 with extension headers cut short | the addresses |
//! | later fragment | no transport header; `nw_proto` is 44 in IPv6 |
//! | transport header cut short, or TCP data offset out of range | its words are zero |
//! | ARP not for Ethernet and IPv4 | nothing of ARP |
//! | ARP operation above 255 | operation 0 |
//! | NSH of another version or length | nothing of NSH |
//! | neighbour discovery with an option twice | no target and no address |
//!
//! Version fields and checksums are ignored. An IP packet ends at its own length, so padding is
//! never parsed as a header. Loops over labels, extension headers and options end with the frame,
//! because every step consumes at least four bytes.
//!
//! [`FlowKey`]: crate::FlowKey

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod extension;
mod frame;
mod link;
mod neighbour;
mod network;
mod service;
mod transport;

pub use frame::{VlanLimit, extract};
pub(crate) use neighbour::{Options, SOURCE_OPTION, TARGET_OPTION};

#[cfg(test)]
mod tests;
