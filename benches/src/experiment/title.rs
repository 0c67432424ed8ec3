//! Row names as readers see them: `ofd high gigaflow-lru` becomes "pipeline OFD, high locality,
//! Gigaflow with LRU eviction".
//!
//! The JSON files and the plots keep the short names.

use shunt_pipebench::pipeline_file::Builtin;

/// Short names and the words that replace them.
const WORDS: [(&str, &str); 28] = [
    ("high", "high locality"),
    ("low", "low locality"),
    ("p1", "update P1"),
    ("p2", "update P2"),
    ("p3", "update P3"),
    ("p4", "update P4"),
    ("p5", "update P5"),
    ("P1", "update P1"),
    ("P2", "update P2"),
    ("P1 to P5", "updates P1 to P5"),
    ("flap", "update of one rule"),
    ("direct", "engine Direct"),
    ("visits", "engine Visits"),
    ("relational", "engine Relational"),
    ("iterative", "engine Iterative"),
    ("published", "engine PublishedKairo"),
    ("megaflow", "megaflows"),
    ("gigaflow", "Gigaflow"),
    ("gigaflow-resume", "Gigaflow with resumed translations"),
    ("first-fit", "first-fit partition"),
    ("one-to-one", "one LTM entry per lookup"),
    ("megaflow-lru", "megaflows with LRU eviction"),
    ("megaflow-second-use", "megaflows with second-use eviction"),
    ("gigaflow-lru", "Gigaflow with LRU eviction"),
    ("gigaflow-switch", "Gigaflow with the defaults of the switch"),
    ("100k", "100,000 flows"),
    ("1 cores", "1 core"),
    ("1 stages", "1 stage"),
];

/// Returns a row name with its short names written out.
pub(super) fn title(name: &str) -> String {
    let mut parts = Vec::new();
    let end = name.find([':', ',', ' ']).unwrap_or(name.len());
    let (first, rest) = name.split_at(end);
    let pipeline = Builtin::find(first);
    if pipeline.is_some() {
        parts.push(format!("pipeline {}", first.to_uppercase()));
    }
    let mut rest = if pipeline.is_some() { trim(rest) } else { name };
    while let Some((word, after)) = leading_word(rest) {
        parts.push(word.to_owned());
        rest = trim(after);
    }
    if !rest.is_empty() {
        parts.push(rest.to_owned());
    }
    parts.join(", ")
}

/// Returns the words of the longest leading short name, and the rest.
fn leading_word(text: &str) -> Option<(&'static str, &str)> {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with([':', ',', ' ']);
    let leading = WORDS.iter().filter_map(|(short, words)| {
        let rest = text.strip_prefix(short).filter(|rest| ends(rest))?;
        Some((short.len(), *words, rest))
    });
    leading.max_by_key(|(length, ..)| *length).map(|(_, words, rest)| (words, rest))
}

fn trim(text: &str) -> &str {
    text.trim_start_matches([':', ',', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_written_out() {
        for (name, expected) in [
            ("ofd p2", "pipeline OFD, update P2"),
            ("ant p1, 2023 rules", "pipeline ANT, update P1, 2023 rules"),
            (
                "ols flap, 1 rules, 98 entries",
                "pipeline OLS, update of one rule, 1 rules, 98 entries",
            ),
            ("ofd direct, P1 to P5", "pipeline OFD, engine Direct, updates P1 to P5"),
            ("ofd low gigaflow-lru", "pipeline OFD, low locality, Gigaflow with LRU eviction"),
            ("psc:high:100k, LTM", "pipeline PSC, high locality, 100,000 flows, LTM"),
            ("psc high gigaflow before", "pipeline PSC, high locality, Gigaflow, before"),
            ("direct: one rule, 1M entries, p50", "engine Direct, one rule, 1M entries, p50"),
            ("100K flows, against EMC", "100K flows, against EMC"),
            ("lower: 3", "lower: 3"),
        ] {
            assert_eq!(title(name), expected);
        }
    }
}
