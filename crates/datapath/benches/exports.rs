//! Forwarding time with exports of a bridge (sFlow, IPFIX, NetFlow), compared with no exports.
//!
//! A packet thread forwards a round of flows, one packet each, which all hit a cache. `samples`
//! measures the sampling of sFlow and IPFIX, which have samplers of one kind. `flows` measures
//! NetFlow, which counts every packet. A reader empties the rings between two rounds. Times are CPU
//! time of the thread.

#![expect(clippy::expect_used, reason = "a benchmark that cannot begin ends with the reason")]

mod wired;

use std::{num::NonZeroU32, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shunt_datapath::{
    Command, ThreadConfig,
    netflow::{NETFLOW_FLOWS_MAX, NetflowReceiver, netflow_cache},
    sample::{SampleReceiver, SampleUse, SamplerConfig, packet_sampler},
};

use crate::wired::packet_thread::{BRIDGE, WiredThread};

/// Numbers of flows in a round: few, and more than the exact-match cache holds.
const SIZES: [u16; 2] = [64, 8192];

/// The sampling rates 1 in N: the default of `sampling`, and a much higher rate.
const RATES: [u32; 2] = [400, 16];

/// Number of bytes to copy of a sampled packet.
const HEADER: usize = 128;

/// A packet thread with a cached rule, and the readers of its exports.
struct ExportFixture {
    thread: WiredThread,
    samples: Option<SampleReceiver>,
    flows: Option<NetflowReceiver>,
}

impl ExportFixture {
    fn new() -> Self {
        let mut thread = WiredThread::new(ThreadConfig::default());
        thread.add_rule("udp,actions=output:2");
        Self { thread, samples: None, flows: None }
    }

    /// Samples one packet in `rate`.
    fn with_samples(mut self, rate: u32) -> Self {
        let rate = NonZeroU32::new(rate).expect("a rate");
        let config = SamplerConfig { bridge: BRIDGE, rate, header_length: HEADER, seed: 1 };
        let (sampler, receiver) = packet_sampler(config);
        let sampler = Some(Box::new(sampler));
        self.thread.command(Command::Sample(BRIDGE, SampleUse::Sflow, sampler));
        self.samples = Some(receiver);
        self
    }

    /// Counts all flows for NetFlow.
    fn with_flows(mut self) -> Self {
        let (cache, receiver) = netflow_cache(BRIDGE, NETFLOW_FLOWS_MAX, 1);
        let cache = Some(Box::new(cache));
        self.thread.command(Command::CountFlows(BRIDGE, cache, Box::new(drop)));
        self.flows = Some(receiver);
        self
    }

    /// Returns the CPU time of a round, and then empties the rings.
    fn timed_round(&mut self, flows: u16) -> Duration {
        let time = self.thread.timed_round(flows);
        if let Some(samples) = &mut self.samples {
            while samples.pop().is_some() {}
        }
        if let Some(flows) = &mut self.flows {
            while flows.pop().is_some() {}
        }
        time
    }
}

fn exports(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exports");
    for flows in SIZES {
        group.throughput(Throughput::Elements(u64::from(flows)));
        let samples = RATES.map(|rate| {
            (format!("samples, one in {rate}"), ExportFixture::new().with_samples(rate))
        });
        let others = [
            ("nothing".to_owned(), ExportFixture::new()),
            ("flows".to_owned(), ExportFixture::new().with_flows()),
            (
                "flows, and samples".to_owned(),
                ExportFixture::new().with_flows().with_samples(RATES[0]),
            ),
        ];
        for (name, mut fixture) in others.into_iter().chain(samples) {
            // The first rounds fill the caches.
            for _ in 0..3 {
                fixture.timed_round(flows);
            }
            group.bench_function(BenchmarkId::new(name, flows), |bencher| {
                bencher.iter_custom(|count| (0..count).map(|_| fixture.timed_round(flows)).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, exports);
criterion_main!(benches);
