//! Messages of the vhost-user protocol, as values.
//!
//! A message has a header of 12 bytes and a payload. Parsing reads only the bytes of a message. The
//! socket receives the descriptors that accompany a message.
//!
//! Source: vhost-user protocol, "Message specification" and "Front-end message types".

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use crate::error::ProtocolError;

/// Request, flags and length that precede each vhost-user message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    /// Number of the request.
    pub(crate) request: u32,
    /// True if the front-end waits for an acknowledgement.
    pub(crate) needs_reply: bool,
    /// Length of the payload, in bytes.
    pub(crate) length: usize,
}

impl MessageHeader {
    pub(crate) const BYTES: usize = 12;
    /// The longest payload: a table of eight memory regions.
    pub(crate) const PAYLOAD_MAX: usize = 8 + REGIONS_PER_MESSAGE * RegionMessage::BYTES;

    /// The version of the protocol, in the flags of a message.
    const VERSION: u32 = 1;
    /// The bits of the version in the flags.
    const VERSION_MASK: u32 = 3;
    /// The flag of a reply.
    const REPLY: u32 = 1 << 2;
    /// The flag of a request that needs a reply.
    const NEED_REPLY: u32 = 1 << 3;

    /// Parses the header of a message.
    pub(crate) fn parse(bytes: [u8; Self::BYTES]) -> Result<Self, ProtocolError> {
        let mut words = PayloadFields(&bytes);
        let (request, flags, length) = (words.u32(), words.u32(), words.u32());
        let (Some(request), Some(flags), Some(length)) = (request, flags, length) else {
            return Err(ProtocolError::Incomplete);
        };
        let version = flags & Self::VERSION_MASK;
        if version != Self::VERSION {
            return Err(ProtocolError::Version(version));
        }
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes > Self::PAYLOAD_MAX {
            return Err(ProtocolError::TooLong { request, length, max: Self::PAYLOAD_MAX });
        }
        let needs_reply = flags & Self::NEED_REPLY != 0;
        Ok(Self { request, needs_reply, length: bytes })
    }

    /// Returns the header and the payload of a reply.
    pub(crate) fn reply(request: u32, reply: VhostReply) -> Vec<u8> {
        let payload = match reply {
            VhostReply::Number(number) => number,
            VhostReply::VringState { queue, base } => u64::from(queue) | u64::from(base) << 32,
            VhostReply::Empty => {
                let header = [request, Self::VERSION | Self::REPLY, 0];
                return header.into_iter().flat_map(u32::to_le_bytes).collect();
            }
        };
        let header = [request, Self::VERSION | Self::REPLY, 8];
        let bytes = header.into_iter().flat_map(u32::to_le_bytes);
        bytes.chain(payload.to_le_bytes()).collect()
    }
}

/// The maximum number of memory regions in a message.
pub(crate) const REGIONS_PER_MESSAGE: usize = 8;

/// A memory region of the guest, as a message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionMessage {
    /// Start address of the region in the guest.
    pub(crate) guest_address: u64,
    /// Length of the region, in bytes.
    pub(crate) length: u64,
    /// Address in the front-end.
    pub(crate) user_address: u64,
    /// Offset of the region in the file of the message.
    pub(crate) file_offset: u64,
}

impl RegionMessage {
    const BYTES: usize = 32;
}

/// A request of a front-end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VhostRequest {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<RegionMessage>),
    SetLogBase { length: u64, offset: u64 },
    SetLogFd,
    SetVringNum { queue: u32, size: u32 },
    SetVringAddr { queue: u32, address: VringAddress },
    SetVringBase { queue: u32, base: u32 },
    GetVringBase { queue: u32 },
    SetVringKick(VringDescriptor),
    SetVringCall(VringDescriptor),
    SetVringErr(VringDescriptor),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable { queue: u32, is_enabled: bool },
    SendRarp { mac: [u8; 6] },
    NetSetMtu(u64),
    GetMaxMemSlots,
    AddMemReg(RegionMessage),
    RemMemReg(RegionMessage),
}

/// The addresses of the parts of a queue, in the front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VringAddress {
    pub(crate) descriptors: u64,
    pub(crate) used: u64,
    pub(crate) available: u64,
}

/// The queue number of a message that may carry a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VringDescriptor {
    pub(crate) queue: u32,
    /// True if the message carries a descriptor; otherwise the queue is to be polled.
    pub(crate) has_descriptor: bool,
}

