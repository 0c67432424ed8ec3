//! Replays the fuzzing corpus and earlier findings on the stable toolchain.
//!
//! Each file in `data/fuzz/TARGET` is one input; `cargo xtask fuzz TARGET` starts from these
//! inputs.

use std::path::Path;

use proptest::prelude::*;
use shunt_flow::testing::replay;
use shunt_p4runtime::testing::{fuzz_p4info, fuzz_write};

fn check(target: &str, fuzz: fn(&[u8])) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz");
    replay(&inputs.join(target), fuzz);
}

#[test]
fn every_p4info_is_refused_or_a_schema() {
    check("p4info", fuzz_p4info);
}

#[test]
fn every_write_is_refused_or_has_a_meaning() {
    check("p4_write", fuzz_write);
}

proptest! {
    #[test]
    fn no_bytes_make_a_fuzz_target_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_p4info(&data);
        fuzz_write(&data);
    }
}
