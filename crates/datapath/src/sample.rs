//! Packet sampling for sFlow and IPFIX collectors: one random packet in N of a bridge.
//!
//! Each packet thread has a [`PacketSampler`] for each bridge and protocol with sampling. The
//! sampler counts the packets that the bridge receives, and copies the first bytes of each sampled
//! packet into a bounded ring. The sampler counts and drops a sample if the ring is full; the
//! thread never waits. Without a sampler a burst costs one check of an empty list.
//!
//! The number of packets between two samples is random, and N - 1 on average. A constant number
//! would synchronize with periodic traffic ("sFlow Version 5", 4.2.2).

use std::{fmt, num::NonZeroU32, sync::Arc};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_flow::hash::split_mix;
use shunt_pipeline::{BridgeId, DatapathPort};

use crate::{metrics::Counter, packet::buffer::Packet};

/// Maximum number of bytes of a sampled packet.
pub const SAMPLE_HEADER_MAX: usize = 256;

/// Capacity of the ring between one thread and the reader of the samples.
const SAMPLES_MAX: usize = 2048;

/// The protocol that reports the samples; a bridge has a sampler for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleUse {
    /// The sampler reports by sFlow.
    Sflow,
    /// The sampler reports by IPFIX.
    Ipfix,
}

/// The settings of a sampler.
#[derive(Clone, Copy, Debug)]
pub struct SamplerConfig {
    /// The bridge that receives the packets.
    pub bridge: BridgeId,
    /// One packet in `rate` is sampled.
    pub rate: NonZeroU32,
    /// Bytes to copy of each sampled packet, at most [`SAMPLE_HEADER_MAX`].
    pub header_length: usize,
    /// Seed of the random choice, different for each thread.
    pub seed: u64,
}

/// Chooses samples of one bridge; the packet thread's end of the ring.
pub struct PacketSampler {
    /// The bridge of which packets are sampled.
    bridge: BridgeId,
    /// One packet in this number is sampled.
    rate: NonZeroU32,
    /// Number of bytes of each packet that a sample has.
    header_length: usize,
    /// Number of packets before the next sampled packet.
    until_next: u64,
    /// The state of the random numbers that choose packets.
    random: u64,
    /// The ring of samples.
    packets: Producer<SampledPacket>,
    /// The counters of sampled and lost packets.
    counters: Arc<SamplerCounters>,
}

/// The reader's end of the ring of samples.
#[derive(Debug)]
pub struct SampleReceiver {
    /// The ring of sampled packets.
    packets: Consumer<SampledPacket>,
    /// The counters of sampled and lost packets.
    counters: Arc<SamplerCounters>,
}

/// The packets that a sampler considered, and the samples that it lost.
#[derive(Debug, Default)]
struct SamplerCounters {
    /// Number of packets from which the sampler chose: the sample pool of sFlow.
    pool: Counter,
    /// Number of samples dropped because the ring was full.
    dropped: Counter,
}

/// The first bytes of a sampled packet as it was received, and its output ports.
#[derive(Clone, PartialEq, Eq)]
pub struct SampledPacket {
    /// Port that received the packet.
    pub ingress: DatapathPort,
    /// Ports that the packet is sent to.
    pub egress: SampledEgress,
    /// TCI of the outermost VLAN tag as received.
    pub vlan_in: Option<u16>,
    /// TCI of the outermost VLAN tag as sent to the first port.
    pub vlan_out: Option<u16>,
    /// Length of the frame in bytes.
    ///
    /// A packet that a device is still to segment counts as one frame.
    pub frame_length: usize,
    /// The first bytes; `header_length` of these are valid.
    header: [u8; SAMPLE_HEADER_MAX],
    /// Number of valid bytes of `header`.
    header_length: usize,
}

/// The ports that a sampled packet is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledEgress {
    /// Unknown: a lookup after recirculation decides, or no translation existed.
    Unknown,
    /// No port, and no controller: the packet is dropped.
    Dropped,
    /// The packet is sent only to controllers.
    Controller,
    /// The packet is sent to one port.
    Port(DatapathPort),
    /// Several ports; the value is their number.
    Ports(u32),
}

