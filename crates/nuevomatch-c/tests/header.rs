//! The header matches the library: a C program that includes it is compiled, linked and run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    mem::offset_of,
    path::{Path, PathBuf},
    process::Command,
};

use shunt_nuevomatch_c::ffi::{
    NUEVOMATCH_NONE, NUEVOMATCH_PRIORITY_MAX, NuevoMatchError, NuevoMatchKey, NuevoMatchResult,
    NuevoMatchRule, NuevoMatchSizes,
};

/// The text of the C header.
const HEADER: &str = include_str!("../include/shunt_nuevomatch.h");
/// The text of the C program that the test compiles.
const PROGRAM: &str = include_str!("classifier.c");
/// The text of the module with the exported functions.
const BORDER: &str = include_str!("../src/ffi.rs");

/// The library, which is built beside this test.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    folder.join("libshunt_nuevomatch_c.a")
}

/// Kilobytes of addresses of a program that builds 3,000,000 rules.
///
/// The rules have 84 MB, and their copies in the classifier have 204 MB.
const KILOBYTES_WITHOUT_MEMORY: &str = "250000";

/// Compiles the C program into a folder.
fn compile(folder: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("classifier");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-I"])
        .arg(root.join("include"))
        .arg(root.join("tests/classifier.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// A build without memory returns NULL, and the program continues.
#[test]
fn a_build_without_memory_returns_null() {
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new("sh")
        .args(["-c", r#"ulimit -v "$1" && exec "$0" without-memory"#])
        .arg(compile(folder.path()))
        .arg(KILOBYTES_WITHOUT_MEMORY)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn a_c_program_finds_what_a_scan_finds() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let layout = [
        ("nuevomatch_rule", size_of::<NuevoMatchRule>(), offset_of!(NuevoMatchRule, value)),
        ("nuevomatch_key", size_of::<NuevoMatchKey>(), offset_of!(NuevoMatchKey, protocol)),
        ("nuevomatch_match", size_of::<NuevoMatchResult>(), offset_of!(NuevoMatchResult, value)),
        ("nuevomatch_statistics", size_of::<NuevoMatchSizes>(), offset_of!(NuevoMatchSizes, bytes)),
        ("nuevomatch_error", size_of::<NuevoMatchError>(), offset_of!(NuevoMatchError, reason)),
    ];
    let mut expected: String =
        layout.iter().map(|(name, size, last)| format!("{name} {size} {last}\n")).collect();
    expected += &format!("constants {NUEVOMATCH_PRIORITY_MAX} {NUEVOMATCH_NONE}\n");
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected);
}

#[test]
fn the_header_and_the_program_name_every_function() {
    let functions: Vec<&str> = BORDER
        .split("extern \"C\" fn ")
        .skip(1)
        .filter_map(|rest| rest.split('(').next())
        .collect();
    assert!(functions.len() > 6, "{functions:?}");
    for function in functions {
        let call = format!("{function}(");
        assert!(HEADER.contains(&call) && PROGRAM.contains(&call), "{function}");
    }
}
