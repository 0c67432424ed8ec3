//! The names of rows in pages: `ofd high gigaflow-lru` becomes "pipeline OFD, high locality,
//! Gigaflow with LRU eviction".
//!
//! The JSON files and the plots keep the short names.

use shunt_pipebench::pipeline_file::Builtin;

/// Short names and the words that replace them.
const WORDS: &[(&str, &str)] = &[
    ("high", "high locality"),
    ("low", "low locality"),
    ("p1", "update P1"),
    ("p2", "update P2"),
    ("p3", "update P3"),
    ("p4", "update P4"),
    ("p5", "update P5"),
    ("P1", "update P1"),
    ("P2", "update P2"),
    ("P3", "update P3"),
    ("P4", "update P4"),
    ("P5", "update P5"),
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
    ("high random", "high locality, policy random"),
    ("high disjoint", "high locality, policy disjoint"),
    ("high joint", "high locality, policy joint"),
    ("high profiled", "high locality, policy profiled"),
    ("acl", "ClassBench acl"),
    ("fw", "ClassBench fw"),
    ("ipc", "ClassBench ipc"),
    ("of", "rules of an OpenFlow switch"),
    ("acl_1k", "ClassBench acl"),
    ("acl_10k", "ClassBench acl"),
    ("acl_100k", "ClassBench acl"),
    ("acl_500k", "ClassBench acl"),
    ("fw_1k", "ClassBench fw"),
    ("fw_10k", "ClassBench fw"),
    ("fw_100k", "ClassBench fw"),
    ("fw_500k", "ClassBench fw"),
    ("ipc_1k", "ClassBench ipc"),
    ("ipc_10k", "ClassBench ipc"),
    ("ipc_100k", "ClassBench ipc"),
    ("ipc_500k", "ClassBench ipc"),
    ("random: 100K rules/600 masks", "rules with random priorities, 100K rules, 600 masks"),
    ("specific: 100K rules/600 masks", "rules with priorities by length, 100K rules, 600 masks"),
];

/// Short words within a name, and the words that replace them.
const INNER: &[(&str, &str)] = &[
    (", flows against ", ", computational flows against "),
    (", Zipf", ", Zipf traffic"),
    (", uniform", ", uniform traffic"),
    (" p1, ", ", update P1, "),
    ("rules/", "rules, "),
    ("flows: in the same iteration", "flows, adopted in the same iteration"),
    ("flows: one", "flows, adopted one iteration later"),
    ("flows: two", "flows, adopted two iterations later"),
    ("flows: more", "flows, adopted more iterations later"),
    (", reply", ", predictor reply"),
    (": reply", ": predictor reply"),
    (", successor", ", predictor successor"),
    (": successor", ": predictor successor"),
    (": siblings", ": predictor siblings"),
    (": periodic", ": predictor periodic"),
    ("calls, all", "calls, all predictors"),
    ("collectives, all", "collectives, all predictors"),
    ("coflows, all", "coflows, all predictors"),
    ("structure, all", "structure, all predictors"),
    (", none", ", no predictor"),
    (", perfect", ", perfect forecasts"),
    ("neither, ", "without gates and timer, "),
    ("gates alone, ", "gates without timer, "),
    ("mean of the pipelines, P2, ", "mean of the pipelines, update P2, "),
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
    INNER.iter().fold(parts.join(", "), |title, (short, words)| title.replace(short, words))
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
            ("ofd high joint", "pipeline OFD, high locality, policy joint"),
            ("acl_1k: 999 rules", "ClassBench acl, 999 rules"),
            (
                "acl 1K, Zipf, flows against EMC",
                "ClassBench acl, 1K, Zipf traffic, computational flows against EMC",
            ),
            ("random: 100K rules/600 masks", "rules with random priorities, 100K rules, 600 masks"),
        ] {
            assert_eq!(title(name), expected);
        }
    }
}
