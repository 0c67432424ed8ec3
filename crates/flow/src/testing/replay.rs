//! Replay of the inputs of fuzz targets.

use std::{fs, path::Path};

/// Runs a fuzz function on every file of `folder`.
/// The files are the seeds of fuzzing, and past findings.
///
/// # Panics
///
/// If the function panics, or if there is no input.
#[expect(clippy::print_stdout, reason = "the last input named is the one that failed")]
#[expect(clippy::expect_used, reason = "a folder that cannot be read is a failure of the test")]
pub fn replay(folder: &Path, fuzz: fn(&[u8])) {
    let mut inputs = 0;
    for entry in fs::read_dir(folder).expect("the folder of inputs is there") {
        let path = entry.expect("the entries of the folder can be read").path();
        println!("{}", path.display());
        fuzz(&fs::read(path).expect("an input is a file"));
        inputs += 1;
    }
    assert!(inputs > 0, "no input in {}", folder.display());
}
