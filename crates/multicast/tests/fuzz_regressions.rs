//! Runs seeds and past findings of the fuzz target, and random octets.
#![cfg(feature = "testing")]

use std::{fs, path::Path};

use proptest::prelude::*;
use shunt_multicast::testing::fuzz_multicast;

/// The saved inputs of the fuzz target cause no panic.
#[test]
fn fuzz_regressions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz/multicast");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        fuzz_multicast(&fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "the target has seeds");
}

/// Generates messages of few different values, so that records follow each other.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let kind =
        prop::sample::select(vec![0x11, 0x12, 0x16, 0x17, 0x22, 0x22, 130, 131, 132, 143, 143, 1]);
    let octet = prop_oneof![4 => 0..7_u8, 2 => Just(0xff), 2 => Just(239), 1 => any::<u8>()];
    let head = (0..4_u8, kind).prop_map(|(choice, kind)| vec![choice, kind, 0, 0, 0, 0, 0, 0]);
    (head, 0..5_u8, prop::collection::vec(octet, 0..120))
        .prop_map(|(head, count, rest)| [head, vec![count], rest].concat())
}

proptest! {
    #[test]
    fn arbitrary_octets_break_no_invariant(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_multicast(&data);
    }

    #[test]
    fn messages_have_the_meaning_of_a_plain_decoder(data in message()) {
        fuzz_multicast(&data);
    }
}
