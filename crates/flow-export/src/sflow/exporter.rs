//! sFlow datagrams with samples, and all sequence numbers.

use std::{collections::BTreeMap, mem, net::IpAddr};

use super::{
    counters::{self, InterfaceStatistics},
    flow::{self, FlowSample, SourceId},
};
use crate::{DATAGRAM_MAX, ExportDatagram, xdr::XdrBuffer};

/// The version of the sFlow protocol.
pub(crate) const VERSION: u32 = 5;

/// Format number of a sample of a flow.
pub(crate) const FLOW_SAMPLE: u32 = 1;
/// Format number of a sample of counters.
pub(crate) const COUNTERS_SAMPLE: u32 = 2;

/// Type number of an IPv4 address.
pub(crate) const IPV4: u32 = 1;
/// Type number of an IPv6 address.
pub(crate) const IPV6: u32 = 2;

/// The identity of a stream of sFlow datagrams.
///
/// A collector tracks sequence numbers separately for each identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SflowAgent {
    /// IP address that identifies the switch, independent of its routes.
    pub address: IpAddr,
    /// Number of the stream among the streams with the same address.
    pub sub_agent: u32,
}

/// Encodes samples into datagrams.
///
/// Memory is bounded by the samples that are added between two calls of [`Self::take_datagrams`].
#[derive(Clone, Debug)]
pub struct SflowExporter {
    /// The agent that the header of a datagram names.
    agent: SflowAgent,
    /// Sequence number of the last datagram.
    sequence: u32,
    /// Sequence number of the last flow sample of each source.
    flow_sequences: BTreeMap<SourceId, u32>,
    /// Sequence number of the last counters sample of each source.
    counters_sequences: BTreeMap<SourceId, u32>,
    /// Encoded samples of the next datagram, and the number of samples.
    samples: (XdrBuffer, u32),
    /// Number of packet samples among these samples.
    packets: u32,
    /// Complete datagrams that were not taken yet.
    full: Vec<ExportDatagram>,
}

impl SflowExporter {
    /// Creates an exporter; all its sequence numbers start with 1.
    #[must_use]
    pub fn new(agent: SflowAgent) -> Self {
        Self {
            agent,
            sequence: 0,
            flow_sequences: BTreeMap::new(),
            counters_sequences: BTreeMap::new(),
            samples: (XdrBuffer::default(), 0),
            packets: 0,
            full: Vec::new(),
        }
    }

    /// Returns the identity in the sent datagrams.
    #[must_use]
    pub const fn agent(&self) -> SflowAgent {
        self.agent
    }

    /// Changes the address of the agent; all sequence numbers continue.
    pub const fn set_address(&mut self, address: IpAddr) {
        self.agent.address = address;
    }

    /// Adds a sampled packet; `uptime_ms` is the time since the agent started.
    pub fn add_flow(&mut self, sample: &FlowSample<'_>, uptime_ms: u32) {
        let sequence = next(self.flow_sequences.entry(sample.source).or_default());
        self.add(FLOW_SAMPLE, uptime_ms, |buffer| flow::encode(buffer, sequence, sample));
        self.packets += 1;
    }

    /// Adds the counters of an interface.
    pub fn add_counters(&mut self, statistics: &InterfaceStatistics, uptime_ms: u32) {
        let source = SourceId::interface(statistics.index);
        let sequence = next(self.counters_sequences.entry(source).or_default());
        self.add(COUNTERS_SAMPLE, uptime_ms, |buffer| {
            buffer.push_u32(sequence);
            buffer.push_u32(source.value());
            counters::encode(buffer, statistics);
        });
    }

    /// Removes the sequence numbers of interfaces for which `is_present` returns false.
    ///
    /// Without this call, memory would grow with each interface that is added and removed.
    pub fn retain_interfaces(&mut self, is_present: impl Fn(SourceId) -> bool) {
        self.counters_sequences.retain(|source, _| is_present(*source));
    }

    /// Returns datagrams with all samples that were added.
    pub fn take_datagrams(&mut self, uptime_ms: u32) -> Vec<ExportDatagram> {
        self.finish(uptime_ms);
        mem::take(&mut self.full)
    }

    /// Adds a sample; starts a new datagram if the sample exceeds the current datagram.
    fn add(&mut self, format: u32, uptime_ms: u32, encode: impl FnOnce(&mut XdrBuffer)) {
        let mut sample = XdrBuffer::default();
        sample.push_u32(format);
        sample.push_nested(encode);
        if self.header_length() + self.samples.0.bytes().len() + sample.bytes().len() > DATAGRAM_MAX
        {
            self.finish(uptime_ms);
        }
        self.samples.0.push_fixed(sample.bytes());
        self.samples.1 += 1;
    }

    /// Ends the current datagram, if it has samples.
    fn finish(&mut self, uptime_ms: u32) {
        let (samples, count) = &mut self.samples;
        if *count == 0 {
            return;
        }
        let mut datagram = XdrBuffer::default();
        datagram.push_u32(VERSION);
        match self.agent.address {
            IpAddr::V4(address) => {
                datagram.push_u32(IPV4);
                datagram.push_fixed(&address.octets());
            }
            IpAddr::V6(address) => {
                datagram.push_u32(IPV6);
                datagram.push_fixed(&address.octets());
            }
        }
        datagram.push_u32(self.agent.sub_agent);
        datagram.push_u32(next(&mut self.sequence));
        datagram.push_u32(uptime_ms);
        datagram.push_u32(mem::take(count));
        datagram.push_fixed(samples.bytes());
        samples.clear();
        let (bytes, records) = (datagram.bytes().to_vec(), mem::take(&mut self.packets));
        self.full.push(ExportDatagram { bytes, records });
    }

    /// Returns the length of the header of a datagram, in bytes.
    const fn header_length(&self) -> usize {
        match self.agent.address {
            IpAddr::V4(_) => 7 * 4,
            IpAddr::V6(_) => 10 * 4,
        }
    }
}

/// Increments the last sequence number, and returns the new number.
const fn next(last: &mut u32) -> u32 {
    *last = last.wrapping_add(1);
    *last
}

#[cfg(test)]
mod tests;
