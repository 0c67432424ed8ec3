//! A packet described by its fields, and its frame.

use super::{crc32c, internet_sum};

/// A packet described by its fields.
///
/// Begin with what an Ethernet frame carries ([`ipv4`](Self::ipv4), [`ipv6`](Self::ipv6),
/// [`arp`](Self::arp), [`ethernet`](Self::ethernet)), add to it, and [`build`](Self::build). Every
/// field has a fixed default, so the same calls always build the same frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketBuilder {
    /// The destination MAC address of the packet.
    pub(super) destination: [u8; 6],
    /// The source MAC address of the packet.
    pub(super) source: [u8; 6],
    /// TPID and TCI, outermost first.
    pub(super) tags: Vec<(u16, u16)>,
    /// The encapsulation: Ethernet or SNAP.
    pub(super) encapsulation: Encapsulation,
    /// Label stack entries, outermost first; the bottom of the stack is set when built.
    pub(super) labels: Vec<u32>,
    /// The network layer of the packet.
    pub(super) network: NetworkLayer,
    /// The transport layer of the packet.
    pub(super) transport: TransportLayer,
    /// The bytes after the transport header.
    pub(super) payload: Vec<u8>,
    /// The content of the transport checksum field.
    pub(super) checksums: Checksums,
    /// Minimum length of the frame in bytes.
    length_min: usize,
}

/// The framing of the payload: Ethernet type or SNAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encapsulation {
    Ethernet,
    Snap,
}

/// The content of the transport checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The correct checksum of the packet.
    Complete,
    /// The sum of the pseudo-header only, to be completed on transmission.
    Partial,
    /// Zero, which in UDP means no checksum.
    Absent,
}

/// The network layer of a packet under construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NetworkLayer {
    Raw { ether_type: u16 },
    Arp(Arp),
    Ipv4(Ipv4),
    Ipv6(Ipv6),
}

/// The fields of an ARP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arp {
    /// The operation: 1 for a request, 2 for a reply.
    pub(super) operation: u16,
    /// The MAC and IP address of the sender.
    pub(super) sender: ([u8; 6], [u8; 4]),
    /// The MAC and IP address of the target.
    pub(super) target: ([u8; 6], [u8; 4]),
}

/// The fields of an IPv4 header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ipv4 {
    /// The source address of the IPv4 header.
    pub(super) source: [u8; 4],
    /// The destination address of the IPv4 header.
    pub(super) destination: [u8; 4],
    /// The type of service of the IPv4 header.
    pub(super) tos: u8,
    /// The time to live of the IPv4 header.
    pub(super) ttl: u8,
    /// More fragments (0x2000) and the offset in units of eight bytes.
    pub(super) fragment: u16,
    /// The bytes of the options.
    pub(super) options: Vec<u8>,
}

/// The fields of an IPv6 header and its extension headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ipv6 {
    /// The source address of the IPv6 header.
    pub(super) source: [u8; 16],
    /// The destination address of the IPv6 header.
    pub(super) destination: [u8; 16],
    /// The traffic class of the IPv6 header.
    pub(super) tos: u8,
    /// The hop limit of the IPv6 header.
    pub(super) ttl: u8,
    /// The flow label of the IPv6 header.
    pub(super) label: u32,
    /// Protocol number, and the content after the next header and length bytes.
    pub(super) extensions: Vec<(u8, Vec<u8>)>,
}

/// The transport layer of a packet under construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TransportLayer {
    Raw { protocol: u8 },
    Tcp { ports: [u16; 2], flags: u16, options: usize },
    Udp { ports: [u16; 2] },
    Sctp { ports: [u16; 2] },
    Icmp { kind: u8, code: u8 },
    Neighbour(Neighbour),
}

/// A neighbour solicitation (type 135) or advertisement (136).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The ICMPv6 type of the message.
    pub kind: u8,
    /// The reserved bits, of which an advertisement uses three.
    pub reserved: u32,
    /// The target address of the message.
    pub target: [u8; 16],
    /// The source link-layer address option.
    pub source: Option<[u8; 6]>,
    /// The target link-layer address option.
    pub destination: Option<[u8; 6]>,
}

