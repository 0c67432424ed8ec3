//! Ethernet frames with a control packet over UDP and IPv4.
//!
//! Source: RFC 5881, 4 and 5; RFC 791 (IPv4); RFC 768 (UDP).

use std::net::Ipv4Addr;

use crate::{
    error::BfdError,
    wire::{
        octets::BfdOctets,
        packet::{ControlPacket, PACKET_BYTES},
    },
};

/// The addresses of the frames that a session sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdAddresses {
    /// Source MAC address, in wire order.
    pub source_mac: [u8; 6],
    /// Destination MAC address, in wire order.
    pub destination_mac: [u8; 6],
    /// IPv4 address of the sender.
    pub source_ip: Ipv4Addr,
    /// IPv4 address of the receiver.
    pub destination_ip: Ipv4Addr,
    /// UDP source port: at least 49152, and different for each session of a system.
    pub source_port: u16,
}

impl BfdAddresses {
    /// The default destination MAC address of Open vSwitch.
    pub const DESTINATION_MAC: [u8; 6] = [0x00, 0x23, 0x20, 0x00, 0x00, 0x01];
    /// The default source IPv4 address of Open vSwitch.
    pub const SOURCE_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
    /// The default destination IPv4 address of Open vSwitch.
    pub const DESTINATION_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 0);
    /// The first UDP source port of RFC 5881, 4.
    pub const FIRST_SOURCE_PORT: u16 = 49_152;

    /// Returns the frame with a control packet, without the frame check sequence.
    #[must_use]
    pub fn emit(&self, packet: &ControlPacket) -> Vec<u8> {
        let mut udp = Vec::with_capacity(UDP_BYTES.into());
        udp.extend(self.source_port.to_be_bytes());
        udp.extend(BFD_PORT.to_be_bytes());
        udp.extend(UDP_BYTES.to_be_bytes());
        let pseudo_header = [
            self.source_ip.octets().as_slice(),
            &self.destination_ip.octets(),
            &[0, PROTOCOL_UDP],
            &UDP_BYTES.to_be_bytes(),
        ]
        .concat();
        let payload = packet.emit();
        let udp_checksum = match checksum(&[&pseudo_header, &udp, &payload]) {
            // A checksum of zero would mean that there is no checksum.
            0 => u16::MAX,
            sum => sum,
        };
        udp.extend(udp_checksum.to_be_bytes());
        let mut ip = Vec::with_capacity(IP_BYTES);
        ip.extend([VERSION_AND_LENGTH, INTERNETWORK_CONTROL]);
        ip.extend(IP_TOTAL_BYTES.to_be_bytes());
        // The identification is zero, and the packet is not fragmented.
        ip.extend([0; 4]);
        ip.extend([TTL, PROTOCOL_UDP]);
        let addresses = [self.source_ip.octets(), self.destination_ip.octets()].concat();
        ip.extend(checksum(&[&ip, &addresses]).to_be_bytes());
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        frame.extend(self.destination_mac);
        frame.extend(self.source_mac);
        frame.extend(ETHERTYPE_IPV4.to_be_bytes());
        for part in [ip.as_slice(), &addresses, &udp, &payload] {
            frame.extend_from_slice(part);
        }
        frame
    }
}

