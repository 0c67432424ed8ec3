//! What the source looks like with mutants in it.

use super::{
    edits::Edited,
    schemata::{Dropped, Mutant, Schemata},
};

/// The mutants of a text, as they are told, and the text with them in it.
fn mutants(source: &str, dropped: &Dropped) -> (Vec<String>, Edited) {
    let schemata = Schemata::of(source, 0, dropped).expect("the source is Rust");
    let tell = |mutant: &Mutant| format!("{}: {}", mutant.function, mutant.what);
    (schemata.mutants.iter().map(tell).collect(), Edited::new(source, schemata.edits))
}

#[track_caller]
fn assert_told(source: &str, told: &[&str]) {
    assert_eq!(mutants(source, &Dropped::default()).0, told);
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
fn whatever_may_be_wrong_is_told_in_the_words_of_the_source() {
    assert_told(
        SOURCE,
        &[
            "Door::is_shut: answers `true`",
            "Door::is_shut: answers `false`",
            "Door::is_shut: without `!` in `!self.is_open`",
            "Door::pass: answers `None`",
            "Door::pass: answers `Some(0)`",
            "Door::pass: answers `Some(1)`",
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
fn a_function_that_gives_something_one_by_one_may_give_nothing() {
    assert_told("fn all() -> impl Iterator<Item = u8> { 0..3 }", &["all: gives nothing"]);
}

#[test]
fn a_chain_of_let_stays_in_one_piece() {
    assert_told(
        "fn run(a: Option<u8>) { if let Some(b) = a && b == 1 { stop(b); } }",
        &["run: answers `()`", "run: `!=` in `b == 1`", "run: without `stop(b);`"],
    );
}

#[test]
fn mutants_are_rust_and_lines_keep_their_numbers() {
    let (_, edited) = mutants(SOURCE, &Dropped::default());
    syn::parse_file(&edited.text).expect("it is Rust still");
    let lines = |text: &str| text.lines().count();
    assert_eq!(lines(&edited.text), lines(SOURCE));
}

#[test]
fn what_is_dropped_is_not_in_the_text_and_numbers_stay() {
    let (all, _) = mutants(SOURCE, &Dropped::default());
    let dropped = Dropped { mutants: (0..all.len()).collect(), ..Dropped::default() };
    let (told, edited) = mutants(SOURCE, &dropped);
    assert_eq!(told, all);
    assert!(!edited.text.contains("mutant("), "{}", edited.text);
}

#[test]
fn a_complaint_is_about_the_smallest_mutant_around_it() {
    let source = "fn sum(a: u8, b: u8) -> bool { a + b < 9 }";
    let (told, edited) = mutants(source, &Dropped::default());
    let start = edited.text.find("l__ - r__").expect("there is a difference");
    let blamed = edited.mutants_at(&(start..start + 3));
    assert_eq!(
        blamed.iter().map(|id| told[*id].as_str()).collect::<Vec<_>>(),
        ["sum: `-` in `a + b`"]
    );
}
