//! The header matches the library: a C program that includes it is compiled, linked and run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    mem::offset_of,
    path::{Path, PathBuf},
    process::Command,
};

use shunt_kairo_c::ffi::{
    KAIRO_ADDED, KAIRO_MODIFIED, KAIRO_OBJECT, KAIRO_REMOVED, KAIRO_WORDS, KairoDelta, KairoEntry,
    KairoRule, KairoTraversal, KairoVisit,
};

/// The text of the C header.
const HEADER: &str = include_str!("../include/shunt_kairo.h");
/// The text of the C program that the test compiles.
const PROGRAM: &str = include_str!("cache.c");
/// The text of the module with the exported functions.
const BORDER: &str = include_str!("../src/ffi.rs");

/// The library, which is built beside this test.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    folder.join("libshunt_kairo_c.a")
}

#[test]
fn a_c_program_uses_the_engine_correctly() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("cache");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-I"])
        .arg(root.join("include"))
        .arg(root.join("tests/cache.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let layout = [
        ("kairo_entry", size_of::<KairoEntry>(), offset_of!(KairoEntry, generation)),
        ("kairo_rule", size_of::<KairoRule>(), offset_of!(KairoRule, mask)),
        ("kairo_visit", size_of::<KairoVisit>(), offset_of!(KairoVisit, rule)),
        ("kairo_traversal", size_of::<KairoTraversal>(), offset_of!(KairoTraversal, reads_count)),
        ("kairo_delta", size_of::<KairoDelta>(), offset_of!(KairoDelta, object)),
    ];
    let mut expected: String =
        layout.iter().map(|(name, size, last)| format!("{name} {size} {last}\n")).collect();
    expected += &format!("KAIRO_WORDS {KAIRO_WORDS}\n");
    let changes = [KAIRO_ADDED, KAIRO_REMOVED, KAIRO_MODIFIED, KAIRO_OBJECT];
    expected += &format!("changes {}\n", changes.map(|change| change.to_string()).join(" "));
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected);
}

#[test]
fn the_header_and_the_program_name_every_function() {
    let functions: Vec<&str> = BORDER
        .split("extern \"C\" fn ")
        .skip(1)
        .filter_map(|rest| rest.split('(').next())
        .collect();
    assert!(functions.len() > 8, "{functions:?}");
    for function in functions {
        let call = format!("{function}(");
        assert!(HEADER.contains(&call) && PROGRAM.contains(&call), "{function}");
    }
}
