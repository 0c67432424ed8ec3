//! Builds the frame of a flow.
//!
//! Building a frame is the inverse of [`shunt_flow::extract`]: for every supported key, extracting
//! the frame gives the key again. Lengths and checksums are correct, so hosts and other tools
//! accept the packets. Values that are not in the key are constant: the payload is zero, and TCP
//! window and sequence numbers never change.
//!
//! Two VLAN tags, three MPLS labels, ARP, IPv4, IPv6, TCP, UDP, SCTP and ICMP are supported. IPv6
//! extension headers, neighbour discovery, NSH and provider backbone tags are not.

use shunt_flow::{FieldId, FlowKey, checksum, layout::word};

use crate::FrameError;

/// Bytes of the frame check sequence, which wire lengths include and captures omit.
pub const CHECK_SEQUENCE: usize = 4;

/// Minimum frame length of Ethernet, without check sequence.
pub const FRAME_MIN: usize = 60;

/// Maximum frame length, without check sequence.
///
/// The largest frame is a jumbo frame with 9000 bytes of payload.
pub const FRAME_MAX: usize = 9014;

/// Replaces the content of `frame` by a frame with the headers of `key`.
///
/// The frame has `length` bytes without the check sequence, but at least [`FRAME_MIN`] and the
/// length of its headers. Zeros fill the payload.
///
/// # Errors
///
/// If `length` is more than [`FRAME_MAX`], or the key has unsupported headers.
pub fn write_frame(key: &FlowKey, length: usize, frame: &mut Vec<u8>) -> Result<(), FrameError> {
    frame.clear();
    if length > FRAME_MAX {
        return Err(FrameError::TooLong { length });
    }
    let length = length.max(FRAME_MIN);
    let eth_type = key.eth_type();
    put_ethernet(key, frame);
    if eth_type < ETHER_TYPE_MIN {
        let rest = length.saturating_sub(frame.len().saturating_add(2));
        put(frame, &to_u16(rest).to_be_bytes());
    } else {
        put(frame, &eth_type.to_be_bytes());
    }
    match eth_type {
        IPV4 => put_ipv4(key, length, frame)?,
        IPV6 => put_ipv6(key, length, frame)?,
        ARP | RARP => put_arp(key, frame),
        MPLS_UNICAST | MPLS_MULTICAST => put_labels(key, frame),
        NSH => return Err(FrameError::Unsupported { what: "a network service header" }),
        PBB => return Err(FrameError::Unsupported { what: "a provider backbone tag" }),
        _ => {}
    }
    if frame.len() < length {
        frame.resize(length, 0);
    }
    Ok(())
}

/// The lowest Ethernet type; lower numbers are lengths.
const ETHER_TYPE_MIN: u16 = 0x0600;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
const MPLS_UNICAST: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PBB: u16 = 0x88e7;
const NSH: u16 = 0x894f;

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// The bit of a tag in a flow key that is set if the tag is present.
const TAG_PRESENT: u16 = 0x1000;
/// The bit that is set in the last entry of a label stack.
const BOTTOM: u32 = 0x100;
/// The value of the field `nw_frag` in a first fragment.
const FIRST_FRAGMENT: u8 = 1;
/// The value of the field `nw_frag` in a later fragment.
const LATER_FRAGMENT: u8 = 3;

/// Appends the Ethernet header and the VLAN tags.
fn put_ethernet(key: &FlowKey, frame: &mut Vec<u8>) {
    put(frame, &low::<6>(key.field(FieldId::EthDst)));
    put(frame, &low::<6>(key.field(FieldId::EthSrc)));
    let tags = [(FieldId::VlanTpid, FieldId::VlanTci), (FieldId::VlanTpid1, FieldId::VlanTci1)];
    for (tpid, tci) in tags {
        let tci = u16::from_be_bytes(low(key.field(tci)));
        if tci & TAG_PRESENT != 0 {
            put(frame, &low::<2>(key.field(tpid)));
            put(frame, &(tci & !TAG_PRESENT).to_be_bytes());
        }
    }
}

