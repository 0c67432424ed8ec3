//! Packet samples of the action `sample` of rules, for IPFIX collectors.
//!
//! Each packet thread has a [`RuleSampler`] while a bridge has a set of collectors. When a packet
//! reaches a `sample` action, the sampler chooses at random whether to sample it. A sample is the
//! start of the frame, with the changes of earlier actions, in a bounded ring. The sampler counts
//! and drops a sample if the ring is full; the thread never waits. Without a sampler the action
//! costs one check.

use std::{fmt, sync::Arc};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_flow::hash::split_mix;
use shunt_pipeline::{BridgeId, DatapathAction, SampleRequest};

use crate::{metrics::Counter, packet::buffer::Packet, sample::SampledPacket};

/// Capacity of the ring between one thread and the reader of the samples.
const SAMPLES_MAX: usize = 2048;

/// Number of bytes copied of a packet: the headers up to the transport header.
const HEADER_BYTES: usize = 128;

/// The identity of a set of IPFIX collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectorSetId {
    /// The bridge to which the set belongs.
    pub bridge: BridgeId,
    /// The number by which `sample` actions refer to the set (`collector_set_id`).
    pub number: u32,
}

/// Chooses samples; the packet thread's end of the ring.
pub struct RuleSampler {
    /// The few sets of collectors that receive samples.
    sets: Vec<CollectorSetId>,
    /// The state of the random numbers that choose samples.
    random: u64,
    /// The ring of samples.
    samples: Producer<RuleSample>,
    /// Number of samples that the full ring dropped.
    dropped: Arc<Counter>,
}

/// The reader's end of the ring of samples.
#[derive(Debug)]
pub struct RuleSampleReceiver {
    /// The ring of samples.
    samples: Consumer<RuleSample>,
    /// Number of samples that the full ring dropped.
    dropped: Arc<Counter>,
}

/// A sample that a rule has requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSample {
    /// The rule's request: its `sample` action and its bridge.
    pub request: Arc<SampleRequest>,
    /// The start of the frame; the fields for VLAN tags and output ports are empty.
    pub packet: SampledPacket,
}

/// The [`RuleSampler`] of a packet thread, if any.
#[derive(Debug)]
pub(crate) struct RuleSamples(Option<Box<RuleSampler>>);

/// Creates a sampler for `sets` and the receiver of its samples.
///
/// `seed` determines the random choices, and differs between threads.
#[must_use]
pub fn rule_sampler(sets: Vec<CollectorSetId>, seed: u64) -> (RuleSampler, RuleSampleReceiver) {
    let (samples, received) = RingBuffer::new(SAMPLES_MAX);
    let dropped = Arc::new(Counter::default());
    let sampler = RuleSampler { sets, random: seed, samples, dropped: Arc::clone(&dropped) };
    (sampler, RuleSampleReceiver { samples: received, dropped })
}

impl RuleSamples {
    /// The settings of a thread that samples no packet.
    pub(crate) const NONE: Self = Self(None);

    /// Sets the sampler; with `None`, the thread samples no further packets.
    pub(crate) fn set(&mut self, sampler: Option<Box<RuleSampler>>) {
        self.0 = sampler;
    }

    /// Samples a packet for all `sample` actions of a list and of its nested copies.
    pub(crate) fn take(
        &mut self,
        actions: &mut dyn Iterator<Item = &DatapathAction>,
        packet: &Packet,
    ) {
        if let Some(sampler) = &mut self.0 {
            sampler.take(actions, packet);
        }
    }
}

impl RuleSampler {
    /// Samples a packet for each `sample` among the actions.
    fn take(&mut self, actions: &mut dyn Iterator<Item = &DatapathAction>, packet: &Packet) {
        for action in actions {
            match action {
                DatapathAction::Sample(request) => self.sample(request, packet),
                // Copies nest at most 64 deep.
                DatapathAction::Copy(inner) => self.take(&mut inner.iter(), packet),
                _ => {}
            }
        }
    }

    /// Samples a packet with the probability of the request, if its collectors exist.
    fn sample(&mut self, request: &Arc<SampleRequest>, packet: &Packet) {
        let number = request.action.collector_set_id;
        let set = CollectorSetId { bridge: request.bridge, number };
        if !self.is_chosen(request.action.probability) || !self.sets.contains(&set) {
            return;
        }
        let packet = SampledPacket::of(packet, HEADER_BYTES);
        if self.samples.push(RuleSample { request: Arc::clone(request), packet }).is_err() {
            self.dropped.add(1);
        }
    }

    /// Returns true with a probability of `probability` / 65535.
    fn is_chosen(&mut self, probability: u16) -> bool {
        // As in Open vSwitch: scales a fraction of 2^16 to the same fraction of 2^32.
        let threshold = u64::from(probability) << 16 | u64::from(probability);
        split_mix(&mut self.random) >> 32 <= threshold
    }
}

impl RuleSampleReceiver {
    /// Takes the oldest sample from the ring.
    pub fn pop(&mut self) -> Option<RuleSample> {
        self.samples.pop().ok()
    }

    /// Returns the number of samples in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.slots()
    }

    /// Returns whether the ring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns whether the ring is empty and the thread no longer uses its sampler.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.samples.is_abandoned() && self.is_empty()
    }

    /// Returns the number of samples that did not fit the ring.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

impl fmt::Debug for RuleSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSampler").field("sets", &self.sets).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_is_a_part_of_65535() {
        let (mut sampler, _receiver) = rule_sampler(Vec::new(), 7);
        let mut count =
            |probability| (0..65_535).filter(|_| sampler.is_chosen(probability)).count();
        assert_eq!(count(65_535), 65_535);
        // The standard deviations are about 64 and 128.
        assert!((3_600..4_600).contains(&count(4_096)));
        assert!((31_500..34_000).contains(&count(32_768)));
        assert!(count(1) < 12);
    }
}
