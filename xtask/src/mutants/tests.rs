//! The source text that contains mutants.

use super::{
    edits::Edited,
    schemata::{Mutant, OmittedMutants, Schemata},
};

/// Returns the descriptions of the mutants of a text,
/// and the text that contains them.
fn mutants(source: &str, dropped: &OmittedMutants) -> (Vec<String>, Edited) {
    let schemata = Schemata::of(source, 0, dropped).expect("the source is Rust");
    let describe = |mutant: &Mutant| format!("{}: {}", mutant.function, mutant.what);
    (schemata.mutants.iter().map(describe).collect(), Edited::new(source, schemata.edits))
}

#[track_caller]
fn assert_mutants(source: &str, descriptions: &[&str]) {
    assert_eq!(mutants(source, &OmittedMutants::default()).0, descriptions);
}

const SOURCE: &str = "
const SIZE: usize = 2 + 2;
struct Door { is_open: bool, count: u32 }
impl Door {
    const fn is_shut(&self) -> bool {
        !self.is_open
    }
    fn pass(&mut self, who: Option<u32>) -> Option<u32> {
        if self.is_shut() {
            return None;
        }
        self.count += 1;
        match who {
            Some(number) if number < 3 => Some(number),
            Some(7) => None,
            _ => who.filter(|number| *number > 9 && self.count == 1),
        }
    }
}
impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(\"\") }
}
#[cfg(test)]
mod tests {
    fn is_not_tried() -> bool { 1 == 2 }
}
";

#[test]
fn mutants_are_described_in_source_text() {
    assert_mutants(
        SOURCE,
        &[
            "Door::is_shut: returns `true`",
            "Door::is_shut: returns `false`",
            "Door::is_shut: without `!` in `!self.is_open`",
            "Door::pass: returns `None`",
            "Door::pass: returns `Some(0)`",
            "Door::pass: returns `Some(1)`",
            "Door::pass: not `self.is_shut()`",
            "Door::pass: without `self.count += 1;`",
            "Door::pass: `-=` in `self.count += 1`",
            "Door::pass: always `number < 3`",
            "Door::pass: never `number < 3`",
            "Door::pass: `<=` in `number < 3`",
            "Door::pass: `>=` in `number < 3`",
            "Door::pass: without the arm `Some(7)`",
            "Door::pass: `||` in `*number > 9 && self.count == 1`",
            "Door::pass: `>=` in `*number > 9`",
            "Door::pass: `<=` in `*number > 9`",
            "Door::pass: `!=` in `self.count == 1`",
        ],
    );
}

#[test]
fn iterators_may_be_mutated_to_empty() {
    assert_mutants(
        "fn all() -> impl Iterator<Item = u8> { 0..3 }",
        &["all: returns an empty iterator"],
    );
}

#[test]
fn a_let_chain_is_mutated_as_a_whole() {
    assert_mutants(
        "fn run(a: Option<u8>) { if let Some(b) = a && b == 1 { stop(b); } }",
        &["run: returns `()`", "run: `!=` in `b == 1`", "run: without `stop(b);`"],
    );
}

#[test]
fn mutants_are_rust_and_lines_keep_their_numbers() {
    let (_, edited) = mutants(SOURCE, &OmittedMutants::default());
    syn::parse_file(&edited.text).expect("the mutated source is valid Rust");
    let lines = |text: &str| text.lines().count();
    assert_eq!(lines(&edited.text), lines(SOURCE));
}

#[test]
fn omitted_mutants_keep_the_numbering() {
    let (all, _) = mutants(SOURCE, &OmittedMutants::default());
    let dropped = OmittedMutants { mutants: (0..all.len()).collect(), ..OmittedMutants::default() };
    let (descriptions, edited) = mutants(SOURCE, &dropped);
    assert_eq!(descriptions, all);
    assert!(!edited.text.contains("mutant("), "{}", edited.text);
}

#[test]
fn an_error_names_the_smallest_enclosing_mutant() {
    let source = "fn sum(a: u8, b: u8) -> bool { a + b < 9 }";
    let (descriptions, edited) = mutants(source, &OmittedMutants::default());
    let start = edited.text.find("l__ - r__").expect("there is a difference");
    let blamed = edited.mutants_at(&(start..start + 3));
    assert_eq!(
        blamed.iter().map(|id| descriptions[*id].as_str()).collect::<Vec<_>>(),
        ["sum: `-` in `a + b`"]
    );
}

/// The build of mutants has all features of the packages.
///
/// The build must not need libdpdk.
#[test]
fn no_mutated_package_has_the_feature_dpdk() {
    for package in super::TARGETS.iter().flat_map(|target| target.packages) {
        let folder = package.strip_prefix("shunt-").expect("a name of the workspace");
        let manifest = crate::shell::root().join("crates").join(folder).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("a manifest");
        assert!(!text.contains("\ndpdk = ["), "{package}: give its features by name");
    }
}
