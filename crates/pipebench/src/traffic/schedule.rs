//! The packets of a workload, in the order of their times.
//!
//! A schedule has two parts. The flows determine the *order* of packets. A flow starts at some
//! position in the traffic, and its packets follow in slots of equal length, each at a random
//! position in its slot. Positions are measured in [`TICKS`] per packet, fine enough to avoid
//! collisions. The gaps between packets determine the *times*. Gaps are sampled for all flows
//! together, so that their mean and deviation are as requested.
//!
//! If n flows are active at a time, consecutive packets of a flow are n packets apart.
//! [`TrafficLength::active`] sets n, which determines the number of flows that a cache must hold at
//! once.
//!
//! The memory of a schedule has one entry for each flow and one more for each active flow, but no
//! packets.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    iter::Peekable,
    vec::IntoIter,
};

use crate::{
    FrameError, RandomStream, Seed,
    traffic::{
        flow::Flow,
        frame::{CHECK_SEQUENCE, write_frame},
        gaps::{GapSampler, STREAM, nanoseconds},
        sizes::LengthSampler,
    },
};

/// One packet of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledPacket {
    /// Time since the start of the traffic.
    pub time_ns: u64,
    /// The index of the packet's flow.
    pub flow: u32,
    /// Length of the packet on the wire in bytes, with the check sequence.
    pub bytes: u16,
}

impl ScheduledPacket {
    /// Replaces the content of `frame` by the frame of this packet.
    ///
    /// `flows` are the flows of the schedule.
    ///
    /// # Errors
    ///
    /// If no frame can be built for the flow.
    pub fn write_frame(&self, flows: &[Flow], frame: &mut Vec<u8>) -> Result<(), FrameError> {
        let flow = usize::try_from(self.flow).ok().and_then(|index| flows.get(index));
        let key = flow.map(Flow::key).unwrap_or_default();
        write_frame(&key, usize::from(self.bytes).saturating_sub(CHECK_SEQUENCE), frame)
    }
}

/// Number of ticks per packet.
pub const TICKS: u64 = 1 << 20;

/// The interval of a flow's packets in the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// The index of the flow.
    pub flow: u32,
    /// Number of packets of the flow.
    pub packets: u32,
    /// The first tick of the flow's interval.
    pub from: u64,
    /// The tick after the flow's interval.
    pub until: u64,
}

/// The length of the traffic, and the number of active flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficLength {
    /// Total number of ticks: [`TICKS`] per packet.
    pub ticks: u64,
    /// Average number of active flows.
    ///
    /// With `None`, each flow is active for the whole traffic.
    pub active: Option<u32>,
}

impl TrafficLength {
    /// Creates the length of traffic with `packets` packets.
    #[must_use]
    pub const fn of(packets: u64, active: Option<u32>) -> Self {
        Self { ticks: packets.saturating_mul(TICKS), active }
    }

    /// Chooses a random interval for a flow, after tick `from`.
    #[must_use]
    pub fn place(
        &self,
        flow: u32,
        packets: u32,
        from: u64,
        stream: &mut RandomStream,
    ) -> Appearance {
        let count = u64::from(packets.max(1));
        let room = self.ticks.saturating_sub(from);
        let slot = room / count;
        let slot = self.active.map_or(slot, |active| slot.min(u64::from(active) * TICKS));
        let length = slot.saturating_mul(count);
        let start =
            from.saturating_add(stream.below(room.saturating_sub(length).saturating_add(1)));
        Appearance { flow, packets, from: start, until: start.saturating_add(length) }
    }
}

impl Appearance {
    /// Returns the ticks between two packets of a flow.
    fn packet_gap(&self) -> u64 {
        self.until.saturating_sub(self.from) / u64::from(self.packets.max(1))
    }
}

/// An iterator over the packets of a workload, ordered by time.
#[derive(Debug)]
pub struct Schedule {
    /// Flows that have not started, by their first tick.
    waiting: Peekable<IntoIter<Appearance>>,
    /// Active flows, by the tick of their next packet.
    active: BinaryHeap<Reverse<Active>>,
    /// The stream that chooses the tick of a packet in its slot.
    tick_stream: RandomStream,
    gaps: (GapSampler, RandomStream),
    lengths: (LengthSampler, RandomStream),
    /// Time of the last packet.
    time_ns: f64,
    is_first: bool,
    /// Number of packets to return.
    left: u64,
    active_max: usize,
}

/// An active flow, ordered by its next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Active {
    /// The tick of the next packet.
    tick: u64,
    flow: u32,
    /// Number of packets of the flow to send.
    left: u32,
    /// Start of the slot after the next packet.
    from: u64,
    slot: u64,
}

impl Schedule {
    /// Creates a schedule of flows.
    ///
    /// The seed selects one of the possible schedules.
    #[must_use]
    pub fn new(
        mut appearances: Vec<Appearance>,
        gaps: GapSampler,
        lengths: LengthSampler,
        seed: Seed,
    ) -> Self {
        appearances.retain(|appearance| appearance.packets > 0);
        appearances.sort_unstable_by_key(|appearance| (appearance.from, appearance.flow));
        let left = appearances.iter().map(|appearance| u64::from(appearance.packets)).sum();
        Self {
            waiting: appearances.into_iter().peekable(),
            active: BinaryHeap::new(),
            tick_stream: seed.stream("places"),
            gaps: (gaps, seed.stream(STREAM)),
            lengths: (lengths, seed.stream("lengths")),
            time_ns: 0.0,
            is_first: true,
            left,
            active_max: 0,
        }
    }

