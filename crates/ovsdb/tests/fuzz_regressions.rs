//! Seeds and past findings of the fuzz targets.

use std::path::Path;

use shunt_ovsdb::testing::{fuzz_log, fuzz_messages};

#[test]
fn fuzz_regressions() {
    for target in ["ovsdb_messages", "ovsdb_log"] {
        let check = if target == "ovsdb_log" { fuzz_log } else { fuzz_messages };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz").join(target);
        let mut inputs = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            check(&std::fs::read(entry.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{target} has no input");
    }
}
