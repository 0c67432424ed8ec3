//! Replays the seeds and past findings of the fuzz targets, and random bytes.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, reason = "a seed that cannot be read fails the test")]

use std::{fs, path::Path};

use proptest::prelude::*;
use shunt_memif::testing::{fuzz_messages, fuzz_ring};

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz").join(target);
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        check(&fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "{target} has seeds");
}

/// The saved inputs of the fuzz targets cause no panic.
#[test]
fn fuzz_regressions() {
    replay("memif_messages", fuzz_messages);
    replay("memif_ring", fuzz_ring);
}

/// Generates a fuzz message: its descriptor, its length and its bytes.
///
/// Most fields have small numbers.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => 0_u8..4, 1 => any::<u8>()];
    let fields = prop::collection::vec(byte, 0..60);
    (0_u8..5, 1_u8..9, fields).prop_map(|(descriptor, kind, fields)| {
        let length = u8::try_from(fields.len() + 2).unwrap();
        [vec![descriptor, length, kind, 0], fields].concat()
    })
}

proptest! {
    #[test]
    fn arbitrary_messages_are_handled_or_refused(
        role in 0_u8..2,
        messages in prop::collection::vec(message(), 0..30),
    ) {
        fuzz_messages(&[vec![role], messages.concat()].concat());
    }

    #[test]
    fn arbitrary_memory_contents_are_handled_or_refused(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_ring(&data);
    }
}
