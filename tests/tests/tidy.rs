//! Properties of the repository itself: the order of its crates, the length of its files, what its
//! pages promise.

#![expect(clippy::unwrap_used, reason = "what cannot be read is not tidy")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shunt_tests::repository::{files, metadata, read};

/// Lines above which a source file is surely two things.
const FILE_LINES_MAX: usize = 1000;

/// Lines above which one asks which two things a file is; no more files than this pass it.
const FILE_LINES_ASK: usize = 600;
const FILES_OVER_ASK_MAX: usize = 4;

/// Which crate may use which, apart from tests: the arrows of ARCHITECTURE.md.
const EDGES: &[(&str, &[&str])] = &[
    ("shunt-flow", &[]),
    ("shunt-classifier", &["shunt-flow"]),
    ("shunt-pipeline", &["shunt-flow", "shunt-classifier"]),
    ("shunt-pipebench", &["shunt-flow", "shunt-classifier", "shunt-pipeline"]),
    ("shunt-gigaflow", &["shunt-flow", "shunt-classifier", "shunt-pipeline"]),
    ("shunt-kairo", &["shunt-flow", "shunt-pipeline"]),
    ("shunt-kairo-c", &["shunt-flow", "shunt-pipeline", "shunt-kairo"]),
    ("shunt-p4runtime", &["shunt-flow", "shunt-pipeline", "shunt-gigaflow"]),
    ("shunt-datapath", &["shunt-flow", "shunt-classifier", "shunt-pipeline", "shunt-gigaflow"]),
    (
        "shunt-nic",
        &["shunt-flow", "shunt-pipeline", "shunt-gigaflow", "shunt-p4runtime", "shunt-datapath"],
    ),
    ("shunt-ofproto", &["shunt-flow", "shunt-pipeline"]),
    (
        "shunt-switch",
        &[
            "shunt-flow",
            "shunt-classifier",
            "shunt-pipeline",
            "shunt-gigaflow",
            "shunt-kairo",
            "shunt-p4runtime",
            "shunt-datapath",
            "shunt-nic",
            "shunt-ofproto",
        ],
    ),
    (
        "shuntd",
        &[
            "shunt-flow",
            "shunt-pipeline",
            "shunt-p4runtime",
            "shunt-datapath",
            "shunt-nic",
            "shunt-ofproto",
            "shunt-switch",
        ],
    ),
    (
        "shunt-kernels",
        &["shunt-flow", "shunt-classifier", "shunt-pipeline", "shunt-gigaflow", "shunt-datapath"],
    ),
    ("xtask", &[]),
];

/// The crates that have no async runtime beneath them.
const WITHOUT_RUNTIME: &[&str] = &[
    "shunt-flow",
    "shunt-classifier",
    "shunt-pipeline",
    "shunt-pipebench",
    "shunt-gigaflow",
    "shunt-kairo",
    "shunt-kairo-c",
    "shunt-datapath",
    "shunt-kernels",
];

/// Beginnings of paths that are somebody's own.
const FOREIGN_WORDS: &[&str] = &["/root/", "/home/"];

fn packages(metadata: &Value) -> Vec<&Value> {
    let all = metadata["packages"].as_array().unwrap();
    let members = metadata["workspace_members"].as_array().unwrap();
    members.iter().map(|id| all.iter().find(|package| package["id"] == *id).unwrap()).collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

fn dependencies<'a>(package: &'a Value, kind: Option<&str>) -> Vec<&'a str> {
    let list = package["dependencies"].as_array().unwrap().iter();
    list.filter(|dependency| dependency["kind"].as_str() == kind).map(name).collect()
}

#[test]
fn a_crate_depends_only_on_those_above_it() {
    let metadata = metadata();
    let order: Vec<&str> = packages(&metadata).into_iter().map(name).collect();
    let rank = |name: &str| order.iter().position(|other| *other == name);
    for package in packages(&metadata) {
        for kind in [None, Some("dev")] {
            for dependency in dependencies(package, kind) {
                let below =
                    rank(dependency).is_some_and(|below| below > rank(name(package)).unwrap());
                assert!(!below, "{} depends on {dependency}, which comes after it", name(package));
            }
        }
    }
}

#[test]
fn the_edges_between_crates_are_those_on_the_list() {
    let metadata = metadata();
    for package in packages(&metadata) {
        let Some((_, allowed)) = EDGES.iter().find(|(crate_name, _)| *crate_name == name(package))
        else {
            continue;
        };
        for dependency in dependencies(package, None) {
            let ours = dependency.starts_with("shunt");
            assert!(!ours || allowed.contains(&dependency), "{} -> {dependency}", name(package));
        }
    }
}