/// The output ports of a sampled packet, and its VLAN tag at the first port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampledOutcome {
    /// The ports to which the packet is sent.
    pub(crate) egress: SampledEgress,
    /// TCI of the outermost VLAN tag as sent to the first port.
    pub(crate) vlan_out: Option<u16>,
}

/// Creates a sampler and the receiver of its samples.
#[must_use]
pub fn packet_sampler(config: SamplerConfig) -> (PacketSampler, SampleReceiver) {
    let (packets, received) = RingBuffer::new(SAMPLES_MAX);
    let counters = Arc::new(SamplerCounters::default());
    let mut sampler = PacketSampler {
        bridge: config.bridge,
        rate: config.rate,
        header_length: config.header_length.min(SAMPLE_HEADER_MAX),
        until_next: 0,
        random: config.seed,
        packets,
        counters: Arc::clone(&counters),
    };
    sampler.until_next = sampler.gap();
    (sampler, SampleReceiver { packets: received, counters })
}

impl PacketSampler {
    /// Returns the bridge of the sampled packets.
    pub(crate) const fn bridge(&self) -> BridgeId {
        self.bridge
    }

    /// Adds the packets of a burst to the sample pool.
    pub(crate) fn count(&self, packets: usize) {
        self.counters.pool.add(packets as u64);
    }

    /// Returns the index in a burst of the next sampled packet, `from` or later.
    ///
    /// The burst has `count` packets.
    /// Call this function with the index after the last result until it returns `None`.
    pub(crate) fn next_position(&mut self, from: usize, count: usize) -> Option<usize> {
        let left = count.saturating_sub(from) as u64;
        if left <= self.until_next {
            self.until_next -= left;
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the number is less than the burst")]
        let position = from + self.until_next as usize;
        self.until_next = self.gap();
        Some(position)
    }

    /// Returns whether the ring has room for a sample; else counts a dropped sample.
    pub(crate) fn has_room(&self) -> bool {
        let has_room = !self.packets.is_full();
        if !has_room {
            self.counters.dropped.add(1);
        }
        has_room
    }

    /// Puts a sample of a packet into the ring, which must have room.
    pub(crate) fn push(&mut self, packet: &Packet, vlan_in: Option<u16>, outcome: SampledOutcome) {
        let sample = SampledPacket {
            egress: outcome.egress,
            vlan_in,
            vlan_out: outcome.vlan_out,
            ..SampledPacket::of(packet, self.header_length)
        };
        let pushed = self.packets.push(sample);
        debug_assert!(pushed.is_ok(), "the ring has room, because only this end fills it");
    }

    /// Returns a random number of packets to skip.
    ///
    /// The number is at most 2N - 2, and N - 1 on average.
    fn gap(&mut self) -> u64 {
        split_mix(&mut self.random) % (2 * u64::from(self.rate.get()) - 1)
    }
}

impl SampleReceiver {
    /// Takes the oldest sample from the ring.
    pub fn pop(&mut self) -> Option<SampledPacket> {
        self.packets.pop().ok()
    }

    /// Returns the number of samples in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.slots()
    }

    /// Returns whether the ring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the number of packets from which the sampler chose (sample pool).
    ///
    /// The number includes the packets of all samples that [`Self::pop`] has returned.
    #[must_use]
    pub fn pool(&self) -> u64 {
        self.counters.pool.get()
    }

    /// Returns the number of samples dropped because the ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counters.dropped.get()
    }
}

impl SampledPacket {
    /// Returns the first bytes of a packet; VLAN tags and output ports are not set.
    ///
    /// `header_length` is at most [`SAMPLE_HEADER_MAX`].
    pub(crate) fn of(packet: &Packet, header_length: usize) -> Self {
        let frame = packet.frame();
        let length = header_length.min(frame.len());
        let mut header = [0; SAMPLE_HEADER_MAX];
        header[..length].copy_from_slice(&frame[..length]);
        Self {
            ingress: packet.ingress,
            egress: SampledEgress::Unknown,
            vlan_in: None,
            vlan_out: None,
            frame_length: packet.len(),
            header,
            header_length: length,
        }
    }

