//! Cost of generating workloads: ClassBench rule sets, filled pipelines, flows.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up panics with the reason")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shunt_pipebench::{
    Progress, Seed,
    classbench::{BuiltinSet, FilterRequest, generate},
    pipeline_file::{Builtin, PipelineFile},
    populate::{RuleForm, TraversalSelection, populate},
    workload::Workload,
};

fn rule_sets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rule-set");
    group.sample_size(10);
    for set in BuiltinSet::ALL {
        for rules in [1_000, 100_000] {
            let parameters = set.parameters();
            group.throughput(Throughput::Elements(rules.into()));
            group.bench_function(BenchmarkId::new(set.name(), rules), |bencher| {
                bencher.iter(|| {
                    let (request, seed) = (FilterRequest::new(rules), Seed::new(1));
                    black_box(generate(&parameters, &request, seed, &Progress::hidden()).unwrap())
                });
            });
        }
    }
    group.finish();
}

fn filled_pipelines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filled pipeline");
    group.sample_size(10);
    let parameters = BuiltinSet::OpenFlow.parameters();
    let request = FilterRequest::new(1_000);
    let filters = generate(&parameters, &request, Seed::new(1), &Progress::hidden()).unwrap();
    for name in ["psc", "ant"] {
        let pipeline = PipelineFile::parse(Builtin::find(name).unwrap().json).unwrap();
        group.throughput(Throughput::Elements(filters.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                populate(
                    &pipeline,
                    black_box(&filters),
                    TraversalSelection::Forwarding,
                    RuleForm::Plain,
                    Seed::new(1),
                    &Progress::hidden(),
                )
                .unwrap()
            });
        });
    }
    group.finish();
}

/// Measures generating flows with their rules, and packets without frames.
fn workloads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("workload");
    group.sample_size(10);
    let name = "psc:high:10k:packets=300k:rules=1k".parse().unwrap();
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("10,000 flows", |bencher| {
        bencher.iter(|| Workload::of(black_box(&name), &Progress::hidden()).unwrap());
    });
    let workload = Workload::of(&name, &Progress::hidden()).unwrap();
    group.throughput(Throughput::Elements(300_000));
    group.bench_function("300,000 packets", |bencher| {
        bencher.iter(|| workload.packets().map(|packet| packet.time_ns).max());
    });
    group.finish();
}

criterion_group!(benches, rule_sets, filled_pipelines, workloads);
criterion_main!(benches);
