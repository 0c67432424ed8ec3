//! Inputs of the fuzz targets: seeds and past findings, replayed on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from these files.

#![cfg(feature = "testing")]

use std::path::Path;

use shunt_flow::testing::replay;
use shunt_pipeline::text::testing::fuzz_rule_text;

fn check(target: &str, fuzz: fn(&[u8])) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join(target), fuzz);
}

#[test]
fn every_rule_text_is_refused_or_survives() {
    check("rule_text", fuzz_rule_text);
}