/// Writes the label stack.
///
/// The payload after the labels is zero, because a flow key does not contain it.
fn put_labels(key: &FlowKey, frame: &mut Vec<u8>) {
    let words = key.words();
    let [first, second] = halves(words[usize::from(word::MPLS)]);
    let [third, _] = halves(words[usize::from(word::MPLS_PBB)]);
    for entry in [first, second, third] {
        put(frame, &entry.to_be_bytes());
        if entry & BOTTOM != 0 {
            break;
        }
    }
}

/// Appends an ARP message.
fn put_arp(key: &FlowKey, frame: &mut Vec<u8>) {
    put(frame, &[0, 1, 8, 0, 6, 4]);
    put(frame, &low::<2>(key.field(FieldId::ArpOp)));
    put(frame, &low::<6>(key.field(FieldId::ArpSha)));
    put(frame, &low::<4>(key.field(FieldId::ArpSpa)));
    put(frame, &low::<6>(key.field(FieldId::ArpTha)));
    put(frame, &low::<4>(key.field(FieldId::ArpTpa)));
}

/// Appends an IPv4 packet.
fn put_ipv4(key: &FlowKey, length: usize, frame: &mut Vec<u8>) -> Result<(), FrameError> {
    const HEADER: usize = 20;
    /// Offset of the checksum in the IPv4 header.
    const CHECKSUM: usize = 10;
    let start = frame.len();
    let protocol = byte(key, FieldId::IpProto);
    let fragment = byte(key, FieldId::NwFrag);
    let needed = HEADER.saturating_add(transport_length(protocol, fragment));
    let total = length.saturating_sub(start).max(needed);
    put(frame, &[0x45, type_of_service(key)]);
    put(frame, &to_u16(total).to_be_bytes());
    let fragment_bits: u16 = match fragment {
        0 => 0,
        FIRST_FRAGMENT => 0x2000,
        LATER_FRAGMENT => 1,
        _ => return Err(FrameError::Unsupported { what: "a later fragment without a first one" }),
    };
    put(frame, &[0, 0]);
    put(frame, &fragment_bits.to_be_bytes());
    put(frame, &[byte(key, FieldId::NwTtl), protocol, 0, 0]);
    put(frame, &low::<4>(key.field(FieldId::Ipv4Src)));
    put(frame, &low::<4>(key.field(FieldId::Ipv4Dst)));
    let sum = checksum::sum(frame.get(start..).unwrap_or_default());
    set_word(frame, start.saturating_add(CHECKSUM), !sum);
    let addresses = frame.get(start.saturating_add(12)..).map(checksum::sum).unwrap_or_default();
    let segment = Segment { protocol, fragment, addresses, length: total.saturating_sub(HEADER) };
    segment.put(key, frame);
    Ok(())
}

/// Appends an IPv6 packet.
fn put_ipv6(key: &FlowKey, length: usize, frame: &mut Vec<u8>) -> Result<(), FrameError> {
    const HEADER: usize = 40;
    if key.field(FieldId::Ipv6Exthdr) != 0 || key.field(FieldId::NwFrag) != 0 {
        return Err(FrameError::Unsupported { what: "an IPv6 extension header" });
    }
    let protocol = byte(key, FieldId::IpProto);
    if protocol == ICMPV6
        && matches!((byte(key, FieldId::IcmpType), byte(key, FieldId::IcmpCode)), (135 | 136, 0))
    {
        return Err(FrameError::Unsupported { what: "neighbour discovery" });
    }
    let start = frame.len();
    let room = length.saturating_sub(start.saturating_add(HEADER));
    let payload = room.max(transport_length(protocol, 0));
    let tos = u32::from(type_of_service(key));
    let label = u32::from_be_bytes(low(key.field(FieldId::Ipv6Label)));
    put(frame, &(6 << 28 | tos << 20 | label).to_be_bytes());
    put(frame, &to_u16(payload).to_be_bytes());
    put(frame, &[protocol, byte(key, FieldId::NwTtl)]);
    put(frame, &key.field(FieldId::Ipv6Src).to_be_bytes());
    put(frame, &key.field(FieldId::Ipv6Dst).to_be_bytes());
    let addresses = frame.get(start.saturating_add(8)..).map(checksum::sum).unwrap_or_default();
    Segment { protocol, fragment: 0, addresses, length: payload }.put(key, frame);
    Ok(())
}