impl VringDescriptor {
    /// The bits of the queue number in the payload.
    const QUEUE_MASK: u64 = 0xff;
    /// The bit of a message without a file descriptor.
    const NO_DESCRIPTOR: u64 = 1 << 8;

    /// Reads the queue and the flag of a vring message.
    fn of(number: u64) -> Self {
        let has_descriptor = number & Self::NO_DESCRIPTOR == 0;
        Self { queue: u32::try_from(number & Self::QUEUE_MASK).unwrap_or_default(), has_descriptor }
    }
}

impl VhostRequest {
    /// Parses the payload of a request.
    ///
    /// # Errors
    ///
    /// If the request is unknown, or its payload is too short.
    pub(crate) fn parse(request: u32, payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = PayloadFields(payload);
        let parsed = fields.request(request)?;
        parsed.ok_or(ProtocolError::TooShort { request, length: payload.len() })
    }

    /// Returns the number of descriptors that must accompany the request.
    pub(crate) const fn descriptors(&self) -> usize {
        match self {
            Self::SetMemTable(regions) => regions.len(),
            Self::SetVringKick(vring) | Self::SetVringCall(vring) | Self::SetVringErr(vring) => {
                vring.has_descriptor as usize
            }
            Self::SetLogBase { .. } | Self::SetLogFd | Self::AddMemReg(_) => 1,
            _ => 0,
        }
    }
}

/// A reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VhostReply {
    /// A number; as an acknowledgement, 0 is success.
    Number(u64),
    /// The position at which a stopped queue continues.
    VringState { queue: u32, base: u32 },
    /// Nothing but the number of the request.
    Empty,
}

/// The fields of a payload, in order.
struct PayloadFields<'a>(&'a [u8]);

