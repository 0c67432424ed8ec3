//! Packets at a constant rate while rules change, and the packets that leave the switch.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use super::{
    probe::{self, Arrival, Exit},
    testbed::Testbed,
};
use crate::wire::{Frame, WireReceiver};

/// Rate and number of flows of the packets that a run sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Packets per second.
    pub(crate) rate: u32,
    /// Number of flows.
    pub(crate) flows: u32,
}

/// The rates of numbered packets and of other packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates<'a> {
    /// Numbered packets, of the flows in turn.
    pub(crate) numbered: Option<Stream>,
    /// Other packets, each of a flow sampled uniformly.
    pub(crate) others: &'a [Stream],
}

/// Minimum sleep of the sender, which sends the due packets as a burst.
const TICK: Duration = Duration::from_micros(50);
/// Sleep of the receivers, during which packets queue.
const RECEIVER_SLEEP: Duration = Duration::from_millis(2);
/// Packets that are overdue by more than this time are skipped,
/// because the sender lacked CPU.
const BACKLOG_MAX: Duration = Duration::from_millis(5);

/// Running traffic.
pub(crate) struct Traffic<'a> {
    /// Start time of the traffic.
    pub(crate) start: Instant,
    /// Number of packets sent: numbered packets and other packets.
    pub(crate) sent: &'a AtomicU64,
    next: &'a AtomicU64,
    arrivals: Receiver<Arrival>,
}

impl Traffic<'_> {
    /// Returns the number of the next packet sent after this call.
    ///
    /// The sender takes a number just before the sender sends the packet. So a packet without a
    /// taken number has not been sent.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Returns the packets that arrived since the last call.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = Arrival> + '_ {
        self.arrivals.try_iter()
    }

    /// Converts a time to a time relative to the start of the traffic.
    pub(crate) fn time(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.start)
    }
}

/// Runs a closure while packets flow through a switch.
pub(crate) fn under_traffic<T>(
    testbed: &Testbed,
    rates: Rates<'_>,
    work: impl FnOnce(&Traffic<'_>) -> T,
) -> T {
    let (next, sent, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (arrived, arrivals) = channel();
    let start = Instant::now();
    let exits: &[Exit] = if rates.numbered.is_some() { &[Exit::A, Exit::B] } else { &[] };
    let receivers: Vec<_> = exits.iter().map(|exit| (*exit, testbed.receiver(*exit))).collect();
    scope(|scope| {
        scope.spawn(|| send(testbed, rates, start, &stop, &next, &sent));
        for (exit, receiver) in receivers {
            let (arrived, stop) = (arrived.clone(), &stop);
            scope.spawn(move || receive(&receiver, exit, &arrived, stop));
        }
        // The threads also end if the closure panics.
        let _stop = StopAtEnd(&stop);
        work(&Traffic { start, next: &next, sent: &sent, arrivals })
    })
}

/// A stop flag, which is set on drop.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn send(
    testbed: &Testbed,
    rates: Rates<'_>,
    start: Instant,
    stop: &AtomicBool,
    next: &AtomicU64,
    sent: &AtomicU64,
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
            frames.extend((0..due.take(now)).map(|_| probe::plain_packet(random.below(*flows))));
        }
        if let Some((due, flows)) = &mut numbered {
            for _ in 0..due.take(now) {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let flow = u32::try_from(number % u64::from(*flows)).unwrap_or_default();
                frames.push(probe::numbered_packet(flow, number, start.elapsed()));
            }
        }
        testbed.sender.send(&frames);
        sent.fetch_add(frames.len() as u64, Ordering::Relaxed);
        sleep(TICK);
    }
}

fn receive(receiver: &WireReceiver, exit: Exit, arrived: &Sender<Arrival>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        while let Some(frame) = receiver.receive() {
            if let Some(arrival) = probe::read(&frame, exit) {
                let _ = arrived.send(arrival);
            }
        }
        sleep(RECEIVER_SLEEP);
    }
}

/// Computes how many packets of a constant rate are due.
pub(crate) struct Due {
    /// The time between two packets.
    every: Duration,
    until: Duration,
}

impl Due {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { every: Duration::from_secs(1) / per_second, until: Duration::ZERO }
    }

    pub(crate) fn take(&mut self, now: Duration) -> u32 {
        self.until = self.until.max(now.saturating_sub(BACKLOG_MAX));
        let mut due = 0;
        while self.until + self.every <= now {
            self.until += self.every;
            due += 1;
        }
        due
    }
}

/// Pseudo-random numbers with a fixed seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `end`.
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
    fn a_constant_rate_skips_a_long_backlog() {
        let mut due = Due::new(10_000);
        let sum: u32 = (1..=1000).map(|tick| due.take(Duration::from_micros(130 * tick))).sum();
        assert!((1299..=1300).contains(&sum), "{sum}");
        assert_eq!(due.take(Duration::from_secs(10)), 50);
        assert_eq!(due.take(Duration::from_secs(10)), 0);
    }

    #[test]
    fn random_numbers_cover_their_range() {
        let mut random = Random(7);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[random.below(10) as usize] = true);
        assert!(seen.iter().all(|was| *was));
    }
}
