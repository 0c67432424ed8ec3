//! Parses names, and suggests corrections of misspelled names.

use std::str::FromStr;

use shunt_flow::text::nearest_of;

use super::{
    NameKey,
    key::{FLOWS_MAX, KEYS, positive},
    source::{SOURCES, SourceName},
    value::WorkloadName,
};
use crate::{NameError, NameProblem, traffic::Locality};

impl FromStr for WorkloadName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        parse(text).map_err(|mistake| {
            let nearest = repair(text);
            NameError { name: text.to_owned(), at: mistake.at, problem: mistake.problem, nearest }
        })
    }
}

/// A mistake in a name: the problem, its position, and a suggestion.
struct NameMistake {
    /// Offset of the mistake in the name.
    at: usize,
    problem: NameProblem,
    /// Length of the wrong part, and its replacement.
    instead: Option<(usize, String)>,
}

/// A part of a name, and its offset in the name.
#[derive(Clone, Copy)]
struct NamePart<'a> {
    /// Offset of the part in the name.
    at: usize,
    text: &'a str,
}

/// Splits a name at its colons.
fn parts(text: &str) -> impl Iterator<Item = NamePart<'_>> {
    text.split(':').scan(0_usize, |next, text| {
        let at = *next;
        *next = at.saturating_add(text.len()).saturating_add(1);
        Some(NamePart { at, text })
    })
}

/// Parses the name of a workload. Fails at the first unknown or repeated part.
fn parse(text: &str) -> Result<WorkloadName, NameMistake> {
    let mut rest = parts(text);
    let source = rest.next().unwrap_or(NamePart { at: 0, text: "" });
    let mut name = WorkloadName::of(SourceName::find(source.text).ok_or_else(|| {
        unknown("source", source, SOURCES.iter().map(|source| source.word).collect())
    })?);
    let mut seen: Vec<&str> = Vec::new();
    for (place, part) in rest.enumerate() {
        let bare = if part.text.contains('=') { None } else { bare(&mut name, place, part)? };
        if let Some(key) = bare {
            if seen.contains(&key) {
                return Err(mistake(part.at, NameProblem::Repeated { key }));
            }
            seen.push(key);
            continue;
        }
        let (key, value) = key_of(part)?;
        if seen.contains(&key.name) {
            return Err(mistake(part.at, NameProblem::Repeated { key: key.name }));
        }
        seen.push(key.name);
        set(&mut name, key, value)?;
    }
    Ok(name)
}

/// Parses a part without a key: the locality, or the number of flows.
///
/// Locality and number of flows may have any position.
fn bare(
    name: &mut WorkloadName,
    place: usize,
    part: NamePart<'_>,
) -> Result<Option<&'static str>, NameMistake> {
    if begins_with_digit(part.text) {
        name.flows = positive(part.text, FLOWS_MAX).ok_or_else(|| {
            let mut mistake = value("flows", part, NUMBER);
            mistake.instead = as_digits(part.text).map(|digits| (part.at, digits));
            mistake
        })?;
        return Ok(Some("flows"));
    }
    if let Some(locality) = Locality::find(part.text) {
        name.locality = locality;
        return Ok(Some("locality"));
    }
    // An unknown word at the usual position of the locality is a misspelled locality.
    let is_locality = place == 0;
    if is_locality { Err(unknown("locality", part, Locality::WORDS.to_vec())) } else { Ok(None) }
}

/// Sets a key of a name.
fn set(name: &mut WorkloadName, key: &NameKey, part: NamePart<'_>) -> Result<(), NameMistake> {
    if !(key.is_for)(&name.source) {
        let subject = name.source.to_string();
        return Err(mistake(part.at, NameProblem::NotFor { key: key.name, subject }));
    }
    (key.set)(name, part.text).ok_or_else(|| {
        let mut mistake = value(key.name, part, key.values);
        let word = part.text.split('@').next().unwrap_or_default();
        mistake.instead = most_similar(word, key.words).map(|word| (part.at, word.to_owned()));
        mistake
    })
}

/// Splits a part into key and value.
fn key_of(part: NamePart<'_>) -> Result<(&'static NameKey, NamePart<'_>), NameMistake> {
    let names = || KEYS.iter().map(|key| key.name).collect();
    let Some((name, text)) = part.text.split_once('=') else {
        return Err(unknown("key", part, names()));
    };
    let key = KEYS.iter().find(|key| key.name == name);
    let key = key.ok_or_else(|| unknown("key", NamePart { at: part.at, text: name }, names()))?;
    let at = part.at.saturating_add(name.len()).saturating_add(1);
    Ok((key, NamePart { at, text }))
}

/// The legal numbers of flows, for error messages.
const NUMBER: &str = "1 to 10m, as in 500, 100k or 1m";

/// Replaces letters that look like digits by these digits.
fn as_digits(text: &str) -> Option<String> {
    let digits = text.replace(['O', 'o'], "0").replace(['I', 'l'], "1");
    positive(&digits, FLOWS_MAX).map(|_| digits)
}

/// Returns whether a text begins with a digit.
fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|character: char| character.is_ascii_digit())
}

/// Returns a mistake without a suggestion.
const fn mistake(at: usize, problem: NameProblem) -> NameMistake {
    NameMistake { at, problem, instead: None }
}

/// Returns the mistake of a key with a wrong value.
fn value(key: &'static str, part: NamePart<'_>, expected: &'static str) -> NameMistake {
    let problem = NameProblem::Value { key, value: part.text.to_owned(), expected };
    mistake(part.at, problem)
}

/// Returns the mistake of an unknown word, with the most similar one.
fn unknown(what: &'static str, part: NamePart<'_>, known: Vec<&'static str>) -> NameMistake {
    let instead = most_similar(part.text, &known).map(|word| (part.at, word.to_owned()));
    let problem = NameProblem::Unknown { what, word: part.text.to_owned(), known };
    NameMistake { at: part.at, problem, instead }
}

/// Returns the most similar word; `None` if no word is similar.
fn most_similar<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest_of(word, known.iter().copied())
}

/// Corrects wrong words one by one, until the name is valid.
fn repair(text: &str) -> Option<String> {
    let mut text = text.to_owned();
    let mut words: Vec<String> = Vec::new();
    for _ in 0..REPAIRS_MAX {
        match parse(&text) {
            Ok(name) => {
                let whole = name.to_string();
                // The printed name omits default values, unless the user gave them.
                let is_given = words.iter().all(|word| whole.contains(word));
                return Some(if is_given { whole } else { text });
            }
            Err(mistake) => {
                let (at, word) = mistake.instead?;
                let end =
                    text.get(at..)?.find([':', '=', '@']).map_or(text.len(), |length| at + length);
                text.replace_range(at..end, &word);
                words.push(word);
            }
        }
    }
    None
}

/// Maximum number of corrections of one name.
const REPAIRS_MAX: usize = 20;