impl PacketBuilder {
    /// A frame of this Ethernet type with an opaque payload.
    #[must_use]
    pub fn ethernet(ether_type: u16) -> Self {
        Self::of(NetworkLayer::Raw { ether_type })
    }

    /// Creates an IPv4 packet of protocol 253 (for experiments).
    /// Add a transport header to change the protocol.
    #[must_use]
    pub fn ipv4(source: [u8; 4], destination: [u8; 4]) -> Self {
        let options = Vec::new();
        Self::of(NetworkLayer::Ipv4(Ipv4 {
            source,
            destination,
            tos: 0,
            ttl: 64,
            fragment: 0,
            options,
        }))
    }

    /// Creates an IPv6 packet of protocol 253 (for experiments).
    /// Add a transport header to change the protocol.
    #[must_use]
    pub fn ipv6(source: [u8; 16], destination: [u8; 16]) -> Self {
        let (tos, ttl, label, extensions) = (0, 64, 0, Vec::new());
        Self::of(NetworkLayer::Ipv6(Ipv6 { source, destination, tos, ttl, label, extensions }))
    }

    /// An ARP packet: sender and target each by MAC and IPv4 address.
    #[must_use]
    pub fn arp(operation: u16, sender: ([u8; 6], [u8; 4]), target: ([u8; 6], [u8; 4])) -> Self {
        Self::of(NetworkLayer::Arp(Arp { operation, sender, target }))
    }

    /// Returns a packet with a network header.
    fn of(network: NetworkLayer) -> Self {
        Self {
            destination: [2, 0, 0, 0, 0, 2],
            source: [2, 0, 0, 0, 0, 1],
            tags: Vec::new(),
            encapsulation: Encapsulation::Ethernet,
            labels: Vec::new(),
            network,
            transport: TransportLayer::Raw { protocol: 253 },
            payload: Vec::new(),
            checksums: Checksums::Complete,
            length_min: 0,
        }
    }

    /// Sets the MAC addresses; by default 02:00:00:00:00:01 to 02:00:00:00:00:02.
    #[must_use]
    pub fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Self {
        (self.source, self.destination) = (source, destination);
        self
    }

    /// Adds a VLAN tag after the existing ones.
    #[must_use]
    pub fn tag(mut self, tpid: u16, tci: u16) -> Self {
        self.tags.push((tpid, tci & !0x1000));
        self
    }

    /// Makes the frame an 802.3 frame with a SNAP header.
    #[must_use]
    pub fn snap(mut self) -> Self {
        self.encapsulation = Encapsulation::Snap;
        self
    }

    /// Adds an MPLS label stack entry after the existing ones.
    #[must_use]
    pub fn mpls(mut self, label: u32, class: u8, ttl: u8) -> Self {
        self.labels.push(label << 12 | u32::from(class) << 9 | u32::from(ttl));
        self
    }

    /// Removes the MPLS labels of the packet.
    #[must_use]
    pub fn without_labels(mut self) -> Self {
        self.labels.clear();
        self
    }

    /// Sets the type of service or traffic class of an IP packet.
    #[must_use]
    pub fn tos(mut self, value: u8) -> Self {
        match &mut self.network {
            NetworkLayer::Ipv4(Ipv4 { tos, .. }) | NetworkLayer::Ipv6(Ipv6 { tos, .. }) => {
                *tos = value;
            }
            NetworkLayer::Raw { .. } | NetworkLayer::Arp(_) => {}
        }
        self
    }

    /// Sets the time to live or hop limit of an IP packet.
    #[must_use]
    pub fn ttl(mut self, value: u8) -> Self {
        match &mut self.network {
            NetworkLayer::Ipv4(Ipv4 { ttl, .. }) | NetworkLayer::Ipv6(Ipv6 { ttl, .. }) => {
                *ttl = value;
            }
            NetworkLayer::Raw { .. } | NetworkLayer::Arp(_) => {}
        }
        self
    }

    /// Sets the flow label of an IPv6 packet.
    #[must_use]
    pub fn flow_label(mut self, value: u32) -> Self {
        if let NetworkLayer::Ipv6(Ipv6 { label, .. }) = &mut self.network {
            *label = value & 0x000f_ffff;
        }
        self
    }