#[test]
fn no_async_runtime_below_the_control_plane() {
    let metadata = metadata();
    for package in packages(&metadata) {
        if WITHOUT_RUNTIME.contains(&name(package)) {
            let dependencies = dependencies(package, None);
            assert!(!dependencies.contains(&"tokio"), "{} uses tokio", name(package));
        }
    }
}

#[test]
fn no_dependency_comes_from_git_or_without_a_version() {
    let metadata = metadata();
    for package in packages(&metadata) {
        for dependency in package["dependencies"].as_array().unwrap() {
            let source = dependency["source"].as_str().unwrap_or_default();
            assert!(!source.starts_with("git"), "{dependency}");
            assert!(dependency["path"].is_string() || dependency["req"] != "*", "{dependency}");
        }
    }
}

#[test]
fn the_page_of_dependencies_names_each_direct_one_and_no_other() {
    let metadata = metadata();
    let mut used = BTreeSet::new();
    for package in packages(&metadata) {
        for kind in [None, Some("dev"), Some("build")] {
            used.extend(
                dependencies(package, kind).into_iter().filter(|name| !name.starts_with("shunt")),
            );
        }
    }
    let page = read("docs/dependencies.md");
    let row = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    let named: BTreeSet<String> = page.lines().filter_map(row).collect();
    let used: BTreeSet<String> = used.into_iter().map(str::to_owned).collect();
    assert_eq!(named, used, "docs/dependencies.md (left) against the manifests (right)");
}

#[test]
fn files_are_one_thing() {
    let lengths: Vec<(String, usize)> =
        files(".rs").into_iter().map(|(path, text)| (path, text.lines().count())).collect();
    for (path, lines) in &lengths {
        assert!(*lines <= FILE_LINES_MAX, "{path}: {lines} lines, more than {FILE_LINES_MAX}");
    }
    let long: Vec<_> = lengths.iter().filter(|(_, lines)| *lines > FILE_LINES_ASK).collect();
    assert!(long.len() <= FILES_OVER_ASK_MAX, "which two things is each of {long:?}?");
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
        // By its path, from a file beside it.
        let by_path = format!("#[path = \"{file}\"]");
        let beside = all.iter().filter(|(other, _)| other.starts_with(above));
        let is_named = is_named || beside.into_iter().any(|(_, text)| text.contains(&by_path));
        assert!(is_named, "{path}: no file names this module, so nothing compiles it");
    }
}

