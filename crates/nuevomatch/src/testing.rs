//! The function of the fuzz target `classbench`: it takes any bytes, and checks invariants.

#![expect(clippy::expect_used, reason = "a failure here is a finding")]

use crate::{KeySchema, NuevoMatch, NuevoMatchSettings, PriorityRule, parse_classbench};

/// Rules up to which a classifier is built and compared.
const CLASSIFIED_MAX: usize = 200;

/// Parses any text as a rule-set of ClassBench.
///
/// It is refused with a line, or a classifier of its rules finds what a scan finds.
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
