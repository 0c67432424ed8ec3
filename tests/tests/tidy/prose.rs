//! Words that comments, messages and pages must not contain.
//!
//! The rules keep prose readable for engineers who know Open vSwitch or Rust and not Shunt, and who
//! read English as a second language. Code in backticks and quoted words are exempt.

use shunt_tests::{
    prose::{Passage, PassageKind, of_comments, of_page, of_source, sentences, words_count},
    repository::files,
};

/// Maximum number of words in a sentence of documentation.
const SENTENCE_WORDS_MAX: usize = 30;

/// Maximum number of characters in the first line of an item's documentation.
const FIRST_LINE_MAX: usize = 80;

/// Words that are banned everywhere.
///
/// Each word is archaic, a calque, or a private metaphor.
const BANNED: &[&str] = &[
    "anew",
    "be it",
    "besides",
    "bury",
    "buried",
    "comes by",
    "fare",
    "fares",
    "goes by",
    "is made to",
    "lets fall",
    "let fall",
    "said of",
    "say of",
    "says of",
    "so many",
    "so much",
    "stands for",
    "tell of",
    "tells of",
    "thereof",
    "told of",
    "whoever",
    "whose",
];

/// Words that only this project used.
///
/// The field has a standard word for each of these words.
const PRIVATE: &[&str] = &[
    "desk",
    "desks",
    "eviction desk",
    "lesson",
    "lessons",
    "teach",
    "teaches",
    "taught",
    "graves",
    "whole entry",
    "whole entries",
    "piece of a way",
    "pieces of ways",
    "pieces of a way",
    "fallen",
    "muffle",
    "muffled",
    "dozes",
];

/// Openings that make a sentence a noun clause, which has no subject.
const NOUN_CLAUSES: &[&str] = &["What", "Whatever", "Whether", "Whichever", "Who", "Whoever"];

/// Returns whether a file is prose of the project.
///
/// Recordings and this list are not such prose.
fn is_ours(path: &str) -> bool {
    let is_list = path == "tests/tests/tidy/prose.rs" || path == "tests/src/prose.rs";
    !is_list && !path.contains("/data/") && path != "LICENSE"
}

/// Finds the passages of a file.
type Reader = fn(&str) -> Vec<Passage>;

/// Endings of files in other languages. The comments of these files are prose.
const COMMENTED: [&str; 8] = [".c", ".h", ".p4", ".proto", ".py", ".service", ".sh", ".toml"];

fn passages() -> Vec<(String, Passage)> {
    let mut all = Vec::new();
    let others = COMMENTED.map(|ending| (ending, of_comments as Reader));
    let own = [(".rs", of_source as Reader), (".md", of_page as Reader)];
    for (ending, read) in others.into_iter().chain(own) {
        for (path, text) in files(ending).into_iter().filter(|(path, _)| is_ours(path)) {
            all.extend(read(&text).into_iter().map(|passage| (path.clone(), passage)));
        }
    }
    all
}

/// Fails with all findings, so that a developer can fix all of them together.
fn expect_none(findings: &[String], rule: &str) {
    assert!(findings.is_empty(), "{rule}; {} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn no_banned_word_in_prose() {
    let mut findings = Vec::new();
    for (path, passage) in passages() {
        for sentence in sentences(&passage.text) {
            let plain = without_quotes(&sentence).to_lowercase();
            let banned = BANNED.iter().chain(PRIVATE).filter(|word| has_word(&plain, word));
            findings.extend(
                banned.map(|word| format!("{path}:{}: {word:?}: {sentence}", passage.line)),
            );
        }
    }
    expect_none(&findings, "plain words only");
}

#[test]
fn sentences_of_documentation_are_short() {
    let mut findings = Vec::new();
    for (path, passage) in passages() {
        if passage.kind.is_documentation() {
            let long = |sentence: &String| words_count(sentence) > SENTENCE_WORDS_MAX;
            let long = sentences(&passage.text).into_iter().filter(long);
            findings.extend(long.map(|sentence| {
                format!("{path}:{}: {} words: {sentence}", passage.line, words_count(&sentence))
            }));
        }
    }
    expect_none(&findings, "a sentence has at most thirty words");
}

#[test]
fn first_lines_of_documentation_are_short() {
    let mut findings = Vec::new();
    for (path, passage) in passages() {
        let first = passage.text.lines().next().unwrap_or_default();
        let is_summary = passage.kind == PassageKind::ItemDoc;
        if is_summary && first.chars().count() > FIRST_LINE_MAX {
            findings.push(format!("{path}:{}: {first}", passage.line));
        }
    }
    expect_none(&findings, "the first line of documentation has at most 80 characters");
}

#[test]
fn sentences_begin_with_their_subject() {
    let mut findings = Vec::new();
    for (path, passage) in passages() {
        let is_prose = passage.kind != PassageKind::Text;
        for sentence in sentences(&passage.text).into_iter().filter(|_| is_prose) {
            let opening =
                sentence.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
            let is_clause = opening.is_some_and(|word| NOUN_CLAUSES.contains(&word));
            if is_clause && !sentence.ends_with('?') {
                findings.push(format!("{path}:{}: {sentence}", passage.line));
            }
        }
    }
    expect_none(&findings, "a sentence begins with its subject, not with a noun clause");
}

/// Removes double-quoted text, because such text is a quotation.
fn without_quotes(sentence: &str) -> String {
    let parts = sentence.split(['"', '“', '”']).enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part } else { "X" }).collect()
}

/// Returns whether a text contains a word, or several words, as a whole.
///
/// No letter or digit may be next to the words.
fn has_word(text: &str, word: &str) -> bool {
    let is_bound = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-');
    text.match_indices(word).any(|(at, _)| {
        is_bound(text[..at].chars().next_back()) && is_bound(text[at + word.len()..].chars().next())
    })
}

#[test]
fn banned_words_are_matched_whole() {
    assert!(has_word("it is made anew.", "anew") && has_word("anew", "anew"));
    assert!(!has_word("a canew", "anew") && !has_word("fare-well", "fare"));
    assert_eq!(without_quotes("the word \"anew\" is"), "the word X is");
}