/// Whether cargo names a file, and no module does.
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
fn logic_stays_out_of_the_files_that_only_map_modules() {
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
fn the_page_of_unsafe_code_names_each_module_that_has_some() {
    let page = read("docs/unsafe.md");
    let row = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    let named: BTreeSet<String> = page.lines().filter_map(row).collect();
    let expecting = "expect(unsafe_code";
    let has = |(path, text): (String, String)| {
        let own = text.contains(expecting) && !path.ends_with("tidy.rs");
        own.then_some(path)
    };
    let found: BTreeSet<String> = files(".rs").into_iter().filter_map(has).collect();
    assert_eq!(named, found, "docs/unsafe.md (left) against the sources (right)");
}

#[test]
fn every_command_of_the_readme_exists() {
    let sources: BTreeMap<String, String> = files(".rs").into_iter().collect();
    let xtask = &sources["xtask/src/main.rs"];
    let suites = &sources["xtask/src/suite.rs"];
    let mut commands = 0;
    for (page, text) in files(".md") {
        for line in text.lines() {
            let Some(rest) = line.trim().strip_prefix("cargo xtask ") else { continue };
            let mut words = rest.split_whitespace();
            let command = words.next().unwrap_or_default();
            commands += 1;
            assert!(xtask.contains(&format!("name: \"{command}\"")), "{page}: {line}");
            let suite =
                words.next().filter(|word| command == "test" && !word.starts_with(['#', '-']));
            let known = suite.is_none_or(|suite| suites.contains(&format!("\"{suite}\"")));
            assert!(known, "{page}: {line}");
        }
    }
    assert!(commands >= 2, "the README shows its commands");
}

#[test]
fn every_command_of_the_programs_in_the_pages_exists() {
    let sources: BTreeMap<String, String> = files(".rs").into_iter().collect();
    let client = &sources["crates/shuntd/src/client.rs"];
    let daemon =
        ["daemon", "nic"].map(|file| sources[&format!("crates/shuntd/src/{file}.rs")].as_str());
    let daemon = &daemon.concat();
    let metadata = metadata();
    let packages: BTreeSet<&str> = packages(&metadata).into_iter().map(name).collect();
    let mut commands = 0;
    for (page, text) in files(".md") {
        for line in text.lines() {
            let mut words = line.trim().trim_start_matches("$ ").split_whitespace();
            let program = words.next().unwrap_or_default().trim_start_matches("target/release/");
            let words: Vec<&str> = words.take_while(|word| !["|", "#"].contains(word)).collect();
            let is_known = match program {
                "shuntctl" => is_of_client(&words, client),
                "shuntd" => are_options(&words, daemon),
                "cargo" => names_packages(&words, &packages),
                _ => continue,
            };
            commands += 1;
            assert!(is_known, "{page}: {line}");
        }
    }
    assert!(commands >= 10, "the pages show commands");
}

/// Whether `shuntctl` has the command and the options.
fn is_of_client(words: &[&str], source: &str) -> bool {
    let words: Vec<_> = match words {
        ["--run-dir", _, rest @ ..] => rest.to_vec(),
        ["[--run-dir", ..] => return true,
        words => words.to_vec(),
    };
    let camel = |word: &str| -> String {
        let capital = |part: &str| part[..1].to_uppercase() + &part[1..];
        word.split('-').map(capital).collect()
    };
    let has = |variant: &str| {
        source.contains(&format!("\n    {variant} {{"))
            || source.contains(&format!("\n    {variant},"))
    };
    words.first().is_some_and(|command| has(&camel(command))) && are_options(&words, source)
}

/// Whether every option is a field of the arguments.
fn are_options(words: &[&str], source: &str) -> bool {
    let mut options = words.iter().filter_map(|word| {
        word.trim_matches(['[', ']']).strip_prefix("--").map(|option| option.replace('-', "_"))
    });
    options.all(|option| source.contains(&format!(" {option}: ")))
}

/// Whether the packages are those of the project.
fn names_packages(words: &[&str], packages: &BTreeSet<&str>) -> bool {
    let pairs = words.windows(2).filter(|pair| ["-p", "--package"].contains(&pair[0]));
    pairs.map(|pair| pair[1]).all(|package| packages.contains(package))
}

#[test]
fn what_the_pages_link_to_and_name_is_there() {
    let sources: Vec<String> = files("").into_iter().map(|(path, _)| path).collect();
    let is_there = |named: &str| {
        let named = named.trim_end_matches('/');
        let ends = |path: &str| path == named || path.ends_with(&format!("/{named}"));
        sources
            .iter()
            .any(|path| ends(path) || path.match_indices('/').any(|(at, _)| ends(&path[..at])))
    };
    let mut count = 0;
    for (page, text) in files(".md") {
        for named in paths(&text) {
            count += 1;
            assert!(is_there(named), "{page} names `{named}`, which is not there");
        }
    }
    assert!(count >= 50, "the pages name files");
    for (page, text) in files(".md") {
        for target in links(&text) {
            let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
            let path = shunt_tests::repository::root().join(folder).join(&target);
            assert!(path.exists(), "{page} links to {target}, which is not there");
        }
    }
}

/// What stands in backticks and is a path of the repository: it ends like a source file, or begins
/// with a folder of the first level.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    const FOLDERS: &[&str] = &["crates/", "p4/", "tests/", "xtask/", "benches/", "docs/"];
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| {
        let is_path =
            word.chars().all(|sign| sign.is_ascii_alphanumeric() || "_-./".contains(sign));
        let is_ours =
            word.ends_with(".rs") || FOLDERS.iter().any(|folder| word.starts_with(folder));
        is_path && is_ours
    })
}

/// Targets of Markdown links that point into the repository.
fn links(text: &str) -> Vec<String> {
    let after = text.split("](").skip(1);
    let target = after.filter_map(|rest| rest.split([')', '#']).next());
    target.filter(|link| !link.is_empty() && !link.contains("://")).map(str::to_owned).collect()
}

#[test]
fn the_project_speaks_of_itself_alone() {
    for ending in [".rs", ".md", ".toml", ".sh", ".py"] {
        for (path, text) in files(ending) {
            if path == "tests/tests/tidy.rs" {
                continue;
            }
            for word in FOREIGN_WORDS {
                assert!(!text.contains(word), "{path} mentions {word}");
            }
        }
    }
}

#[test]
fn nothing_is_left_to_do_without_a_condition() {
    for (path, text) in files(".rs") {
        if path == "tests/tests/tidy.rs" {
            continue;
        }
        for word in ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!("] {
            assert!(!text.contains(word), "{path} has a {word}");
        }
    }
}