/// Returns the length of a protocol's transport header.
const fn transport_length(protocol: u8, fragment: u8) -> usize {
    match (protocol, fragment) {
        (_, LATER_FRAGMENT) => 0,
        (TCP, _) => 20,
        (SCTP, _) => 12,
        (UDP | ICMP | IGMP | ICMPV6, _) => 8,
        _ => 0,
    }
}

/// The payload of an IP packet.
struct Segment {
    protocol: u8,
    fragment: u8,
    /// The sum of both addresses, for the pseudo-header of the checksum.
    addresses: u16,
    /// Length in bytes of header and payload.
    length: usize,
}

impl Segment {
    /// Writes the transport header and the payload.
    fn put(&self, key: &FlowKey, frame: &mut Vec<u8>) {
        let start = frame.len();
        let ports = || low::<4>(key.field(FieldId::TcpSrc) << 16 | key.field(FieldId::TcpDst));
        let kind = || [byte(key, FieldId::IcmpType), byte(key, FieldId::IcmpCode)];
        let checksum_at = match self.protocol {
            _ if self.fragment == LATER_FRAGMENT => None,
            TCP => {
                put(frame, &ports());
                put(frame, &[0, 0, 0, 1, 0, 0, 0, 1]);
                let flags = u16::from_be_bytes(low(key.field(FieldId::TcpFlags)));
                put(frame, &(5 << 12 | flags).to_be_bytes());
                put(frame, &[0x20, 0, 0, 0, 0, 0]);
                Some(16)
            }
            UDP => {
                put(frame, &ports());
                put(frame, &to_u16(self.length).to_be_bytes());
                put(frame, &[0, 0]);
                Some(6)
            }
            SCTP => {
                put(frame, &ports());
                put(frame, &[0; 8]);
                None
            }
            ICMP | IGMP | ICMPV6 => {
                put(frame, &kind());
                put(frame, &[0, 0, 0, 1, 0, 1]);
                Some(2)
            }
            _ => None,
        };
        if let Some(at) = checksum_at {
            let checksum = self.checksum(frame.get(start..).unwrap_or_default());
            set_word(frame, start.saturating_add(at), checksum);
        }
        frame.resize(start.saturating_add(self.length), 0);
        if self.protocol == SCTP && self.fragment != LATER_FRAGMENT {
            let crc = crc32c(frame.get(start..).unwrap_or_default()).to_le_bytes();
            overwrite(frame, start.saturating_add(8), &crc);
        }
    }

    /// Returns the checksum over header, optional pseudo-header, and zero payload.
    fn checksum(&self, header: &[u8]) -> u16 {
        let own = u32::from(checksum::sum(header));
        let pseudo_header = match self.protocol {
            ICMP | IGMP => 0,
            protocol => {
                u32::from(self.addresses) + u32::from(protocol) + u32::from(to_u16(self.length))
            }
        };
        match !checksum::sum(&(own + pseudo_header).to_be_bytes()) {
            // In UDP, zero means that there is no checksum (RFC 768).
            0 if self.protocol == UDP => 0xffff,
            checksum => checksum,
        }
    }
}

