//! Cost of a change of one rule for the engines with a region index.

#![expect(clippy::expect_used, reason = "a benchmark that cannot begin ends with the reason")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod new_mask;
#[cfg(feature = "dbsp")]
mod one_rule;

use criterion::{Criterion, criterion_group, criterion_main};

/// Returns whether the benchmarks run once only, as a test.
fn is_trial() -> bool {
    // Only `cargo bench` passes the argument `--bench`.
    !std::env::args().any(|argument| argument == "--bench")
}

/// Measures one rule, if the feature `dbsp` is on, and a rule of a new mask.
fn changes(criterion: &mut Criterion) {
    #[cfg(feature = "dbsp")]
    one_rule::one_rule(criterion);
    new_mask::new_mask(criterion);
}

criterion_group!(benches, changes);
criterion_main!(benches);
