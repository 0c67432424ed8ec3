//! Replays fuzzing seeds and findings on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from these
//! inputs.

#![cfg(feature = "testing")]

use std::path::Path;

use shunt_flow::testing::replay;
use shunt_pipebench::testing::{
    fuzz_capture, fuzz_coflow_trace, fuzz_dump, fuzz_filters, fuzz_name, fuzz_parameters,
    fuzz_pipeline,
};

fn check(target: &str, fuzz: fn(&[u8])) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join(target), fuzz);
}

#[test]
fn every_filter_file_is_refused_or_survives() {
    check("filters", fuzz_filters);
}

#[test]
fn parameter_files_are_refused_or_used() {
    check("parameters", fuzz_parameters);
}

#[test]
fn every_pipeline_is_refused_or_can_be_filled() {
    check("pipeline", fuzz_pipeline);
}

#[test]
fn every_dump_is_refused_or_has_tables() {
    check("dump", fuzz_dump);
}

#[test]
fn every_capture_is_refused_or_read() {
    check("workload_capture", fuzz_capture);
}

#[test]
fn every_coflow_trace_is_refused_or_read() {
    check("coflow_trace", fuzz_coflow_trace);
}

#[test]
fn every_name_is_refused_or_reads_back() {
    check("workload_name", fuzz_name);
}
