//! Packets that keep coming at a steady rate while rules change, and what is seen of them behind.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use super::{
    bed::Bed,
    probe::{self, Arrival, Way},
};
use crate::wire::{Frame, WireReceiver};

/// Packets of the first flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// So many a second.
    pub(crate) rate: u32,
    /// Of so many flows.
    pub(crate) flows: u32,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates<'a> {
    /// Packets with numbers, of their flows in turn.
    pub(crate) numbered: Option<Stream>,
    /// Other packets, each drawn uniformly from its flows.
    pub(crate) others: &'a [Stream],
}

/// How long the sender sleeps at least: packets go in bursts of what is due then.
const TICK: Duration = Duration::from_micros(50);
/// How long receivers sleep: packets wait for them meanwhile.
const LOOK: Duration = Duration::from_millis(2);
/// What the sender did not come to in this time, as others had the CPU, is not made up for.
const BEHIND: Duration = Duration::from_millis(5);

/// Traffic that is under way.
pub(crate) struct Traffic<'a> {
    /// When it began.
    pub(crate) start: Instant,
    /// Packets sent, with numbers or without.
    pub(crate) sent: &'a AtomicU64,
    next: &'a AtomicU64,
    arrivals: Receiver<Arrival>,
}

impl Traffic<'_> {
    /// The number that the next packet will get: that one and all after it are sent after this call.
    ///
    /// The sender takes a number just before it sends the packet, so a packet whose number is not
    /// taken yet is not sent yet.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// What has come out since the last look.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = Arrival> + '_ {
        self.arrivals.try_iter()
    }

    /// When a moment was, since the traffic began.
    pub(crate) fn time(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.start)
    }
}

/// Does something while packets flow through a switch.
pub(crate) fn under_traffic<T>(
    bed: &Bed,
    rates: Rates<'_>,
    work: impl FnOnce(&Traffic<'_>) -> T,
) -> T {
    let (next, sent, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (arrived, arrivals) = channel();
    let start = Instant::now();
    let ways: &[Way] = if rates.numbered.is_some() { &[Way::A, Way::B] } else { &[] };
    let receivers: Vec<_> = ways.iter().map(|way| (*way, bed.receiver(*way))).collect();
    scope(|scope| {
        scope.spawn(|| send(bed, rates, (start, &stop), (&next, &sent)));
        for (way, receiver) in receivers {
            let (arrived, stop) = (arrived.clone(), &stop);
            scope.spawn(move || receive(&receiver, way, &arrived, stop));
        }
        // The threads end also if the work panics.
        let _stop = StopAtEnd(&stop);
        work(&Traffic { start, next: &next, sent: &sent, arrivals })
    })
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn send(
    bed: &Bed,
    rates: Rates<'_>,
    (start, stop): (Instant, &AtomicBool),
    (next, sent): (&AtomicU64, &AtomicU64),
) {
    let mut numbered = rates.numbered.map(|stream| (Due::new(stream.rate), stream.flows));
    let others = rates.others.iter().map(|stream| (Due::new(stream.rate), stream.flows));
    let mut others: Vec<(Due, u32)> = others.collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut frames: Vec<Frame> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        frames.clear();
        let now = start.elapsed();
        for (due, flows) in &mut others {
            frames.extend((0..due.take(now)).map(|_| probe::plain(random.below(*flows))));
        }
        if let Some((due, flows)) = &mut numbered {
            for _ in 0..due.take(now) {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let flow = u32::try_from(number % u64::from(*flows)).unwrap_or_default();
                frames.push(probe::numbered(flow, number, start.elapsed()));
            }
        }
        bed.sender.send(&frames);
        sent.fetch_add(frames.len() as u64, Ordering::Relaxed);
        sleep(TICK);
    }
}

fn receive(receiver: &WireReceiver, way: Way, arrived: &Sender<Arrival>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        while let Some(frame) = receiver.receive() {
            if let Some(arrival) = probe::read(&frame, way) {
                let _ = arrived.send(arrival);
            }
        }
        sleep(LOOK);
    }
}

/// How many packets of a steady rate are due.
struct Due {
    every: Duration,
    until: Duration,
}

impl Due {
    fn new(per_second: u32) -> Self {
        Self { every: Duration::from_secs(1) / per_second, until: Duration::ZERO }
    }

    fn take(&mut self, now: Duration) -> u32 {
        self.until = self.until.max(now.saturating_sub(BEHIND));
        let mut due = 0;
        while self.until + self.every <= now {
            self.until += self.every;
            due += 1;
        }
        due
    }
}

/// Numbers that look random, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below another.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        u32::try_from((high * u64::from(end)) >> 32).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_kept_and_what_was_missed_for_long_is_not_made_up_for() {
        let mut due = Due::new(10_000);
        let sum: u32 = (1..=1000).map(|tick| due.take(Duration::from_micros(130 * tick))).sum();
        assert!((1299..=1300).contains(&sum), "{sum}");
        assert_eq!(due.take(Duration::from_secs(10)), 50);
        assert_eq!(due.take(Duration::from_secs(10)), 0);
    }

    #[test]
    fn random_numbers_are_below_their_end_and_reach_all_of_it() {
        let mut random = Random(7);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[random.below(10) as usize] = true);
        assert!(seen.iter().all(|was| *was));
    }
}