    /// Sets the options of an IPv4 packet, at most forty bytes.
    #[must_use]
    pub fn ipv4_options(mut self, bytes: &[u8]) -> Self {
        if let NetworkLayer::Ipv4(Ipv4 { options, .. }) = &mut self.network {
            options.extend(bytes);
            options.resize(options.len().next_multiple_of(4).min(40), 0);
        }
        self
    }

    /// Adds an IPv6 extension header after those that an IPv6 packet has.
    /// `content` follows its next-header and length bytes.
    #[must_use]
    pub fn extension(mut self, protocol: u8, content: &[u8]) -> Self {
        if let NetworkLayer::Ipv6(Ipv6 { extensions, .. }) = &mut self.network {
            let mut content = content.to_vec();
            content.resize((content.len() + 2).next_multiple_of(8) - 2, 0);
            extensions.push((protocol, content));
        }
        self
    }

    /// Makes the packet a fragment.
    /// The word is its offset in units of eight bytes, with the more-fragments bit 0x2000.
    #[must_use]
    pub fn fragment(mut self, value: u16) -> Self {
        match &mut self.network {
            NetworkLayer::Ipv4(Ipv4 { fragment, .. }) => *fragment = value,
            NetworkLayer::Ipv6(_) => {
                let [high, low] = (value << 3 | value >> 13 & 1).to_be_bytes();
                return self.extension(44, &[high, low, 0, 0, 0, 77]);
            }
            NetworkLayer::Raw { .. } | NetworkLayer::Arp(_) => {}
        }
        self
    }

    /// Sets the IP protocol, with an opaque payload.
    #[must_use]
    pub fn protocol(mut self, protocol: u8) -> Self {
        self.transport = TransportLayer::Raw { protocol };
        self
    }

    /// Makes the packet a TCP acknowledgement.
    #[must_use]
    pub fn tcp(mut self, source: u16, destination: u16) -> Self {
        self.transport =
            TransportLayer::Tcp { ports: [source, destination], flags: 0x10, options: 0 };
        self
    }

    /// Sets the flags of a TCP packet.
    #[must_use]
    pub fn tcp_flags(mut self, value: u16) -> Self {
        if let TransportLayer::Tcp { flags, .. } = &mut self.transport {
            *flags = value & 0x0fff;
        }
        self
    }

    /// Adds `words` 32-bit words of options to a TCP packet; at most ten.
    #[must_use]
    pub fn tcp_options(mut self, words: usize) -> Self {
        if let TransportLayer::Tcp { options, .. } = &mut self.transport {
            *options = if words < 10 { words } else { 10 };
        }
        self
    }

    /// Makes the packet UDP.
    #[must_use]
    pub fn udp(mut self, source: u16, destination: u16) -> Self {
        self.transport = TransportLayer::Udp { ports: [source, destination] };
        self
    }

    /// Makes the packet SCTP.
    #[must_use]
    pub fn sctp(mut self, source: u16, destination: u16) -> Self {
        self.transport = TransportLayer::Sctp { ports: [source, destination] };
        self
    }

    /// Makes the packet ICMP, or ICMPv6 if it is an IPv6 packet.
    #[must_use]
    pub fn icmp(mut self, kind: u8, code: u8) -> Self {
        self.transport = TransportLayer::Icmp { kind, code };
        self
    }

    /// Makes an IPv6 packet neighbour discovery.
    #[must_use]
    pub fn neighbour(mut self, message: Neighbour) -> Self {
        if matches!(self.network, NetworkLayer::Ipv6(_)) {
            self.transport = TransportLayer::Neighbour(message);
        }
        self
    }

    /// Sets the payload of the packet.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Sets the state of the transport checksums.
    #[must_use]
    pub fn checksums(mut self, checksums: Checksums) -> Self {
        self.checksums = checksums;
        self
    }

    /// Pads to at least `length` bytes.
    ///
    /// The padding is not zero, so that a parser that reads it as header or payload fails.
    #[must_use]
    pub fn padded(mut self, length_min: usize) -> Self {
        self.length_min = length_min;
        self
    }

