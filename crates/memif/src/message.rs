//! Messages of the memif protocol, as values.
//!
//! Every message has 128 bytes: its type, its fields without gaps, and zeros. Numbers have the byte
//! order of the machine, because both sides run on the same machine. A descriptor that accompanies
//! a message is received by the socket module.
//!
//! Source: memif protocol, version 2.0 (`memif_msg_t`), as implemented by libmemif of FD.io and by
//! the DPDK driver `net_memif`.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use crate::error::MemifProtocolError;

/// Length of every message in bytes.
pub(crate) const MESSAGE_BYTES: usize = 128;

/// The version of the protocol: 2.0.
pub(crate) const VERSION: u16 = 2 << 8;

/// Length of the field for a secret in bytes.
pub(crate) const SECRET_BYTES: usize = 24;

/// Length of the field for a name in bytes.
const NAME_BYTES: usize = 32;

/// Length of the field for the reason of a disconnection in bytes.
const REASON_BYTES: usize = 96;

/// The mode of an interface that carries Ethernet frames.
pub(crate) const MODE_ETHERNET: u8 = 0;

/// A message of the memif control protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemifMessage {
    /// The server has accepted the last message of the client.
    Ack,
    /// First message of a server, with its limits.
    Hello(HelloMessage),
    /// The choice of an interface by the client.
    Init(InitMessage),
    /// A region: a file with rings or buffers; the file is passed as a descriptor.
    AddRegion {
        /// The number of the region.
        index: u16,
        /// The length of the region in bytes.
        size: u64,
    },
    /// A ring; the eventfd for its notifications is passed as a descriptor.
    AddRing(RingMessage),
    /// The client has described all rings.
    Connect {
        /// The name of the interface of the client.
        name: String,
    },
    /// The server uses the rings.
    Connected {
        /// The name of the interface at the server.
        name: String,
    },
    /// One side closes the connection.
    Disconnect {
        /// An error number, which this crate does not use.
        code: u32,
        /// The reason why the peer ends the connection, as text.
        reason: String,
    },
}

/// The limits of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HelloMessage {
    /// The name of the program that is the server.
    pub(crate) name: String,
    pub(crate) version_min: u16,
    pub(crate) version_max: u16,
    /// The largest allowed number of a region.
    pub(crate) region_max: u16,
    /// The largest allowed number of a ring from server to client.
    pub(crate) to_client_max: u16,
    /// The largest allowed number of a ring from client to server.
    pub(crate) to_server_max: u16,
    /// The largest allowed binary logarithm of the number of descriptors.
    pub(crate) log2_size_max: u8,
}

/// The choice of an interface by a client.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct InitMessage {
    pub(crate) version: u16,
    /// The number of the interface at its socket.
    pub(crate) id: u32,
    /// The mode of the interface: the kind of packets.
    pub(crate) mode: u8,
    /// The secret, followed by zeros.
    pub(crate) secret: [u8; SECRET_BYTES],
    /// The name of the program that is the client.
    pub(crate) name: String,
}

impl std::fmt::Debug for InitMessage {
    /// Writes the message without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, id, mode, name, .. } = self;
        let mut text = f.debug_struct("InitMessage");
        text.field("version", version).field("id", id).field("mode", mode).field("name", name);
        text.finish_non_exhaustive()
    }
}

/// The description of a ring by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingMessage {
    /// The direction of frames in the ring.
    pub(crate) direction: RingDirection,
    /// The number of the ring among the rings of its direction.
    pub(crate) index: u16,
    /// The number of the region that contains the ring.
    pub(crate) region: u16,
    /// The first byte of the ring in the region.
    pub(crate) offset: u32,
    /// The binary logarithm of the number of descriptors of the ring.
    pub(crate) log2_size: u8,
}

/// The direction of the frames of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingDirection {
    /// A ring from client to server (S2M in the protocol).
    ToServer,
    /// A ring from server to client (M2S in the protocol).
    ToClient,
}

/// Type numbers of messages.
const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// The flag of a ring from client to server (`MEMIF_MSG_ADD_RING_FLAG_S2M`).
const TO_SERVER: u16 = 1;