/// Returns the control packet in an Ethernet frame.
///
/// VLAN tags are skipped. The addresses and the UDP checksum are not checked: a host may leave the
/// UDP checksum to its network card.
///
/// # Errors
///
/// If the frame is of another protocol, is malformed, or has passed a router. The frame is also
/// refused if [`ControlPacket::parse`] refuses the packet.
pub fn parse_frame(frame: &[u8]) -> Result<ControlPacket, BfdError> {
    let mut octets = BfdOctets::new(frame);
    let _addresses: [u8; 12] = octets.take()?;
    // Each tag consumes four octets, so the loop ends.
    let ethertype = loop {
        match octets.take_u16()? {
            TAG_C | TAG_S => _ = octets.take_u16()?,
            ethertype => break ethertype,
        }
    };
    if ethertype != ETHERTYPE_IPV4 {
        return Err(BfdError::NotBfd);
    }
    let [version_and_length] = BfdOctets::new(octets.unread()).take()?;
    let header_bytes = usize::from(version_and_length & 0x0f).saturating_mul(4);
    if version_and_length >> 4 != 4 || header_bytes < IP_BYTES {
        return Err(BfdError::NotBfd);
    }
    let mut header = octets.take_part(header_bytes)?;
    if checksum(&[header.unread()]) != 0 {
        return Err(BfdError::HeaderChecksum);
    }
    let [_version, _service] = header.take()?;
    let payload_bytes = usize::from(header.take_u16()?).saturating_sub(header_bytes);
    let [_, _, _, _, ttl, protocol] = header.take()?;
    let mut udp = octets.take_part(payload_bytes)?;
    let (_source, destination) = (udp.take_u16()?, udp.take_u16()?);
    if protocol != PROTOCOL_UDP || destination != BFD_PORT {
        return Err(BfdError::NotBfd);
    }
    if ttl != TTL {
        return Err(BfdError::Ttl(ttl));
    }
    let datagram_bytes = usize::from(udp.take_u16()?);
    let _checksum = udp.take_u16()?;
    let payload = udp.take_part(datagram_bytes.saturating_sub(UDP_HEADER_BYTES))?;
    ControlPacket::parse(payload.unread())
}

/// Returns the Internet checksum of parts that each have an even length (RFC 1071).
///
/// The checksum is zero for octets that include their correct checksum.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks_exact(2));
    let word = |octets: &[u8]| match octets {
        [high, low] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    let add = |sum: u16, word: u16| {
        let (sum, carry) = sum.overflowing_add(word);
        // A sum that produced a carry is less than the largest number, so this addition cannot
        // overflow.
        sum.saturating_add(carry.into())
    };
    !words.map(word).fold(0, add)
}

/// The UDP destination port of control packets (RFC 5881, 4).
pub const BFD_PORT: u16 = 3784;

/// The length of a frame without its frame check sequence.
pub const FRAME_BYTES: usize = 66;

const ETHERTYPE_IPV4: u16 = 0x0800;
const TAG_C: u16 = 0x8100;
const TAG_S: u16 = 0x88a8;
const PROTOCOL_UDP: u8 = 17;

/// The TTL of a packet that no router has forwarded (RFC 5881, 5).
const TTL: u8 = 255;

/// The octet with IP version 4 and a header length of five words.
const VERSION_AND_LENGTH: u8 = 0x45;

/// DSCP CS6, for network control protocols (RFC 4594).
const INTERNETWORK_CONTROL: u8 = 0xc0;

/// Length of an IPv4 header without options, in octets.
const IP_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
/// Length of the UDP datagram, in octets.
const UDP_BYTES: u16 = 32;
/// Length of the IPv4 packet, in octets.
const IP_TOTAL_BYTES: u16 = 52;

