//! Replay of the fuzzing corpus and of past crashes on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from them.

#![cfg(feature = "testing")]

use std::path::Path;

use shunt_datapath::testing::{fuzz_offload, fuzz_pcap};
use shunt_flow::testing::replay;

fn check(target: &str, fuzz: fn(&[u8])) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join(target), fuzz);
}

#[test]
fn every_capture_is_refused_or_read() {
    check("pcap", fuzz_pcap);
}

#[test]
fn every_offload_is_refused_or_completed() {
    check("offload", fuzz_offload);
}