    /// Returns the frame.
    ///
    /// # Panics
    ///
    /// If the packet is longer than its length fields allow.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let (network_type, packet) = self.packet();
        let ether_type = if self.labels.is_empty() { network_type } else { 0x8847 };
        let mut body = self.label_stack();
        body.extend(packet);
        let mut frame = [self.destination, self.source].concat();
        for (tpid, tci) in &self.tags {
            frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        if self.encapsulation == Encapsulation::Snap {
            frame.extend(length_field(body.len() + 8));
            frame.extend([0xaa, 0xaa, 3, 0, 0, 0]);
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(body);
        frame.resize(frame.len().max(self.length_min), 0x5a);
        frame
    }

    /// Returns whether the packet is a fragment with an offset above zero.
    ///
    /// The transport header of a later fragment is opaque payload.
    pub(super) fn is_later_fragment(&self) -> bool {
        match &self.network {
            NetworkLayer::Raw { .. } | NetworkLayer::Arp(_) => false,
            NetworkLayer::Ipv4(ip) => ip.fragment & 0x1fff != 0,
            NetworkLayer::Ipv6(ip) => ip.extensions.iter().any(|(protocol, content)| {
                *protocol == 44 && u16::from_be_bytes([content[0], content[1]]) & 0xfff8 != 0
            }),
        }
    }

    /// Returns the bytes of the MPLS labels.
    fn label_stack(&self) -> Vec<u8> {
        let last = self.labels.len().saturating_sub(1);
        let entry = |(index, label): (usize, &u32)| label | u32::from(index == last) << 8;
        self.labels.iter().enumerate().map(entry).flat_map(u32::to_be_bytes).collect()
    }

    /// Returns the Ethernet type of the network layer, and its packet.
    fn packet(&self) -> (u16, Vec<u8>) {
        match &self.network {
            NetworkLayer::Raw { ether_type } => (*ether_type, self.payload.clone()),
            NetworkLayer::Arp(arp) => (0x0806, arp.packet()),
            NetworkLayer::Ipv4(ip) => {
                let pseudo_header = [ip.source, ip.destination].concat();
                let (protocol, segment) = self.segment(1, &pseudo_header);
                (0x0800, ip.packet(protocol, &segment))
            }
            NetworkLayer::Ipv6(ip) => {
                let pseudo_header = [ip.source, ip.final_destination()].concat();
                let (protocol, segment) = self.segment(58, &pseudo_header);
                (0x86dd, ip.packet(protocol, &segment))
            }
        }
    }

    /// Returns the protocol, and the transport header with its payload.
    /// `icmp` is the protocol number of ICMP or of ICMPv6.
    fn segment(&self, icmp: u8, addresses: &[u8]) -> (u8, Vec<u8>) {
        let (protocol, header, checksum) = match &self.transport {
            TransportLayer::Raw { protocol } => (*protocol, Vec::new(), None),
            TransportLayer::Tcp { ports, flags, options } => {
                (6, tcp_header(*ports, *flags, *options), Some(16))
            }
            TransportLayer::Udp { ports } => (17, udp_header(*ports, self.payload.len()), Some(6)),
            TransportLayer::Sctp { ports } => {
                (132, [port_bytes(*ports).as_slice(), &[0, 0, 0, 9, 0, 0, 0, 0]].concat(), None)
            }
            TransportLayer::Icmp { kind, code } => {
                (icmp, vec![*kind, *code, 0, 0, 0, 1, 0, 1], Some(2))
            }
            TransportLayer::Neighbour(message) => (58, message.header(), Some(2)),
        };
        let mut segment = [header.as_slice(), &self.payload].concat();
        if self.is_later_fragment() {
            return (protocol, segment);
        }
        if let Some(offset) = checksum {
            let checksum = self.checksum(protocol, addresses, &segment);
            segment[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        if protocol == 132 && header.len() == 12 {
            let crc = crc32c(&segment);
            segment[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        (protocol, segment)
    }

    /// Computes the checksum of a segment.
    fn checksum(&self, protocol: u8, addresses: &[u8], segment: &[u8]) -> u16 {
        let pseudo_header = match protocol {
            1 => Vec::new(),
            _ => [addresses, &[0, protocol], &length_field(segment.len())].concat(),
        };
        match self.checksums {
            Checksums::Partial => internet_sum(&pseudo_header),
            Checksums::Absent if protocol == 17 => 0,
            Checksums::Complete | Checksums::Absent => {
                match !internet_sum(&[pseudo_header.as_slice(), segment].concat()) {
                    0 if protocol == 17 => 0xffff,
                    checksum => checksum,
                }
            }
        }
    }
}

impl Arp {
    /// Returns the bytes of the ARP packet.
    fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0, 1, 8, 0, 6, 4];
        packet.extend(self.operation.to_be_bytes());
        for (mac, address) in [self.sender, self.target] {
            packet.extend(mac);
            packet.extend(address);
        }
        packet
    }
}

impl Ipv4 {
    /// Returns the bytes of the IPv4 packet with a payload.
    fn packet(&self, protocol: u8, segment: &[u8]) -> Vec<u8> {
        let length = 20 + self.options.len();
        let words = u8::try_from(length / 4).expect("at most 60 bytes");
        let mut header = vec![0x40 | words, self.tos];
        header.extend(length_field(length + segment.len()));
        header.extend([0x12, 0x34]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, protocol, 0, 0]);
        header.extend([self.source, self.destination].concat());
        header.extend(&self.options);
        let checksum = !internet_sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header.extend(segment);
        header
    }
}

impl Ipv6 {
    /// Returns the bytes of the IPv6 packet with a payload.
    fn packet(&self, protocol: u8, segment: &[u8]) -> Vec<u8> {
        let mut payload = segment.to_vec();
        let mut next = protocol;
        for (protocol, content) in self.extensions.iter().rev() {
            let length = match *protocol {
                44 => 0,
                51 => (content.len() + 2) / 4 - 2,
                _ => (content.len() + 2) / 8 - 1,
            };
            let mut header = vec![next, u8::try_from(length).expect("a short extension header")];
            header.extend(content);
            payload.splice(0..0, header);
            next = *protocol;
        }
        let first = 6 << 28 | u32::from(self.tos) << 20 | self.label;
        let mut packet = first.to_be_bytes().to_vec();
        packet.extend(length_field(payload.len()));
        packet.extend([next, self.ttl]);
        packet.extend([self.source, self.destination].concat());
        packet.extend(payload);
        packet
    }

    /// The address that the transport checksum covers, if not the destination.
    /// The address is the last address of a routing header of type 0 with segments left.
    fn final_destination(&self) -> [u8; 16] {
        let route = self.extensions.iter().find(|(protocol, content)| {
            *protocol == 43 && content.get(1).is_some_and(|segments_left| *segments_left > 0)
        });
        route.and_then(|(_, content)| content.last_chunk()).copied().unwrap_or(self.destination)
    }
}

impl Neighbour {
    /// Returns the bytes of the header.
    fn header(&self) -> Vec<u8> {
        let mut header = vec![self.kind, 0, 0, 0];
        header.extend(self.reserved.to_be_bytes());
        header.extend(self.target);
        // The MTU option, before the options with addresses.
        header.extend([5, 1, 0, 0, 0, 0, 5, 220]);
        for (kind, address) in [(1, self.source), (2, self.destination)] {
            if let Some(address) = address {
                header.extend([kind, 1]);
                header.extend(address);
            }
        }
        header
    }
}

/// Returns the bytes of a TCP header.
fn tcp_header(ports: [u16; 2], flags: u16, options: usize) -> Vec<u8> {
    let mut header = port_bytes(ports).to_vec();
    header.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    let words = u16::try_from(5 + options).expect("at most 15 words");
    header.extend((words << 12 | flags).to_be_bytes());
    header.extend([0x20, 0, 0, 0, 0, 0]);
    header.resize(20 + options * 4, 1);
    header
}

/// Returns the bytes of a UDP header without checksum.
fn udp_header(ports: [u16; 2], payload_length: usize) -> Vec<u8> {
    [port_bytes(ports).as_slice(), &length_field(8 + payload_length), &[0, 0]].concat()
}

/// Returns the bytes of the source and destination port.
const fn port_bytes(ports: [u16; 2]) -> [u8; 4] {
    let ([a, b], [c, d]) = (ports[0].to_be_bytes(), ports[1].to_be_bytes());
    [a, b, c, d]
}

/// Returns a length in network byte order.
fn length_field(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("a packet of at most 64 KiB").to_be_bytes()
}
