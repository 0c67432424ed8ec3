//! Replays the seeds and past findings of the fuzz targets.

use std::path::Path;

use shunt_ovsdb::testing::{fuzz_log, fuzz_messages, fuzz_replies};

/// The function of a fuzz target.
type Target = fn(&[u8]);

/// The saved inputs of the fuzz targets cause no panic.
#[test]
fn fuzz_regressions() {
    let targets: [(&str, Target); 3] = [
        ("ovsdb_messages", fuzz_messages),
        ("ovsdb_replies", fuzz_replies),
        ("ovsdb_log", fuzz_log),
    ];
    for (target, check) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz").join(target);
        let mut inputs = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            check(&std::fs::read(entry.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{target} has no input");
    }
}
