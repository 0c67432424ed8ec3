//! Runs seeds and past findings of the fuzz target, and random octets.
#![cfg(feature = "testing")]

use std::{fs, path::Path};

use proptest::prelude::*;
use shunt_lacp::testing::fuzz_lacp;

/// The saved inputs of the fuzz target cause no panic.
#[test]
fn fuzz_regressions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz/lacp");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        fuzz_lacp(&fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "the target has seeds");
}

proptest! {
    #[test]
    fn arbitrary_octets_break_no_invariant(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz_lacp(&data);
    }
}