impl MemifMessage {
    /// Returns the name of the message in the protocol.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Hello(_) => "HELLO",
            Self::Init(_) => "INIT",
            Self::AddRegion { .. } => "ADD_REGION",
            Self::AddRing(_) => "ADD_RING",
            Self::Connect { .. } => "CONNECT",
            Self::Connected { .. } => "CONNECTED",
            Self::Disconnect { .. } => "DISCONNECT",
        }
    }

    /// Parses a memif message.
    ///
    /// # Errors
    ///
    /// If the length is not the length of a message, or the type is unknown.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MemifProtocolError> {
        let whole: &[u8; MESSAGE_BYTES] =
            bytes.try_into().map_err(|_| MemifProtocolError::Length(bytes.len()))?;
        let mut fields = MessageFields(whole);
        Ok(match fields.u16() {
            ACK => Self::Ack,
            HELLO => Self::Hello(HelloMessage {
                name: fields.text::<NAME_BYTES>(),
                version_min: fields.u16(),
                version_max: fields.u16(),
                region_max: fields.u16(),
                to_client_max: fields.u16(),
                to_server_max: fields.u16(),
                log2_size_max: fields.u8(),
            }),
            INIT => Self::Init(InitMessage {
                version: fields.u16(),
                id: fields.u32(),
                mode: fields.u8(),
                secret: fields.take(),
                name: fields.text::<NAME_BYTES>(),
            }),
            ADD_REGION => Self::AddRegion { index: fields.u16(), size: fields.u64() },
            ADD_RING => {
                let is_to_server = fields.u16() & TO_SERVER != 0;
                Self::AddRing(RingMessage {
                    direction: match is_to_server {
                        true => RingDirection::ToServer,
                        false => RingDirection::ToClient,
                    },
                    index: fields.u16(),
                    region: fields.u16(),
                    offset: fields.u32(),
                    log2_size: fields.u8(),
                })
            }
            CONNECT => Self::Connect { name: fields.text::<NAME_BYTES>() },
            CONNECTED => Self::Connected { name: fields.text::<NAME_BYTES>() },
            DISCONNECT => {
                let code = fields.u32();
                Self::Disconnect { code, reason: fields.text::<REASON_BYTES>() }
            }
            other => return Err(MemifProtocolError::UnknownType(other)),
        })
    }

    /// Returns the bytes of the message.
    pub(crate) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = MessageBytes::default();
        match self {
            Self::Ack => bytes.put(&ACK.to_ne_bytes()),
            Self::Hello(hello) => {
                bytes.put(&HELLO.to_ne_bytes());
                bytes.put_text::<NAME_BYTES>(&hello.name);
                let HelloMessage { version_min, version_max, region_max, .. } = hello;
                let HelloMessage { to_client_max, to_server_max, log2_size_max, .. } = hello;
                for number in [version_min, version_max, region_max, to_client_max, to_server_max] {
                    bytes.put(&number.to_ne_bytes());
                }
                bytes.put(&[*log2_size_max]);
            }
            Self::Init(init) => {
                bytes.put(&INIT.to_ne_bytes());
                bytes.put(&init.version.to_ne_bytes());
                bytes.put(&init.id.to_ne_bytes());
                bytes.put(&[init.mode]);
                bytes.put(&init.secret);
                bytes.put_text::<NAME_BYTES>(&init.name);
            }
            Self::AddRegion { index, size } => {
                bytes.put(&ADD_REGION.to_ne_bytes());
                bytes.put(&index.to_ne_bytes());
                bytes.put(&size.to_ne_bytes());
            }
            Self::AddRing(ring) => {
                let flags = if ring.direction == RingDirection::ToServer { TO_SERVER } else { 0 };
                for number in [ADD_RING, flags, ring.index, ring.region] {
                    bytes.put(&number.to_ne_bytes());
                }
                bytes.put(&ring.offset.to_ne_bytes());
                bytes.put(&[ring.log2_size]);
            }
            Self::Connect { name } => {
                bytes.put(&CONNECT.to_ne_bytes());
                bytes.put_text::<NAME_BYTES>(name);
            }
            Self::Connected { name } => {
                bytes.put(&CONNECTED.to_ne_bytes());
                bytes.put_text::<NAME_BYTES>(name);
            }
            Self::Disconnect { code, reason } => {
                bytes.put(&DISCONNECT.to_ne_bytes());
                bytes.put(&code.to_ne_bytes());
                bytes.put_text::<REASON_BYTES>(reason);
            }
        }
        bytes.finish()
    }
}

/// The unread fields of a message.
///
/// All fields of a message fit into its length. A field beyond the end is read as zeros.
struct MessageFields<'a>(&'a [u8]);

impl MessageFields<'_> {
    /// Reads the next bytes of a message.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *first
    }

    /// Reads one byte, or 0 at the end of the message.
    fn u8(&mut self) -> u8 {
        u8::from_ne_bytes(self.take())
    }

    /// Reads two bytes in native order. Returns 0 if the message is too short.
    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// Reads four bytes in native order. Returns 0 if the message is too short.
    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    /// Reads eight bytes in native order. Returns 0 if the message is too short.
    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// Returns a text field up to its first zero, without control characters.
    fn text<const N: usize>(&mut self) -> String {
        let field: [u8; N] = self.take();
        let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
    }
}

