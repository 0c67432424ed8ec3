//! Replays the fuzzing corpus and earlier findings on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from these
//! inputs.

#![cfg(feature = "testing")]

use std::path::Path;

use shunt_flow::testing::replay;
use shunt_ofproto::testing::fuzz_openflow;

fn check(target: &str, fuzz: fn(&[u8])) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join(target), fuzz);
}

#[test]
fn every_stream_gets_replies_or_ends() {
    check("openflow", fuzz_openflow);
}
