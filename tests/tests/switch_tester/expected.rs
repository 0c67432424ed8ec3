//! Which tests of the switch tester must pass: all but those that `data/switch-tester.json` excuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::Deserialize;
use shunt_tests::repository::root;

use crate::verdicts::Verdict;

/// What is expected of the tests of one kind.
#[derive(Deserialize)]
pub(crate) struct Expected {
    /// How many tests there are.
    tests: usize,
    /// Tests that need not pass, by reason.
    need_not_pass: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Deserialize)]
struct File {
    kinds: BTreeMap<String, Expected>,
}

impl Expected {
    /// What is expected of the tests of this kind.
    pub(crate) fn of(kind: &str) -> Self {
        let file = root().join("tests/data/switch-tester.json");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}"));
        let mut file: File = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
        file.kinds.remove(kind).unwrap_or_else(|| panic!("nothing is expected of `{kind}`"))
    }

    /// In which respects the verdicts are not as expected.
    pub(crate) fn mistakes(&self, verdicts: &BTreeMap<String, Verdict>) -> Vec<String> {
        let mut mistakes = Vec::new();
        if verdicts.len() != self.tests {
            mistakes.push(format!("{} of {} tests ran", verdicts.len(), self.tests));
        }
        for (name, verdict) in verdicts {
            let is_excused = self.need_not_pass.values().any(|names| names.contains(name));
            if let Err(complaint) = verdict
                && !is_excused
            {
                mistakes.push(format!("{name}: {complaint}"));
            }
        }
        mistakes
    }
}
