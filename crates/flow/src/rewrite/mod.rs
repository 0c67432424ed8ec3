//! Header rewriting: the effect of actions on the bytes of a frame.
//!
//! A set of header bits is a [`Match`](crate::Match): its mask selects the bits, and its value sets
//! them. [`set_header`] writes all of them at once, word by word of the key, each into the bytes
//! that it was extracted from. Extraction found these bytes once ([`Layers`]); a push or a pop of a
//! tag only shifts the layers.
//!
//! Checksums are updated by difference ([`crate::checksum`]), so a corrupt packet stays corrupt:
//!
//! | changed | updated |
//! | --- | --- |
//! | IPv4 ToS, TTL | the IPv4 header checksum |
//! | IPv4 addresses | the IPv4 header checksum, and TCP and UDP |
//! | IPv6 addresses | TCP, UDP and ICMPv6; not for the destination while a routing header has segments left |
//! | ports | TCP, UDP, and the CRC32c of SCTP |
//! | ICMP type and code, neighbour discovery | ICMP and ICMPv6 |
//!
//! A UDP checksum of zero means no checksum, and stays zero. Nothing is written into the payload of
//! a later fragment. The SCTP checksum of a first fragment is updated as if the fragment were the
//! whole packet. No switch can do better, because the number of bytes that follow is not in the
//! fragment.
//!
//! [`Layers`]: crate::Layers

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod completion;
mod header;
mod mpls;
mod transport;
mod vlan;
mod writer;

pub use completion::{ChecksumOutside, complete_checksum};
pub use header::set_header;
pub use mpls::{MplsHeader, TtlCopy, copy_ttl, pop_mpls, push_mpls};
pub use transport::ChecksumState;
pub use vlan::{pop_vlan, push_vlan};

#[cfg(test)]
mod tests;
