//! The function of the fuzz target `classbench`, which checks invariants for any bytes.

#![expect(clippy::expect_used, reason = "a panic is a finding of the fuzzer")]

use crate::{KeySchema, NuevoMatch, NuevoMatchSettings, PriorityRule, parse_classbench};

/// Number of rules up to which a classifier is built and compared with a scan.
const CLASSIFIED_MAX: usize = 200;

/// Parses any text as a rule-set of ClassBench.
///
/// Either an error names the refused line, or a classifier of the rules finds the same rules as a
/// scan of the list.
///
/// # Panics
///
/// If an invariant is violated.
pub fn fuzz_classbench(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let rules = match parse_classbench(text) {
        Ok(rules) => rules,
        Err(error) => {
            assert!((1..=text.lines().count()).contains(&error.line()), "{error}");
            return;
        }
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    assert_eq!(rules.len(), lines.count());
    let rules = &rules[..rules.len().min(CLASSIFIED_MAX)];
    let (schema, settings) = (KeySchema::five_tuple(), NuevoMatchSettings::default());
    let classifier = NuevoMatch::<5>::build(&schema, rules, &settings).expect("rules fit lanes");
    let corners = rules.iter().map(|rule| rule.low).chain(rules.iter().map(|rule| rule.high));
    for key in corners {
        let expected = rules.iter().find(|rule| rule.matches(&key)).map(PriorityRule::value);
        assert_eq!(classifier.lookup(&key).map(|best| best.value), expected, "{key:?}");
    }
}
