//! The hot functions: extraction, a hit in each cache, translation through one to sixteen tables.
//!
//! Extraction is the reference in the same run: ratios are comparable between machines, nanoseconds
//! are not. All data fits the CPU caches. The benchmark of the classifier measures lookups in
//! tables of every size.

use criterion::{Criterion, criterion_group, criterion_main};
use shunt_kernels::KERNELS;

fn all(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kernels");
    for kernel in KERNELS {
        let mut call = (kernel.make)();
        group.bench_function(kernel.name, |bencher| bencher.iter(&mut call));
    }
    group.finish();
}

criterion_group!(benches, all);
criterion_main!(benches);
