//! Expected results of the switch tester: all tests pass except the tests in
//! `data/switch-tester.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::Deserialize;
use shunt_tests::repository::root;

use crate::verdicts::Verdict;

/// Expected results of the tests of one kind.
#[derive(Deserialize)]
pub(crate) struct Expected {
    /// Number of tests of the kind.
    tests: usize,
    /// Tests that may fail, by reason.
    need_not_pass: BTreeMap<String, BTreeSet<String>>,
}

/// The file with the expected results.
#[derive(Deserialize)]
struct File {
    kinds: BTreeMap<String, Expected>,
}

impl Expected {
    /// Returns the expected results for tests of the kind `kind`.
    pub(crate) fn of(kind: &str) -> Self {
        let file = root().join("tests/data/switch-tester.json");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}"));
        let mut file: File = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
        file.kinds.remove(kind).unwrap_or_else(|| panic!("no expectations for `{kind}`"))
    }

    /// Returns the differences between verdicts and expectations.
    pub(crate) fn mistakes(&self, verdicts: &BTreeMap<String, Verdict>) -> Vec<String> {
        let mut mistakes = Vec::new();
        if verdicts.len() != self.tests {
            mistakes.push(format!("{} of {} tests ran", verdicts.len(), self.tests));
        }
        for (name, verdict) in verdicts {
            let is_excused = self.need_not_pass.values().any(|names| names.contains(name));
            if let Err(error_text) = verdict
                && !is_excused
            {
                mistakes.push(format!("{name}: {error_text}"));
            }
        }
        mistakes
    }
}
