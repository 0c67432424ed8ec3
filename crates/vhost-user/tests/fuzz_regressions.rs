//! Replays the seeds and past findings of the fuzz targets, and random bytes.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, reason = "a seed that cannot be read fails the test")]

use std::{fs, path::Path};

use proptest::prelude::*;
use shunt_vhost_user::testing::{fuzz_messages, fuzz_ring};

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz").join(target);
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        check(&fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "{target} has seeds");
}

#[test]
fn fuzz_regressions() {
    replay("vhost_messages", fuzz_messages);
    replay("vhost_ring", fuzz_ring);
}

/// Generates a message with the length that its request needs.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0_u64..4, 0_u64..0x2_0000, any::<u64>()];
    let payload = prop::collection::vec(number, 0..6);
    (1_u8..40, payload).prop_map(|(request, numbers)| {
        let payload: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        let length = u8::try_from(payload.len()).unwrap();
        [vec![request, length], payload].concat()
    })
}

proptest! {
    #[test]
    fn any_messages_are_obeyed_or_refused(messages in prop::collection::vec(message(), 0..30)) {
        fuzz_messages(&messages.concat());
    }

    #[test]
    fn any_memory_is_used_or_refused(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_ring(&data);
    }
}
