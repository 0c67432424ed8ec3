//! Reads and writes capture files in the classic pcap format.
//!
//! A file has a header of 24 bytes, and then records of a 16-byte header and a frame each.
//! [`PcapWriter`] writes little-endian records with nanoseconds; [`PcapReader`] reads either byte
//! order and either time resolution. Reader and writer work as streams, with at most one frame in
//! memory. Only Ethernet frames without check sequences are supported, because ports can send only
//! these. An error names the file, the packet, and the tool that repairs the file.
//!
//! Source: draft-ietf-opsawg-pcap (PCAP Capture File Format), sections 4 and 5.
//!
//! ```
//! use shunt_pcap::{PcapReader, PcapWriter};
//!
//! let mut writer = PcapWriter::new(Vec::new())?;
//! writer.write(1_000_000_007, &[0; 60])?;
//! let file = writer.into_inner();
//!
//! let mut reader = PcapReader::new("example.pcap", file.as_slice())?;
//! let packet = reader.next_packet()?.ok_or("the file has one packet")?;
//! assert_eq!((packet.time_ns, packet.frame.len()), (1_000_000_007, 60));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod error;
mod format;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use error::{PcapError, PcapProblem};
pub use reader::{PcapPacket, PcapReader, PcapRecord};
pub use writer::{PcapWriter, RECORD_BYTES};
