//! A slow decoder of sFlow datagrams, which shares no code with the encoder.
//!
//! The decoder reads one 32-bit word after the other, and refuses wrong lengths, padding that is
//! not zero, and extra bytes at the end.

use std::net::IpAddr;

use super::reader::{take, word};

/// A decoded sFlow datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedDatagram {
    /// IP address of the agent.
    pub address: IpAddr,
    /// Number of the stream among the streams of the agent (sub-agent id).
    pub sub_agent: u32,
    /// Sequence number of the datagram.
    pub sequence: u32,
    /// Milliseconds since the agent started.
    pub uptime_ms: u32,
    /// The samples of the datagram, in order.
    pub samples: Vec<DecodedSample>,
}

/// A decoded flow sample or counters sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedSample {
    /// Format number: 1 for a flow sample, 2 for a counters sample.
    pub format: u32,
    /// The words before the number of records in the sample.
    ///
    /// For a flow sample: sequence number, source, rate, pool, drops, input and output. The words
    /// of a counters sample are its sequence number and source.
    pub words: Vec<u32>,
    /// The records, each with its format number and its bytes.
    pub records: Vec<(u32, Vec<u8>)>,
}

impl DecodedSample {
    /// Returns the record with a format number as 32-bit words.
    #[must_use]
    pub fn words_of(&self, format: u32) -> Option<Vec<u32>> {
        let (_, bytes) = self.records.iter().find(|(own, _)| *own == format)?;
        let words = bytes.chunks(4).map(|word| word.try_into().ok().map(u32::from_be_bytes));
        words.collect()
    }

    /// Returns the header bytes of the sampled packet.
    #[must_use]
    pub fn header(&self) -> Option<Vec<u8>> {
        let (_, bytes) = self.records.iter().find(|(format, _)| *format == 1)?;
        let mut rest = bytes.get(12..)?;
        opaque(&mut rest)
    }

    /// Returns the name of the port in a counters sample.
    #[must_use]
    pub fn port_name(&self) -> Option<String> {
        let (_, bytes) = self.records.iter().find(|(format, _)| *format == 1005)?;
        String::from_utf8(opaque(&mut bytes.as_slice())?).ok()
    }
}

/// Decodes a datagram; `None` if the bytes are not exactly one datagram.
#[must_use]
pub fn decode_sflow(datagram: &[u8]) -> Option<DecodedDatagram> {
    let rest = &mut &*datagram;
    if word(rest)? != 5 {
        return None;
    }
    let address = match word(rest)? {
        1 => IpAddr::from(<[u8; 4]>::try_from(take(rest, 4)?).ok()?),
        2 => IpAddr::from(<[u8; 16]>::try_from(take(rest, 16)?).ok()?),
        _ => return None,
    };
    let (sub_agent, sequence, uptime_ms) = (word(rest)?, word(rest)?, word(rest)?);
    let count = word(rest)?;
    let mut samples = Vec::new();
    for _ in 0..count {
        samples.push(sample(rest)?);
    }
    rest.is_empty().then_some(DecodedDatagram { address, sub_agent, sequence, uptime_ms, samples })
}

/// Decodes a sample.
fn sample(rest: &mut &[u8]) -> Option<DecodedSample> {
    let format = word(rest)?;
    let body = opaque(rest)?;
    let body = &mut body.as_slice();
    let count = match format {
        1 => 7,
        2 => 2,
        _ => return None,
    };
    let mut words = Vec::new();
    for _ in 0..count {
        words.push(word(body)?);
    }
    let mut records = Vec::new();
    for _ in 0..word(body)? {
        records.push((word(body)?, opaque(body)?));
    }
    body.is_empty().then_some(DecodedSample { format, words, records })
}

/// Takes bytes after their length.
fn opaque(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = word(rest)? as usize;
    let bytes = take(rest, length)?.to_vec();
    let padding = take(rest, (4 - length % 4) % 4)?;
    padding.iter().all(|byte| *byte == 0).then_some(bytes)
}
