//! Errors of capture files; each error names the tool that repairs the file.

/// An error of a capture file, with the name of the file and the packet's number.
#[derive(Debug, thiserror::Error)]
pub struct PcapError {
    /// The name of the file.
    pub name: String,
    /// The number of the packet, counted from 1; 0 for the header of the file.
    pub number: u64,
    /// The problem of the file or packet.
    pub problem: PcapProblem,
}

impl std::fmt::Display for PcapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, number, problem } = self;
        match problem {
            PcapProblem::NoHeader => {
                write!(
                    f,
                    "{name} is not a capture: it is shorter than the 24 bytes of the header of a \
                     pcap file"
                )
            }
            PcapProblem::NoMagic => {
                write!(
                    f,
                    "{name} is not a capture: it does not begin with the magic number of pcap"
                )
            }
            PcapProblem::Version => {
                write!(
                    f,
                    "{name} is not a pcap file of version 2.4: convert it with `editcap -F pcap`"
                )
            }
            PcapProblem::Pcapng => {
                write!(f, "{name} is a pcapng file: convert it with `editcap -F pcap`")
            }
            PcapProblem::LinkType { link } => write!(
                f,
                "{name} has packets of link type {link}, not Ethernet frames: \
                 capture on an Ethernet device"
            ),
            PcapProblem::CheckSequences => write!(
                f,
                "{name} has frames that end with their check sequence (FCS): strip it with \
                 `editcap -C -4 -L`"
            ),
            PcapProblem::EndsWithin => {
                write!(
                    f,
                    "{name} ends within packet {number}: it was truncated, or is still being \
                     written; capture it again, or keep its whole packets \
                     (`tcpdump -r {name} -w whole.pcap`)"
                )
            }
            PcapProblem::Snapped { captured, original } => write!(
                f,
                "packet {number} of {name} was truncated to {captured} of {original} bytes when it \
                 was captured: capture whole packets (`tcpdump -s 0`)"
            ),
            PcapProblem::Longer { captured, original } => write!(
                f,
                "packet {number} of {name} has {captured} captured bytes, but the packet itself \
                 had {original}: the file is damaged, so capture again"
            ),
            PcapProblem::TooLong { length } => write!(
                f,
                "packet {number} of {name} has {length} bytes, and at most 262144 are possible: \
                 the file is damaged, so capture again"
            ),
            PcapProblem::Unreadable(error) => write!(f, "cannot read {name}: {error}"),
        }
    }
}

/// A problem of a capture file.
#[derive(Debug)]
#[non_exhaustive]
pub enum PcapProblem {
    /// The file is shorter than a file header.
    NoHeader,
    /// The file does not begin with a magic number.
    NoMagic,
    /// The version of the file format is not 2.4.
    Version,
    /// The file is in the newer format, pcapng.
    Pcapng,
    /// The packets are not Ethernet frames.
    LinkType {
        /// The link type of the file.
        link: u32,
    },
    /// The frames of the file end with frame check sequences.
    CheckSequences,
    /// The file ends within a record.
    EndsWithin,
    /// The file contains only the beginning of a packet.
    Snapped {
        /// Number of bytes of the packet in the file.
        captured: u32,
        /// Length of the packet on the wire.
        original: u32,
    },
    /// The file contains more bytes of a packet than the packet had on the wire.
    Longer {
        /// Number of bytes of the packet in the file.
        captured: u32,
        /// Length of the packet on the wire.
        original: u32,
    },
    /// A packet is longer than the longest valid frame.
    TooLong {
        /// Length of the packet.
        length: u32,
    },
    /// The system cannot read the file.
    Unreadable(std::io::Error),
}
