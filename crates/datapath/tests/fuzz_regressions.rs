//! Replays the fuzzing corpus and past crashes on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from these
//! inputs.

use std::path::Path;

use shunt_flow::testing::replay;
use shunt_testkit::fuzz::{fuzz_offload, fuzz_pcap};

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
