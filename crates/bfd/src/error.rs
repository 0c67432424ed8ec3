//! The reasons for which received frames and packets are ignored.

use std::{error::Error, fmt};

/// The reason why a received frame or packet was ignored.
///
/// Source: RFC 5880, 6.8.6; RFC 5881, 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BfdError {
    /// The frame is not an IPv4 packet with UDP destination port 3784.
    NotBfd,
    /// The frame, a header or the packet ends too early.
    Short {
        /// Length in bytes of the frame, header or packet.
        length: usize,
        /// Required length in bytes.
        needed: usize,
    },
    /// The checksum of the IPv4 header is wrong.
    HeaderChecksum,
    /// The TTL is not 255: the packet has passed a router,
    /// or its sender is not trustworthy.
    Ttl(u8),
    /// The packet has another version than 1.
    Version(u8),
    /// The field Length is greater than the length of the UDP payload.
    Length {
        /// Value of the field Length.
        length: u8,
        /// Length of the UDP payload.
        payload: usize,
    },
    /// The field Detect Mult is zero.
    ZeroMultiplier,
    /// The Multipoint bit is set.
    Multipoint,
    /// The field My Discriminator is zero.
    ZeroDiscriminator,
    /// The field Your Discriminator is zero, but the field State is `init` or `up`.
    MissingDiscriminator,
    /// The packet is for another session, or for an earlier session of this port.
    UnknownDiscriminator(u32),
    /// The packet has authentication, which this crate does not support.
    Authenticated,
}

impl fmt::Display for BfdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBfd => f.write_str(
                "the frame has no BFD packet: BFD needs IPv4 and the UDP destination port 3784",
            ),
            Self::Short { length, needed } => {
                write!(f, "the BFD packet ends after {length} bytes, but needs {needed}")
            }
            Self::HeaderChecksum => f.write_str("the checksum of the IPv4 header is wrong"),
            Self::Ttl(ttl) => write!(
                f,
                "the TTL of the packet is {ttl}: it must be 255, because packets of a neighbor \
                 pass no router"
            ),
            Self::Version(version) => write!(
                f,
                "the BFD version of the packet is {version}: it \
                 must be 1"
            ),
            Self::Length { length, payload } => {
                write!(
                    f,
                    "the BFD packet states a length of {length} bytes, but the UDP payload has \
                     {payload}"
                )
            }
            Self::ZeroMultiplier => {
                f.write_str("the field Detect Mult is zero: it must be at least 1")
            }
            Self::Multipoint => f.write_str("the Multipoint bit is set: it must be clear"),
            Self::ZeroDiscriminator => {
                f.write_str("the field My Discriminator is zero: the sender needs a number")
            }
            Self::MissingDiscriminator => f.write_str(
                "the field Your Discriminator is zero, although the state of the sender is init \
                 or up",
            ),
            Self::UnknownDiscriminator(found) => {
                write!(
                    f,
                    "the field Your Discriminator is {found:#x}, which is not the number of this \
                     session"
                )
            }
            Self::Authenticated => f.write_str(
                "the BFD packet is authenticated: switch authentication off at the \
                 sender",
            ),
        }
    }
}

impl Error for BfdError {}
