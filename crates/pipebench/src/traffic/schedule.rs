//! The packets of a workload, one after the other.
//!
//! Two clocks make a schedule. The *order* of packets comes from their flows: a flow appears
//! somewhere in the course of the traffic, and its packets follow each other at about even
//! distances, each at a random place of its own slot. That course is measured in [`TICKS`]: as many
//! to a packet as make places fine. The *times* come from the gaps between packets, which are drawn
//! one by one for all flows together, so that their mean and deviation are those asked for.
//!
//! If n flows are under way at a time, their packets are n packets apart: [`Course::active`] sets
//! that, and with it how much of the traffic a cache of a given size has to know at once.
//!
//! What is held is one entry for each flow and one more for each that is under way, never a packet.

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
pub struct Packet {
    /// When it comes, from the beginning of the traffic.
    pub time_ns: u64,
    /// The index of its flow.
    pub flow: u32,
    /// Its bytes on the wire, with the check sequence.
    pub bytes: u16,
}

impl Packet {
    /// Replaces the content of `frame` by the frame of this packet, which is one of these flows'.
    ///
    /// # Errors
    ///
    /// When no frame can be made of its flow.
    pub fn write_frame(&self, flows: &[Flow], frame: &mut Vec<u8>) -> Result<(), FrameError> {
        let flow = usize::try_from(self.flow).ok().and_then(|index| flows.get(index));
        let key = flow.map(Flow::key).unwrap_or_default();
        write_frame(&key, usize::from(self.bytes).saturating_sub(CHECK_SEQUENCE), frame)
    }
}

/// Ticks of the course of the traffic for each of its packets.
pub const TICKS: u64 = 1 << 20;

/// Where in the course of the traffic a flow has its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// The index of the flow.
    pub flow: u32,
    /// How many packets it has.
    pub packets: u32,
    /// The first tick at which it may have one.
    pub from: u64,
    /// The tick at which it has had all of them.
    pub until: u64,
}

/// How the flows of a workload lie in its course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// All ticks: [`TICKS`] for each packet.
    pub ticks: u64,
    /// How many flows are under way at a time, on the average; `None`: each flow has its packets all
    /// over the course.
    pub active: Option<u32>,
}

impl Course {
    /// The course of so many packets.
    #[must_use]
    pub const fn of(packets: u64, active: Option<u32>) -> Self {
        Self { ticks: packets.saturating_mul(TICKS), active }
    }

    /// Places a flow somewhere behind tick `from`.
    #[must_use]
    pub fn place(
        &self,
        (flow, packets): (u32, u32),
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
    /// Ticks from one packet to the next.
    fn slot(&self) -> u64 {
        self.until.saturating_sub(self.from) / u64::from(self.packets.max(1))
    }
}

/// The packets of a workload in the order of their times; an iterator.
#[derive(Debug)]
pub struct Schedule {
    /// Flows that have not begun, by their first tick.
    waiting: Peekable<IntoIter<Appearance>>,
    /// Flows that have, by the tick of their next packet.
    active: BinaryHeap<Reverse<Active>>,
    places: RandomStream,
    gaps: (GapSampler, RandomStream),
    lengths: (LengthSampler, RandomStream),
    time_ns: f64,
    is_first: bool,
    left: u64,
    active_max: usize,
}

/// A flow under way; ordered by its next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Active {
    tick: u64,
    flow: u32,
    left: u32,
    /// Where the slot of the packet after the next begins.
    from: u64,
    slot: u64,
}

impl Schedule {
    /// The packets of these flows; the seed says which of all possible schedules it is.
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
            places: seed.stream("places"),
            gaps: (gaps, seed.stream(STREAM)),
            lengths: (lengths, seed.stream("lengths")),
            time_ns: 0.0,
            is_first: true,
            left,
            active_max: 0,
        }
    }

    /// How many packets are still to come.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// The most flows that were under way at a time so far.
    #[must_use]
    pub const fn active_max(&self) -> usize {
        self.active_max
    }

    /// Begins the flows that may have a packet before any that is under way.
    fn begin(&mut self) {
        loop {
            let next = self.active.peek().map_or(u64::MAX, |Reverse(active)| active.tick);
            let Some(begun) = self.waiting.next_if(|appearance| appearance.from <= next) else {
                break;
            };
            let slot = begun.slot();
            let tick = begun.from.saturating_add(self.places.below(slot));
            let from = begun.from.saturating_add(slot);
            let left = begun.packets;
            self.active.push(Reverse(Active { tick, flow: begun.flow, left, from, slot }));
        }
        self.active_max = self.active_max.max(self.active.len());
    }
}

impl Iterator for Schedule {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        self.begin();
        let mut top = self.active.peek_mut()?;
        let Reverse(active) = &mut *top;
        let flow = active.flow;
        if active.left > 1 {
            active.left -= 1;
            active.tick = active.from.saturating_add(self.places.below(active.slot));
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
        Some(Packet { time_ns: nanoseconds(self.time_ns), flow, bytes })
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

    fn schedule(appearances: Vec<Appearance>, seed: u64) -> Schedule {
        let gaps = Gaps::Poisson.sampler(1_000_000).unwrap();
        let lengths = PacketSizes::Imix.sampler().unwrap();
        Schedule::new(appearances, gaps, lengths, Seed::new(seed))
    }

    fn placed(sizes: &[u32], active: Option<u32>) -> Vec<Appearance> {
        let packets = sizes.iter().map(|size| u64::from(*size)).sum();
        let (course, mut stream) = (Course::of(packets, active), Seed::new(1).stream("place"));
        (0..).zip(sizes).map(|(flow, size)| course.place((flow, *size), 0, &mut stream)).collect()
    }

    proptest! {
        #[test]
        fn every_flow_has_its_packets_and_time_never_goes_back(
            sizes in prop::collection::vec(0_u32..50, 1..40), active in prop::option::of(1_u32..10),
        ) {
            let packets: Vec<Packet> = schedule(placed(&sizes, active), 1).collect();
            for (flow, size) in (0..).zip(&sizes) {
                let count = packets.iter().filter(|packet| packet.flow == flow).count();
                prop_assert_eq!(count, *size as usize);
            }
            prop_assert!(packets.is_sorted_by_key(|packet| packet.time_ns));
        }

        #[test]
        fn a_heap_gives_the_order_that_sorting_all_places_gives(
            sizes in prop::collection::vec(1_u32..20, 1..20), active in prop::option::of(1_u32..10),
        ) {
            // Slots of one tick leave no choice, so the order can be told without the heap.
            let mut appearances = placed(&sizes, active);
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
    fn flows_that_come_and_go_are_held_only_while_they_are_under_way() {
        let sizes = vec![10; 5000];
        let mut schedule = schedule(placed(&sizes, Some(100)), 1);
        assert_eq!(schedule.by_ref().count(), 50_000);
        let most = schedule.active_max();
        // A hundred on the average, and the most of a whole course is somewhat above that.
        assert!((100..=150).contains(&most), "{most} at a time");
    }

    #[test]
    fn the_seed_alone_decides() {
        let packets = |seed| schedule(placed(&[5; 50], None), seed).collect::<Vec<_>>();
        assert_eq!(packets(1), packets(1));
        assert_ne!(packets(1), packets(2));
    }
}