/// Returns the checksum of SCTP (RFC 9260, appendix A), bit by bit.
///
/// The slow computation suffices, because SCTP packets are rare.
fn crc32c(bytes: &[u8]) -> u32 {
    /// The polynomial of CRC-32C (RFC 9260, Appendix A), with its bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32| (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Appends bytes to the frame.
fn put(frame: &mut Vec<u8>, bytes: &[u8]) {
    frame.extend_from_slice(bytes);
}

/// Writes 16 bits at an offset.
fn set_word(frame: &mut [u8], at: usize, value: u16) {
    overwrite(frame, at, &value.to_be_bytes());
}

/// Writes bytes at an offset.
fn overwrite(frame: &mut [u8], at: usize, bytes: &[u8]) {
    let target = frame.get_mut(at..).unwrap_or_default();
    target.iter_mut().zip(bytes).for_each(|(target, byte)| *target = *byte);
}

/// Returns the byte that contains DSCP and ECN.
fn type_of_service(key: &FlowKey) -> u8 {
    byte(key, FieldId::IpDscp) << 2 | byte(key, FieldId::IpEcn)
}

/// Returns the value of a field of eight bits.
fn byte(key: &FlowKey, field: FieldId) -> u8 {
    let [byte] = low(key.field(field));
    byte
}

/// Returns the lowest bytes of a value in network byte order.
fn low<const N: usize>(value: u128) -> [u8; N] {
    let bytes = value.to_be_bytes();
    bytes.last_chunk().copied().unwrap_or([0; N])
}

/// Returns the upper and the lower half of a word.
#[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
const fn halves(word: u64) -> [u32; 2] {
    [(word >> 32) as u32, word as u32]
}

/// Returns a length for a header field.
/// The length fits, because no frame is longer than [`FRAME_MAX`].
fn to_u16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_flow::{
        PortNo,
        extract::{VlanLimit, extract},
        testing::packet::{PacketBuilder, crc32c as crc32c_by_hand, internet_sum, packets},
    };

    use super::*;

    fn extract_key(frame: &[u8]) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo::new(3));
        extract(frame, VlanLimit::Two, &mut key);
        key
    }

    /// Returns the frame of a key.
    fn frame(key: &FlowKey, length: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        write_frame(key, length, &mut frame).unwrap();
        frame
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_frame_of_a_key_has_that_key(packet in packets(), length in 0..FRAME_MAX) {
            let key = extract_key(&packet.build());
            let mut frame = Vec::new();
            match write_frame(&key, length, &mut frame) {
                Ok(()) => prop_assert_eq!(extract_key(&frame), key),
                Err(FrameError::Unsupported { .. }) => {}
                Err(error) => prop_assert!(false, "{error}"),
            }
        }

        #[test]
        fn a_frame_has_the_requested_length(
            a: [u8; 4], b: [u8; 4], length in 0..FRAME_MAX,
        ) {
            let key = extract_key(&PacketBuilder::ipv4(a, b).tcp(1, 2).build());
            prop_assert_eq!(frame(&key, length).len(), length.max(FRAME_MIN));
        }

        #[test]
        fn ports_and_addresses_never_spoil_a_checksum(
            a: [u8; 16], b: [u8; 16], ports: (u16, u16), length in 60..200_usize,
        ) {
            let (a4, b4) = ([a[0], a[1], a[2], a[3]], [b[0], b[1], b[2], b[3]]);
            let packets = [PacketBuilder::ipv4(a4, b4), PacketBuilder::ipv6(a, b)];
            for packet in packets {
                for packet in [packet.clone().tcp(ports.0, ports.1), packet.udp(ports.0, ports.1)] {
                    assert_sums_are_right(&frame(&extract_key(&packet.build()), length));
                }
            }
        }
    }

    /// Checks the checksums of an untagged TCP or UDP frame with slow code.
    fn assert_sums_are_right(frame: &[u8]) {
        let is_v4 = frame[12..14] == [8, 0];
        let (addresses, protocol, at) = match is_v4 {
            true => (&frame[26..34], frame[23], 34),
            false => (&frame[22..54], frame[20], 54),
        };
        if is_v4 {
            assert_eq!(internet_sum(&frame[14..34]), 0xffff);
        }
        let segment = &frame[at..];
        let length = u16::try_from(segment.len()).unwrap().to_be_bytes();
        let whole = [addresses, &[0, protocol], &length, segment].concat();
        assert_eq!(internet_sum(&whole), 0xffff, "{frame:02x?}");
        assert!(protocol != 17 || segment[6..8] != [0, 0], "a UDP checksum is never absent");
    }

    #[test]
    fn the_checksum_of_sctp_is_right() {
        let frame =
            frame(&extract_key(&PacketBuilder::ipv4([1; 4], [2; 4]).sctp(3, 4).build()), 90);
        let mut segment = frame[34..].to_vec();
        segment[8..12].fill(0);
        assert_eq!(frame[42..46], crc32c_by_hand(&segment).to_le_bytes());
    }

    #[test]
    fn unsupported_headers_are_refused_by_name() {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::EthType, NSH.into());
        let refused = write_frame(&key, 60, &mut Vec::new()).unwrap_err();
        assert_eq!(refused.to_string(), "frames with a network service header are not supported");
        let long = write_frame(&key, FRAME_MAX + 1, &mut Vec::new()).unwrap_err();
        assert_eq!(long.to_string(), "a frame of 9015 bytes is too long: the limit is 9014");
    }
}
