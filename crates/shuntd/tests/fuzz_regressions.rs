//! The fuzz corpus and inputs of earlier findings, replayed with the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from these files.

#![cfg(feature = "testing")]

use std::path::Path;

use shunt_flow::testing::replay;
use shuntd::testing::{fuzz_config, fuzz_host_statistics, fuzz_rpc};

fn check(target: &str, fuzz: fn(&[u8])) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join(target), fuzz);
}

#[test]
fn every_configuration_is_refused_or_survives() {
    check("config", fuzz_config);
}

#[test]
fn requests_are_answered_however_they_arrive() {
    check("rpc", fuzz_rpc);
}

#[test]
fn any_file_of_proc_gives_valid_statistics() {
    check("host_statistics", fuzz_host_statistics);
}
