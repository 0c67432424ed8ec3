//! The seeds and findings of fuzzing, replayed on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from these
//! inputs.

#![cfg(feature = "testing")]

use std::path::Path;

use shunt_flow::testing::{
    fuzz_match_text, fuzz_oxm,
    packet::{fuzz_extract, fuzz_rewrite},
    replay,
};

fn check(target: &str, fuzz: fn(&[u8])) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join(target), fuzz);
}

#[test]
fn extraction_survives_every_frame() {
    check("extract", fuzz_extract);
}

#[test]
fn rewriting_survives_every_frame() {
    check("rewrite", fuzz_rewrite);
}

#[test]
fn every_oxm_entry_is_refused_or_round_trips() {
    check("oxm", fuzz_oxm);
}

#[test]
fn every_match_text_is_refused_or_survives() {
    check("match_text", fuzz_match_text);
}
