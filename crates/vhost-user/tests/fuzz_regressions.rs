//! Replays the seeds and past findings of the fuzz targets, and random bytes.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, reason = "a seed that cannot be read fails the test")]

use std::{fs, path::Path};

use proptest::prelude::*;
use shunt_vhost_user::testing::{fuzz_messages, fuzz_packed_ring, fuzz_ring};

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
    replay("vhost_messages", fuzz_messages);
    replay("vhost_ring", fuzz_ring);
    replay("vhost_packed_ring", fuzz_packed_ring);
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
    fn arbitrary_messages_are_handled_or_refused(messages in prop::collection::vec(message(), 0..30)) {
        fuzz_messages(&messages.concat());
    }

    #[test]
    fn arbitrary_memory_contents_are_handled_or_refused(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_ring(&data);
        fuzz_packed_ring(&data);
    }

    /// The changes hit flags of descriptors, and events.
    #[test]
    fn any_descriptors_are_used_or_refused(
        changes in prop::collection::vec((0_u8..4, 0_u8..10, any::<u8>(), any::<u8>()), 0..60),
    ) {
        let changes = changes.into_iter().flat_map(|(control, place, low, high)| {
            let offset = match place {
                slot @ 0..8 => 16 * u16::from(slot) + 14,
                area => 0x2000 + 0x1000 * u16::from(area % 2) + 2,
            };
            let [first, second] = offset.to_le_bytes();
            // Half of the flags have no other bits than those of the standard.
            let low = if control & 2 == 0 { low & 0x87 } else { low };
            [control, first, second, 2, low, high & 0x80]
        });
        fuzz_packed_ring(&changes.collect::<Vec<u8>>());
    }
}
