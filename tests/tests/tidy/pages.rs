//! Pages: the commands, files and links on a page must exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use shunt_tests::repository::{files, metadata};

use crate::crates::{name, packages};

#[test]
fn every_command_of_the_readme_exists() {
    let sources: BTreeMap<String, String> = files(".rs").into_iter().collect();
    let xtask = &sources["xtask/src/command.rs"];
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
fn the_figure_of_the_readme_shows_the_results() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images/speed.py");
    let output = Command::new("python3").args([script, "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_command_of_programs_in_pages_exists() {
    let sources: BTreeMap<String, String> = files(".rs").into_iter().collect();
    let client = &sources["crates/shuntd/src/client/arguments.rs"];
    let daemon = ["daemon", "daemon/nic"]
        .map(|file| sources[&format!("crates/shuntd/src/{file}.rs")].as_str());
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

/// Returns whether `shuntctl` has the command and the options.
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

/// Returns whether every option is a field of the arguments.
fn are_options(words: &[&str], source: &str) -> bool {
    let mut options = words.iter().filter_map(|word| {
        word.trim_matches(['[', ']']).strip_prefix("--").map(|option| option.replace('-', "_"))
    });
    options.all(|option| source.contains(&format!(" {option}: ")))
}

/// Returns whether the packages are members of the workspace.
fn names_packages(words: &[&str], packages: &BTreeSet<&str>) -> bool {
    let pairs = words.windows(2).filter(|pair| ["-p", "--package"].contains(&pair[0]));
    pairs.map(|pair| pair[1]).all(|package| packages.contains(package))
}

#[test]
fn links_and_names_of_pages_exist() {
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

/// A task in ARCHITECTURE.md names at most five files or folders.
#[test]
fn a_task_has_five_places_at_most() {
    let pages = files("ARCHITECTURE.md");
    let (_, page) = pages.iter().find(|(path, _)| path == "ARCHITECTURE.md").unwrap();
    let section = page.split("## Where would I add").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let tasks: Vec<&str> = section.split("\n**").skip(1).collect();
    assert!(tasks.len() >= 15, "the page lists tasks");
    for task in tasks {
        let title = task.split("**").next().unwrap_or_default();
        let named: BTreeSet<&str> = paths(task).filter(|path| path.contains('/')).collect();
        let count = named.len() + task.matches("](docs/").count();
        assert!((1..=5).contains(&count), "{title} names {count} places: {named:?}");
    }
}

/// Returns the words in backticks that are paths of the repository.
///
/// A path ends like a source file, or begins with a folder of the first level.
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