impl PayloadFields<'_> {
    /// Reads a request; `None` if its payload is too short.
    fn request(&mut self, request: u32) -> Result<Option<VhostRequest>, ProtocolError> {
        Ok(match request {
            1 => Some(VhostRequest::GetFeatures),
            2 => self.u64().map(VhostRequest::SetFeatures),
            3 => Some(VhostRequest::SetOwner),
            4 => Some(VhostRequest::ResetOwner),
            5 => self.regions().map(VhostRequest::SetMemTable),
            6 => self.log(),
            7 => Some(VhostRequest::SetLogFd),
            8 => self.pair().map(|(queue, size)| VhostRequest::SetVringNum { queue, size }),
            9 => self.address(),
            10 => self.pair().map(|(queue, base)| VhostRequest::SetVringBase { queue, base }),
            11 => self.pair().map(|(queue, _)| VhostRequest::GetVringBase { queue }),
            12 => self.u64().map(|number| VhostRequest::SetVringKick(VringDescriptor::of(number))),
            13 => self.u64().map(|number| VhostRequest::SetVringCall(VringDescriptor::of(number))),
            14 => self.u64().map(|number| VhostRequest::SetVringErr(VringDescriptor::of(number))),
            15 => Some(VhostRequest::GetProtocolFeatures),
            16 => self.u64().map(VhostRequest::SetProtocolFeatures),
            17 => Some(VhostRequest::GetQueueNum),
            18 => self.pair().map(|(queue, enabled)| VhostRequest::SetVringEnable {
                queue,
                is_enabled: enabled != 0,
            }),
            19 => self.u64().map(|number| {
                let [mac @ .., _, _] = number.to_le_bytes();
                VhostRequest::SendRarp { mac }
            }),
            20 => self.u64().map(VhostRequest::NetSetMtu),
            36 => Some(VhostRequest::GetMaxMemSlots),
            37 => self.padded_region().map(VhostRequest::AddMemReg),
            38 => self.padded_region().map(VhostRequest::RemMemReg),
            unknown => return Err(ProtocolError::Unsupported(unknown)),
        })
    }

    /// Reads the next bytes of the payload.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads the next four bytes, the low one first. `None` if fewer are left.
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads the next eight bytes, the low one first. `None` if fewer are left.
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads two 32-bit numbers of a payload.
    fn pair(&mut self) -> Option<(u32, u32)> {
        Some((self.u32()?, self.u32()?))
    }

    /// Reads a memory region.
    fn region(&mut self) -> Option<RegionMessage> {
        Some(RegionMessage {
            guest_address: self.u64()?,
            length: self.u64()?,
            user_address: self.u64()?,
            file_offset: self.u64()?,
        })
    }

    /// Reads a memory region after padding of eight bytes.
    fn padded_region(&mut self) -> Option<RegionMessage> {
        let _padding = self.u64()?;
        self.region()
    }

    /// Reads a list of memory regions.
    fn regions(&mut self) -> Option<Vec<RegionMessage>> {
        let (count, _padding) = self.pair()?;
        let count = usize::try_from(count).ok().filter(|count| *count <= REGIONS_PER_MESSAGE)?;
        (0..count).map(|_| self.region()).collect()
    }

    /// Reads the log of changed pages.
    fn log(&mut self) -> Option<VhostRequest> {
        Some(VhostRequest::SetLogBase { length: self.u64()?, offset: self.u64()? })
    }

    /// Reads the addresses of a ring.
    fn address(&mut self) -> Option<VhostRequest> {
        let (queue, _flags) = self.pair()?;
        let (descriptors, used, available) = (self.u64()?, self.u64()?, self.u64()?);
        let _log = self.u64()?;
        let address = VringAddress { descriptors, used, available };
        Some(VhostRequest::SetVringAddr { queue, address })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes of a header.
    fn header(request: u32, flags: u32, length: u32) -> [u8; MessageHeader::BYTES] {
        let mut bytes = [0; MessageHeader::BYTES];
        for (to, from) in
            bytes.iter_mut().zip([request, flags, length].into_iter().flat_map(u32::to_le_bytes))
        {
            *to = from;
        }
        bytes
    }

    #[test]
    fn a_header_names_request_and_length() {
        let parsed = MessageHeader::parse(header(5, 0b1001, 40)).unwrap();
        assert_eq!(parsed, MessageHeader { request: 5, needs_reply: true, length: 40 });
        let wrong = MessageHeader::parse(header(5, 2, 40)).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "the front-end sent a vhost-user message of version 2: only \
             version 1 exists"
        );
        let long = MessageHeader::parse(header(5, 1, 265)).unwrap_err();
        assert!(long.to_string().contains("265 bytes: at most 264"), "{long}");
    }

    #[test]
    fn a_memory_table_has_its_regions() {
        let mut payload = vec![2, 0, 0, 0, 0, 0, 0, 0];
        payload.extend((1..=8_u64).flat_map(u64::to_le_bytes));
        let expected = [1, 5].map(|first| RegionMessage {
            guest_address: first,
            length: first + 1,
            user_address: first + 2,
            file_offset: first + 3,
        });
        assert_eq!(
            VhostRequest::parse(5, &payload).unwrap(),
            VhostRequest::SetMemTable(expected.to_vec())
        );
        let short = VhostRequest::parse(5, &payload[..71]).unwrap_err();
        assert!(short.to_string().contains("71 bytes, which is too short"), "{short}");
        payload[0] = 9;
        VhostRequest::parse(5, &payload).unwrap_err();
    }

    #[test]
    fn a_kick_message_may_lack_a_descriptor() {
        let request = |number: u64| VhostRequest::parse(12, &number.to_le_bytes()).unwrap();
        let vring = |queue, has_descriptor| {
            VhostRequest::SetVringKick(VringDescriptor { queue, has_descriptor })
        };
        assert_eq!(request(3), vring(3, true));
        assert_eq!(request(0x103), vring(3, false));
        assert_eq!((request(3).descriptors(), request(0x103).descriptors()), (1, 0));
    }

    #[test]
    fn a_reply_carries_the_number_of_its_request() {
        let bytes = MessageHeader::reply(11, VhostReply::VringState { queue: 1, base: 0x102 });
        let expected = [11, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0];
        assert_eq!(bytes, expected);
        let bytes = MessageHeader::reply(6, VhostReply::Empty);
        assert_eq!(bytes, [6, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn messages_of_a_migration_are_parsed() {
        let log: Vec<u8> = [5_u64, 7].into_iter().flat_map(u64::to_le_bytes).collect();
        let parsed = VhostRequest::parse(6, &log).unwrap();
        assert_eq!(parsed, VhostRequest::SetLogBase { length: 5, offset: 7 });
        assert_eq!(parsed.descriptors(), 1);
        assert_eq!(VhostRequest::parse(7, &[]).unwrap().descriptors(), 1);
        let parsed = VhostRequest::parse(19, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(parsed, VhostRequest::SendRarp { mac: [1, 2, 3, 4, 5, 6] });
    }

    proptest! {
        #[test]
        fn any_payload_is_parsed_or_refused(
            request in 0_u32..50, payload in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Ok(parsed) = VhostRequest::parse(request, &payload) {
                prop_assert!(parsed.descriptors() <= REGIONS_PER_MESSAGE);
            }
        }
    }
}