const _: () = {
    assert!(UDP_BYTES as usize == UDP_HEADER_BYTES + PACKET_BYTES);
    assert!(IP_TOTAL_BYTES as usize == IP_BYTES + UDP_BYTES as usize);
    assert!(FRAME_BYTES == 14 + IP_TOTAL_BYTES as usize);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        BfdState,
        testing::{any_packet, packet},
    };

    /// Returns the addresses of a frame between two hosts.
    fn addresses() -> BfdAddresses {
        BfdAddresses {
            source_mac: [0xfa, 0x96, 0x65, 0xdc, 0xf2, 0x36],
            destination_mac: BfdAddresses::DESTINATION_MAC,
            source_ip: BfdAddresses::SOURCE_IP,
            destination_ip: BfdAddresses::DESTINATION_IP,
            source_port: 49_153,
        }
    }

    /// Computes the checksum by 32-bit words, unlike the code under test.
    fn sum(octets: &[u8]) -> u16 {
        let mut sum: u32 =
            octets.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum >> 16 > 0 {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::try_from(sum).unwrap()
    }

    proptest! {
        #[test]
        fn an_emitted_frame_parses_back(packet in any_packet(), ports in any::<(u16, u32, u32)>()) {
            let (source_port, source, destination) = ports;
            let own = BfdAddresses {
                source_port,
                source_ip: source.into(),
                destination_ip: destination.into(),
                ..addresses()
            };
            let frame = own.emit(&packet);
            prop_assert_eq!(frame.len(), FRAME_BYTES);
            prop_assert_eq!(parse_frame(&frame), Ok(packet));
            prop_assert_eq!(sum(&frame[14..34]), 0xffff, "header checksum");
            let pseudo = [&frame[26..34], &[0, 17, 0, 32], &frame[34..]].concat();
            prop_assert_eq!(sum(&pseudo), 0xffff, "UDP checksum");
            let mut tagged = frame[..12].to_vec();
            tagged.extend([0x88, 0xa8, 0, 5, 0x81, 0x00, 0x20, 7]);
            tagged.extend(&frame[12..]);
            tagged.extend([0; 6]);
            prop_assert_eq!(parse_frame(&tagged), Ok(packet), "VLAN tags and padding");
        }

        #[test]
        fn a_truncated_frame_is_refused(packet in any_packet(), length in 0..FRAME_BYTES) {
            prop_assert!(parse_frame(&addresses().emit(&packet)[..length]).is_err());
        }
    }

    #[test]
    fn frames_are_those_of_open_vswitch() {
        // A frame that Open vSwitch 3.1 sent; it has no UDP checksum.
        let recorded = "0023 2000 0001 fa96 65dc f236 0800 45c0 0034 0000 0000 ff11 64fb a9fe 0101 \
             a9fe 0100 c001 0ec8 0020 0000 20c0 0318 100d fb60 1840 3a47 0007 a120 000f 4240 0000 0000";
        let digits: String = recorded.split_whitespace().collect();
        let octet = |index| u8::from_str_radix(&digits[index..index + 2], 16).unwrap();
        let recorded: Vec<u8> = (0..digits.len()).step_by(2).map(octet).collect();
        let packet = parse_frame(&recorded).unwrap();
        assert_eq!((packet.state, packet.multiplier.get()), (BfdState::Up, 3));
        assert_eq!(packet.my_discriminator.get(), 0x100d_fb60);
        assert_eq!((packet.desired_min_tx_us, packet.required_min_rx_us), (500_000, 1_000_000));
        let mut emitted = addresses().emit(&packet);
        emitted[40..42].fill(0);
        assert_eq!(emitted, recorded);
    }

    #[test]
    fn each_wrong_field_has_its_error() {
        let frame = |changes: &[(usize, u8)]| {
            let mut frame = addresses().emit(&packet(BfdState::Up, 1, 2));
            for (position, octet) in changes {
                frame[*position] = *octet;
            }
            // The changed header gets a correct checksum.
            frame[24..26].fill(0);
            let checksum = !sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            parse_frame(&frame)
        };
        assert!(frame(&[]).is_ok());
        for (position, octet, expected) in [
            (13, 6, BfdError::NotBfd),
            (14, 0x65, BfdError::NotBfd),
            (14, 0x44, BfdError::NotBfd),
            (17, 53, BfdError::Short { length: 32, needed: 33 }),
            (22, 254, BfdError::Ttl(254)),
            (23, 6, BfdError::NotBfd),
            (37, 0xc9, BfdError::NotBfd),
            (39, 33, BfdError::Short { length: 24, needed: 25 }),
            (42, 0, BfdError::Version(0)),
        ] {
            assert_eq!(frame(&[(position, octet)]), Err(expected), "octet {position}");
        }
        let two_octets = BfdError::Short { length: 2, needed: 24 };
        assert_eq!(frame(&[(17, 30), (39, 10)]), Err(two_octets));
        let mut corrupt = addresses().emit(&packet(BfdState::Up, 1, 2));
        corrupt[26] ^= 1;
        assert_eq!(parse_frame(&corrupt), Err(BfdError::HeaderChecksum));
    }

    #[test]
    fn options_of_the_header_are_skipped() {
        let own = packet(BfdState::Up, 1, 2);
        let plain = addresses().emit(&own);
        let mut frame = [&plain[..34], &[1, 1, 1, 0], &plain[34..]].concat();
        (frame[14], frame[17]) = (0x46, 56);
        frame[24..26].fill(0);
        let checksum = !sum(&frame[14..38]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(parse_frame(&frame), Ok(own));
    }
}
