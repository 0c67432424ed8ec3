//! Forwarding time after a change that makes every entry stale, with and without repair.
//!
//! A packet thread forwards a round of flows, one packet each. `before` is a round with all flows
//! cached. `off` and `on` are the first round after the replacement of a rule that every flow
//! depends on. Both times include the iteration that takes the invalidation, and the time that
//! packets wait. The translations of `few` flows fit into one iteration, those of `many` flows do
//! not. Times are CPU time of the thread.

#![expect(clippy::expect_used, reason = "a benchmark that cannot begin ends with the reason")]

mod wired;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shunt_datapath::{Repair, ThreadConfig};

use crate::wired::packet_thread::WiredThread;

/// Numbers of flows in a round.
const SIZES: [(&str, u16); 2] = [("few", 16), ("many", 2048)];

/// A packet thread with cache entries of some flows.
struct RepairFixture {
    thread: WiredThread,
    flows: u16,
    changes: u32,
}

impl RepairFixture {
    fn new(flows: u16, repair: Repair) -> Self {
        let config =
            ThreadConfig { repair, translations_per_iteration: 64, ..ThreadConfig::default() };
        let mut fixture = Self { thread: WiredThread::new(config), flows, changes: 0 };
        fixture.change();
        fixture.thread.round(flows);
        // The second round reports the entries of the first, and counts their hits.
        fixture.thread.round(flows);
        fixture
    }

    /// Replaces the rule that every flow depends on.
    fn change(&mut self) {
        self.changes += 1;
        self.thread.add_rule(&format!(
            "udp,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],load:{}->NXM_NX_REG1[],output:2",
            self.changes
        ));
    }
}

fn repair(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("after a change");
    for (size, flows) in SIZES {
        group.throughput(Throughput::Elements(u64::from(flows)));
        let ways = [("off", Repair::Off, true), ("on", Repair::On, true)];
        for (name, repair, changes) in ways.into_iter().chain([("before", Repair::Off, false)]) {
            let mut fixture = RepairFixture::new(flows, repair);
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter_custom(|count| {
                    let mut sum = Duration::ZERO;
                    for _ in 0..count {
                        if changes {
                            fixture.change();
                        }
                        sum += fixture.thread.timed_round(fixture.flows);
                    }
                    sum
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, repair);
criterion_main!(benches);
