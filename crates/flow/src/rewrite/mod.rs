//! Header rewriting: what actions do to the bytes of a frame.
//!
//! A set of header bits is a [`Match`](crate::Match) whose mask names the bits and whose value they
//! take; [`set_header`] writes all of them at once, word by word of the key, each into the bytes it
//! was extracted from. Where those bytes are was found once, by extraction ([`Layers`]); a push or a
//! pop of a tag only shifts the layers.
//!
//! Checksums follow by difference ([`crate::checksum`]), so a corrupt packet stays corrupt:
//!
//! | changed | follows |
//! | --- | --- |
//! | IPv4 ToS, TTL | the IPv4 header checksum |
//! | IPv4 addresses | that, and TCP and UDP |
//! | IPv6 addresses | TCP, UDP and ICMPv6; not of the destination while a routing header has segments left |
//! | ports | TCP, UDP, and the CRC32c of SCTP |
//! | ICMP type and code, neighbour discovery | ICMP and ICMPv6 |
//!
//! A UDP checksum of zero means that there is none, and stays zero. Nothing is written into the
//! payload of a later fragment. A first fragment's SCTP checksum follows as if the fragment were
//! the whole packet, which no switch can do better: how many bytes follow is not in the fragment.
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