    /// Returns the first bytes of the frame.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_length]
    }
}

impl fmt::Debug for PacketSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSampler")
            .field("bridge", &self.bridge)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SampledPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledPacket")
            .field("ingress", &self.ingress)
            .field("egress", &self.egress)
            .field("frame_length", &self.frame_length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::packet::buffer::{BURST, Pool};

    /// Returns a sampler, and the receiver of its samples.
    fn sampler(rate: u32, seed: u64) -> (PacketSampler, SampleReceiver) {
        let rate = NonZeroU32::new(rate).unwrap();
        let bridge = BridgeId::new(1);
        packet_sampler(SamplerConfig { bridge, rate, header_length: 60, seed })
    }

    /// Returns the positions of the sampled packets in the sequence of all bursts.
    fn sample_bursts(sampler: &mut PacketSampler, bursts: &[usize]) -> Vec<usize> {
        let (mut positions, mut before) = (Vec::new(), 0);
        for count in bursts {
            let mut from = 0;
            while let Some(position) = sampler.next_position(from, *count) {
                assert!((from..*count).contains(&position));
                positions.push(before + position);
                from = position + 1;
            }
            before += count;
        }
        positions
    }

    proptest! {
        /// The choice of packets is independent of burst sizes, and gaps are bounded.
        #[test]
        fn packet_samples_do_not_depend_on_bursts(
            rate in 1..100_u32,
            seed: u64,
            bursts in prop::collection::vec(1..=BURST, 1..100),
        ) {
            let whole: usize = bursts.iter().sum();
            let by_bursts = sample_bursts(&mut sampler(rate, seed).0, &bursts);
            prop_assert_eq!(&by_bursts, &sample_bursts(&mut sampler(rate, seed).0, &[whole]));
            let bound = 2 * rate as usize - 1;
            prop_assert!(by_bursts.first().is_none_or(|first| *first < bound));
            for pair in by_bursts.windows(2) {
                prop_assert!((1..=bound).contains(&(pair[1] - pair[0])));
            }
            prop_assert!(whole < bound || !by_bursts.is_empty());
            prop_assert!(rate > 1 || by_bursts.len() == whole);
        }
    }

    #[test]
    fn one_packet_in_n_is_sampled() {
        let (mut sampler, _) = sampler(64, 7);
        let positions = sample_bursts(&mut sampler, &vec![BURST; 20_000]);
        // The mean is 10,000, with a standard deviation of about 58.
        assert!((9_500..10_500).contains(&positions.len()), "{}", positions.len());
        let places: BTreeSet<usize> = positions.iter().map(|position| position % BURST).collect();
        assert_eq!(places.len(), BURST, "one flow at each place of a burst");
    }

    #[test]
    fn samples_that_do_not_fit_are_counted() {
        let (mut sampler, mut receiver) = sampler(1, 7);
        let port = DatapathPort::new(7);
        let packet = Pool::new().take(100, port).unwrap();
        let outcome = SampledOutcome { egress: SampledEgress::Dropped, vlan_out: None };
        for _ in 0..SAMPLES_MAX + 3 {
            sampler.count(1);
            if sampler.has_room() {
                sampler.push(&packet, Some(0x1005), outcome);
            }
        }
        assert_eq!((receiver.len(), receiver.dropped()), (SAMPLES_MAX, 3));
        assert_eq!(receiver.pool(), SAMPLES_MAX as u64 + 3);
        let sample = receiver.pop().unwrap();
        assert_eq!(
            (sample.ingress, sample.frame_length, sample.vlan_in),
            (port, 100, Some(0x1005))
        );
        assert_eq!(sample.header(), [0; 60]);
        assert!(sampler.has_room());
    }
}
