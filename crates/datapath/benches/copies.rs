//! The cost of the second copy of a frame between two ports of shared memory.
//!
//! A burst moves from 8 MiB of one peer to 8 MiB of another, as between two `vhost_user` or two
//! `memif` ports. `two` copies each frame into a buffer of the pool and out again, as the ports do.
//! `one` copies only the headers into the buffer, and the rest from peer to peer.

#![expect(clippy::expect_used, reason = "a benchmark that cannot begin ends with the reason")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shunt_datapath::{BURST, Packet, Pool};
use shunt_pipeline::DatapathPort;

/// Lengths of the frames in bytes.
const LENGTHS: [usize; 3] = [64, 512, 1500];

/// Bytes that the switch reads or changes, at most, of nearly all frames.
const HEADERS: usize = 128;

/// Number of frames in the memory of a peer.
const FRAMES: usize = 4096;

/// Bytes of memory for each frame.
const SLOT: usize = 2048;

/// The memory of both peers, and the next burst in it.
struct PeerMemory {
    source: Vec<u8>,
    target: Vec<u8>,
    next: usize,
    pool: Pool,
    burst: Vec<Packet>,
}

impl PeerMemory {
    fn new() -> Self {
        let (source, target) = (vec![1; FRAMES * SLOT], vec![0; FRAMES * SLOT]);
        Self { source, target, next: 0, pool: Pool::new(), burst: Vec::new() }
    }

    /// Moves a burst; the first `copied` bytes pass through buffers of the switch.
    fn move_burst(&mut self, length: usize, copied: usize) {
        let slots = self.next..self.next + BURST;
        self.next = (self.next + BURST) % FRAMES;
        let through = copied.min(length);
        for slot in slots.clone() {
            let mut packet = self.pool.take(length, DatapathPort::default()).expect("a buffer");
            let from = &self.source[slot * SLOT..][..through];
            packet.frame_mut()[..through].copy_from_slice(from);
            self.burst.push(packet);
        }
        black_box(&mut self.burst);
        for (slot, packet) in slots.zip(self.burst.drain(..)) {
            let (head, rest) = self.target[slot * SLOT..][..length].split_at_mut(through);
            head.copy_from_slice(&packet.frame()[..through]);
            rest.copy_from_slice(&self.source[slot * SLOT + through..][..length - through]);
            self.pool.put_back(packet);
        }
        black_box(&mut self.target);
    }
}

fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copies");
    group.throughput(Throughput::Elements(BURST as u64));
    for length in LENGTHS {
        for (name, copied) in [("two", usize::MAX), ("one", HEADERS)] {
            let mut memory = PeerMemory::new();
            group.bench_function(BenchmarkId::new(name, length), |bencher| {
                bencher.iter(|| memory.move_burst(length, copied));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, copies);
criterion_main!(benches);
