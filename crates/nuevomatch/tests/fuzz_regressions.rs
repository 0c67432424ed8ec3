//! Replays seeds and findings of fuzzing on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input. `cargo xtask fuzz TARGET` starts from these
//! inputs.

#![cfg(feature = "testing")]

use std::path::Path;

use shunt_flow::testing::replay;
use shunt_nuevomatch::testing::fuzz_classbench;

#[test]
fn every_rule_set_is_refused_or_classified() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join("classbench"), fuzz_classbench);
}