/// The encoded bytes of a message so far.
#[derive(Default)]
struct MessageBytes(Vec<u8>);

impl MessageBytes {
    /// Appends bytes to a message.
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends a text field of `N` bytes, which ends with a zero;
    /// cuts off a longer text.
    fn put_text<const N: usize>(&mut self, text: &str) {
        let end = self.0.len().saturating_add(N);
        let fits = text.floor_char_boundary(N.saturating_sub(1));
        self.0.extend(text.as_bytes().iter().take(fits));
        self.0.resize(end, 0);
    }

    /// Returns the message, filled up with zeros.
    fn finish(self) -> [u8; MESSAGE_BYTES] {
        let mut whole = [0; MESSAGE_BYTES];
        whole.iter_mut().zip(self.0).for_each(|(to, from)| *to = from);
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates memif messages.
    fn messages() -> impl Strategy<Value = MemifMessage> {
        let numbers = any::<(u16, u16, u16, u16, u16, u8)>();
        let hello =
            ("[a-z ]{0,31}", numbers).prop_map(|(name, numbers)| {
                let (
                    version_min,
                    version_max,
                    region_max,
                    to_client_max,
                    to_server_max,
                    log2_size_max,
                ) = numbers;
                MemifMessage::Hello(HelloMessage {
                    name,
                    version_min,
                    version_max,
                    region_max,
                    to_client_max,
                    to_server_max,
                    log2_size_max,
                })
            });
        let init = (any::<(u16, u32, u8, [u8; SECRET_BYTES])>(), "[a-z]{0,31}");
        let init = init.prop_map(|((version, id, mode, secret), name)| {
            MemifMessage::Init(InitMessage { version, id, mode, secret, name })
        });
        let ring = any::<(bool, u16, u16, u32, u8)>();
        let ring = ring.prop_map(|(is_to_server, index, region, offset, log2_size)| {
            let direction =
                if is_to_server { RingDirection::ToServer } else { RingDirection::ToClient };
            MemifMessage::AddRing(RingMessage { direction, index, region, offset, log2_size })
        });
        prop_oneof![
            Just(MemifMessage::Ack),
            hello,
            init,
            any::<(u16, u64)>().prop_map(|(index, size)| MemifMessage::AddRegion { index, size }),
            ring,
            "[a-z0-9]{0,31}".prop_map(|name| MemifMessage::Connect { name }),
            "[a-z0-9]{0,31}".prop_map(|name| MemifMessage::Connected { name }),
            (any::<u32>(), "[a-z ]{0,95}")
                .prop_map(|(code, reason)| MemifMessage::Disconnect { code, reason }),
        ]
    }

    proptest! {
        #[test]
        fn a_message_decodes_to_itself(message in messages()) {
            prop_assert_eq!(MemifMessage::parse(&message.encode()).unwrap(), message);
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..140)) {
            let _ = MemifMessage::parse(&bytes);
        }
    }

    /// The offsets are the offsets of the packed structures in `memif.h`.
    #[test]
    fn fields_have_the_offsets_of_the_protocol() {
        let init = MemifMessage::Init(InitMessage {
            version: VERSION,
            id: 7,
            mode: 0,
            secret: [b's'; SECRET_BYTES],
            name: "shunt".to_owned(),
        });
        let bytes = init.encode();
        assert_eq!((bytes[0], bytes[2], bytes[3], bytes[4], bytes[8]), (3, 0, 2, 7, 0));
        assert_eq!((&bytes[9..33], &bytes[33..38]), (&[b's'; 24][..], &b"shunt"[..]));
        let ring = RingMessage {
            direction: RingDirection::ToServer,
            index: 1,
            region: 2,
            offset: 0x0403,
            log2_size: 10,
        };
        let bytes = MemifMessage::AddRing(ring).encode();
        assert_eq!(bytes[..13], [5, 0, 1, 0, 1, 0, 2, 0, 3, 4, 0, 0, 10]);
        let bytes = MemifMessage::AddRegion { index: 1, size: 0x1000 }.encode();
        assert_eq!(bytes[..6], [4, 0, 1, 0, 0, 0x10]);
        let reason = "x".repeat(200);
        let bytes = MemifMessage::Disconnect { code: 9, reason }.encode();
        assert_eq!((bytes[2], bytes[6], bytes[100], bytes[101]), (9, b'x', b'x', 0));
    }

    #[test]
    fn control_characters_of_a_peer_are_replaced() {
        let mut bytes = MemifMessage::Connect { name: "a".to_owned() }.encode();
        bytes[2..6].copy_from_slice(b"\x1b[2J");
        let expected = MemifMessage::Connect { name: "?[2J".to_owned() };
        assert_eq!(MemifMessage::parse(&bytes).unwrap(), expected);
    }
}
