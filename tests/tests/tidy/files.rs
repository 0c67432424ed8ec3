//! Source files: length, place, and words that no file may contain.

use std::collections::{BTreeMap, BTreeSet};

use shunt_tests::repository::{files, read};

/// Number of lines above which a source file must be divided.
const FILE_LINES_MAX: usize = 600;

/// Beginnings of paths that exist on one machine only.
const FOREIGN_WORDS: &[&str] = &["/root/", "/home/"];

#[test]
fn files_have_bounded_length() {
    let lengths = files(".rs").into_iter().map(|(path, text)| (path, text.lines().count()));
    let long: Vec<_> = lengths.filter(|(_, lines)| *lines > FILE_LINES_MAX).collect();
    assert!(long.is_empty(), "more than {FILE_LINES_MAX} lines: {long:?}");
}

#[test]
fn every_module_is_a_part_of_its_crate() {
    let all: BTreeMap<String, String> = files(".rs").into_iter().collect();
    let modules = all.keys().filter(|path| path.contains("/src/") && !is_root_of_crate(path));
    for path in modules {
        let (folder, file) = path.rsplit_once('/').unwrap_or_default();
        let (above, stem) = match file.strip_suffix(".rs") {
            Some("mod") => folder.rsplit_once('/').unwrap_or_default(),
            stem => (folder, stem.unwrap_or_default()),
        };
        let homes = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"].map(|end| format!("{above}{end}"));
        let names = |text: &String| text.contains(&format!("mod {stem};"));
        let is_named = homes.iter().filter_map(|home| all.get(home)).any(names);
        // The file may be named by path, from a file in the same folder.
        let by_path = format!("#[path = \"{file}\"]");
        let beside = all.iter().filter(|(other, _)| other.starts_with(above));
        let is_named = is_named || beside.into_iter().any(|(_, text)| text.contains(&by_path));
        assert!(is_named, "{path}: no file names this module, so nothing compiles it");
    }
}

/// Returns whether a file is the root of a crate.
///
/// Cargo uses such a file without a `mod` item.
fn is_root_of_crate(path: &str) -> bool {
    let inside = path.rsplit_once("/src/").map_or(path, |(_, inside)| inside);
    let is_program = inside.starts_with("bin/") && !inside["bin/".len()..].contains('/');
    is_program || inside.ends_with("main.rs") || inside == "lib.rs"
}

#[test]
fn every_module_says_what_it_is() {
    for (path, text) in files(".rs") {
        assert!(text.starts_with("//!") || text.starts_with("#!["), "{path} has no module page");
    }
}

#[test]
fn files_that_map_modules_have_no_logic() {
    for (path, text) in files(".rs") {
        let maps = path.ends_with("/lib.rs") || path.ends_with("/mod.rs");
        if maps && !path.contains("/tests/") {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let logic = code.lines().filter(|line| line.trim_start().starts_with("fn ")).count();
            assert_eq!(logic, 0, "{path} has functions of its own");
        }
    }
}

#[test]
fn the_unsafe_code_page_is_complete() {
    let page = read("docs/unsafe.md");
    let row = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    let named: BTreeSet<String> = page.lines().filter_map(row).collect();
    let expecting = "expect(unsafe_code";
    let has = |(path, text): (String, String)| {
        let own = text.contains(expecting) && !path.starts_with("tests/tests/tidy/");
        own.then_some(path)
    };
    let found: BTreeSet<String> = files(".rs").into_iter().filter_map(has).collect();
    assert_eq!(named, found, "docs/unsafe.md (left) against the sources (right)");
}

#[test]
fn no_file_names_a_local_path() {
    for ending in [".rs", ".md", ".toml", ".sh", ".py"] {
        for (path, text) in files(ending) {
            if path == "tests/tests/tidy/files.rs" {
                continue;
            }
            for word in FOREIGN_WORDS {
                assert!(!text.contains(word), "{path} mentions {word}");
            }
        }
    }
}

#[test]
fn todo_comments_name_their_condition() {
    for (path, text) in files(".rs") {
        if path == "tests/tests/tidy/files.rs" {
            continue;
        }
        for word in ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!("] {
            assert!(!text.contains(word), "{path} has a {word}");
        }
    }
}