    /// Returns the number of remaining packets.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Returns the maximum number of active flows so far.
    #[must_use]
    pub const fn active_max(&self) -> usize {
        self.active_max
    }

    /// Starts the flows that may have a packet before any active flow.
    fn begin(&mut self) {
        loop {
            let next = self.active.peek().map_or(u64::MAX, |Reverse(active)| active.tick);
            let Some(begun) = self.waiting.next_if(|appearance| appearance.from <= next) else {
                break;
            };
            let slot = begun.packet_gap();
            let tick = begun.from.saturating_add(self.tick_stream.below(slot));
            let from = begun.from.saturating_add(slot);
            let left = begun.packets;
            self.active.push(Reverse(Active { tick, flow: begun.flow, left, from, slot }));
        }
        self.active_max = self.active_max.max(self.active.len());
    }
}

impl Iterator for Schedule {
    type Item = ScheduledPacket;

    fn next(&mut self) -> Option<ScheduledPacket> {
        self.begin();
        let mut top = self.active.peek_mut()?;
        let Reverse(active) = &mut *top;
        let flow = active.flow;
        if active.left > 1 {
            active.left -= 1;
            active.tick = active.from.saturating_add(self.tick_stream.below(active.slot));
            active.from = active.from.saturating_add(active.slot);
        } else {
            PeekMut::pop(top);
        }
        if self.is_first {
            self.is_first = false;
        } else {
            self.time_ns += self.gaps.0.sample(&mut self.gaps.1);
        }
        self.left = self.left.saturating_sub(1);
        let bytes = self.lengths.0.sample(&mut self.lengths.1);
        Some(ScheduledPacket { time_ns: nanoseconds(self.time_ns), flow, bytes })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::traffic::{gaps::Gaps, sizes::PacketSizes};

    /// Returns the schedule of some flows.
    fn schedule(appearances: Vec<Appearance>, seed: u64) -> Schedule {
        let gaps = Gaps::Poisson.sampler(1_000_000).unwrap();
        let lengths = PacketSizes::Imix.sampler().unwrap();
        Schedule::new(appearances, gaps, lengths, Seed::new(seed))
    }

    fn place_flows(sizes: &[u32], active: Option<u32>) -> Vec<Appearance> {
        let packets = sizes.iter().map(|size| u64::from(*size)).sum();
        let (course, mut stream) =
            (TrafficLength::of(packets, active), Seed::new(1).stream("place"));
        (0..).zip(sizes).map(|(flow, size)| course.place(flow, *size, 0, &mut stream)).collect()
    }

    proptest! {
        #[test]
        fn every_flow_has_all_packets_in_time_order(
            sizes in prop::collection::vec(0_u32..50, 1..40), active in prop::option::of(1_u32..10),
        ) {
            let packets: Vec<ScheduledPacket> = schedule(place_flows(&sizes, active), 1).collect();
            for (flow, size) in (0..).zip(&sizes) {
                let count = packets.iter().filter(|packet| packet.flow == flow).count();
                prop_assert_eq!(count, *size as usize);
            }
            prop_assert!(packets.is_sorted_by_key(|packet| packet.time_ns));
        }

        #[test]
        fn a_heap_order_equals_a_sort(
            sizes in prop::collection::vec(1_u32..20, 1..20), active in prop::option::of(1_u32..10),
        ) {
            // With slots of one tick there is no random choice, so the test can compute the order
            // without a heap.
            let mut appearances = place_flows(&sizes, active);
            for appearance in &mut appearances {
                appearance.from /= TICKS;
                appearance.until = appearance.from + u64::from(appearance.packets);
            }
            let place = |a: &Appearance| {
                let flow = a.flow;
                (a.from..a.until).map(move |tick| (tick, flow)).collect::<Vec<_>>()
            };
            let mut sorted: Vec<(u64, u32)> = appearances.iter().flat_map(place).collect();
            sorted.sort_unstable();
            let order: Vec<u32> = schedule(appearances, 1).map(|packet| packet.flow).collect();
            prop_assert_eq!(order, sorted.into_iter().map(|(_, flow)| flow).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_active_flows_are_held() {
        let sizes = vec![10; 5000];
        let mut schedule = schedule(place_flows(&sizes, Some(100)), 1);
        assert_eq!(schedule.by_ref().count(), 50_000);
        let most = schedule.active_max();
        // The average number of active flows is a hundred, and the maximum is slightly higher.
        assert!((100..=150).contains(&most), "{most} at a time");
    }

    #[test]
    fn the_seed_alone_decides_the_traffic() {
        let packets = |seed| schedule(place_flows(&[5; 50], None), seed).collect::<Vec<_>>();
        assert_eq!(packets(1), packets(1));
        assert_ne!(packets(1), packets(2));
    }
}
