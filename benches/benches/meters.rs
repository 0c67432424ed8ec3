//! One meter shared by several packet threads: one atomic word, compared with slices per thread.
//!
//! A slice is a number of tokens that a thread takes from the meter at once and then spends alone.
//! The bench does not even count the slice down, so the bench shows the best case for slices. The
//! reference in the same run is the extraction of the headers, which a thread does for each packet.

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use shunt_benches::capture;
use shunt_flow::{
    FlowKey,
    extract::{VlanLimit, extract},
};
use shunt_pipeline::{
    BridgeId, Meter, MeterBand, MeterBandKind, MeterConfig, MeterId, MeterUnit, MeterVerdict, Time,
};

/// Bytes of each packet.
///
/// A thread takes tokens for several packets of this length at once.
const LENGTH: usize = 1500;
/// Packets for which a thread takes tokens at once.
const SLICE: usize = 32;

/// Returns a meter with a rate of 100 Gbit/s.
fn meter() -> Meter {
    let band = MeterBand { kind: MeterBandKind::Drop, rate: 100_000_000, burst_size: 0 };
    let unit = MeterUnit::Kilobits;
    let config = MeterConfig { unit, burst: false, stats: true, bands: [band].into() };
    Meter::new(MeterId::new(1), BridgeId::new(1), config, Time::ZERO)
}

/// Returns the time per packet if `threads` threads run `each` at the same time.
///
/// `each` gets the time and the rest of the thread's slice.
#[expect(clippy::disallowed_methods, reason = "threads that run together are timed from inside")]
fn together(
    threads: usize,
    packets: u64,
    pass: impl Fn(Time, &mut usize) -> bool + Sync,
) -> Duration {
    let barrier = Barrier::new(threads);
    let run = || {
        let mut left = 0;
        barrier.wait();
        let begin = Instant::now();
        for packet in 0..packets {
            black_box(pass(Time::from_nanoseconds(100 * packet), &mut left));
        }
        begin.elapsed()
    };
    thread::scope(|scope| {
        let spawned = (0..threads).map(|_| scope.spawn(run));
        let spawned: Vec<_> = spawned.collect();
        let took = spawned.into_iter().filter_map(|thread| thread.join().ok());
        took.max().unwrap_or_default()
    })
}

fn parse(frame: &[u8]) {
    let mut key = FlowKey::ZERO;
    extract(black_box(frame), VlanLimit::One, &mut key);
    black_box(key);
}

fn meters(criterion: &mut Criterion) {
    let frame = capture::frame(0x0005_0207);
    let mut group = criterion.benchmark_group("meter");
    for threads in [1, 2] {
        group.bench_function(format!("extract alone, {threads} threads"), |bencher| {
            bencher.iter_custom(|packets| {
                together(threads, packets, |_, _| {
                    parse(&frame);
                    true
                })
            });
        });
        for with_extract in [false, true] {
            let what = if with_extract { "extract and " } else { "" };
            group.bench_function(format!("{what}one word, {threads} threads"), |bencher| {
                let meter = meter();
                bencher.iter_custom(|packets| {
                    together(threads, packets, |now, _| {
                        if with_extract {
                            parse(&frame);
                        }
                        meter.admit(now, LENGTH) == MeterVerdict::Pass
                    })
                });
            });
            group.bench_function(format!("{what}slices, {threads} threads"), |bencher| {
                let meter = meter();
                bencher.iter_custom(|packets| {
                    together(threads, packets, |now, left| {
                        if with_extract {
                            parse(&frame);
                        }
                        if *left == 0 && meter.admit(now, SLICE * LENGTH) == MeterVerdict::Pass {
                            *left = SLICE;
                        }
                        *left = left.saturating_sub(1);
                        *left > 0
                    })
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, meters);
criterion_main!(benches);
