//! The opening of a page of results: the question, the columns, and the words of the page.
//!
//! A reader who knows Open vSwitch and not Shunt understands each row with this opening. A word is
//! explained on each page that contains it.

use std::fmt::Write as _;

use super::words::WORDS;

/// The question that each experiment answers.
const QUESTIONS: &[(&str, &str)] = &[
    ("spine", "How many CPU cycles does a packet take through a switch with one rule?"),
    ("ports-idle", "What do ports without traffic cost, and how fast does a sleeping switch wake?"),
    ("ovsdb-ports", "Does the time of `ovs-vsctl` to add a port grow with the number of ports?"),
    ("ports-devices", "How many CPU cycles does a packet take between two network devices?"),
    ("ports-latency", "How long does a packet take through a switch that is idle, or half loaded?"),
    ("ports-hosts", "How fast are TCP and UDP between two hosts through the switch?"),
    ("ports-guests", "How many CPU cycles does a packet take between two ports of a VM?"),
    ("ports-churn", "Do ports that come and go cost other ports frames, or the switch memory?"),
    ("ports-vms", "How fast is TCP between two virtual machines through the switch?"),
    ("ports-memif", "How many CPU cycles does a packet take between two memif ports?"),
    ("ports-dpdk", "How many CPU cycles does a packet take between two devices of DPDK?"),
    ("pipeline", "What do the first packet of a flow and the change of a rule cost?"),
    ("classifier", "How fast is one OpenFlow table, without the rest of the switch?"),
    ("megaflows", "How many megaflows and masks does traffic need, by the masks of a classifier?"),
    (
        "gigaflow-hits",
        "How often do packets hit in 4 x 8K sub-traversals (Gigaflow), and in 32K megaflows?",
    ),
    (
        "gigaflow-settled",
        "How far are Gigaflow's hits below those of megaflows after the start of a run?",
    ),
    ("gigaflow-stages", "How many stages of sub-traversals are enough?"),
    ("gigaflow-policies", "Where should a traversal be divided into sub-traversals?"),
    ("gigaflow-liveness", "Does a register that no table reads cost cache entries?"),
    ("gigaflow-arrival", "How does the hit rate recover after many new flows arrive?"),
    ("gigaflow-costs", "What does a miss and a hit cost with sub-traversals?"),
    ("gigaflow-packets", "What does a packet cost on average, hits and misses together?"),
    ("gigaflow-cores", "How do misses change if several cores have a cache each?"),
    (
        "gigaflow-forwarding",
        "How many CPU cycles does a packet take through ten tables, by kind of cache?",
    ),
    (
        "gigaflow-flapping",
        "Does a NIC forward a packet by a rule that a barrier reply has confirmed as replaced?",
    ),
    (
        "nuevomatch-forwarding",
        "How many CPU cycles does a packet take through a table with hundreds of masks?",
    ),
    ("nuevomatch-lookup", "How fast does the learned index find the rule of a packet?"),
    ("nuevomatch-answers", "Does the learned index ever give a wrong answer?"),
    ("nuevomatch-build", "How long does it take to build the learned index of a rule set?"),
    ("nuevomatch-updates", "How fast can rules change while another thread looks up packets?"),
    ("nuevomatch-bundles", "Do lookups slow down while many rules are added at once?"),
    ("nuevomatch-sizes", "How does forwarding depend on the number of rules, with each cache?"),
    ("foresight-coflows", "How much faster are flows that have a cache entry before they start?"),
    ("foresight-predictors", "How many misses do predictors save, and what do they cost?"),
    ("foresight-run-time", "How near do predictors come to a perfect forecast of coflows?"),
    ("foresight-offline", "Which new flows can predictors know, without the time of a switch?"),
    (
        "foresight-gigaflow",
        "How many misses does a forecast save with Gigaflow, and with megaflows?",
    ),
    ("nic-push", "How many rules per second can the switch write into the embedded NIC?"),
    ("nic-latency", "How soon does a NIC forward a new flow by itself?"),
    ("workloads", "Do the generated workloads have the published properties?"),
    ("generation", "How long does it take to generate a workload, and with how much memory?"),
    (
        "characterisation",
        "How often does a megaflow cache hit, and which steps make a miss expensive?",
    ),
    ("misses", "How much do the costs of misses differ from each other?"),
    (
        "slow-path",
        "What do rules, new flows and revalidation cost in switches with long pipelines?",
    ),
    ("kairo-updates", "What does it cost to find the cache entries that a rule change made stale?"),
    (
        "kairo-revalidation",
        "What does a rule change cost in Shunt, and with Open vSwitch's revalidators?",
    ),
    ("kairo-sizes", "How does the cost of a change grow with the change and with the cache?"),
    ("kairo-gigaflow", "What does a rule change cost if the cache holds sub-traversals?"),
    ("kairo-engines", "Which eviction engine finds stale entries at the lowest cost?"),
    ("kairo-gates", "What do the gates and the timer of the published engine save?"),
    ("kairo-overhead", "What does an eviction engine cost while no rule changes?"),
    ("kairo-barrier", "How long do packets follow a rule that was replaced?"),
    ("kairo-live", "How does the eviction engine affect a controller and the packets?"),
    ("kairo-flapping", "Can a controller trust a barrier reply?"),
    ("kairo-repair", "How deep does throughput fall after a change of many cache entries?"),
];

/// Returns the question that an experiment answers; `None` for an unknown name.
pub(super) fn question(experiment: &str) -> Option<&'static str> {
    QUESTIONS.iter().find(|(name, _)| *name == experiment).map(|(_, question)| *question)
}

/// The columns of the table of all rows.
pub(super) const COLUMNS: &str = "\
| column | content |
| --- | --- |
| measurement | the measured case, and after the colon the measured quantity |
| published | the value in the source above, in the unit of the measured value; `-`: none |
| measured | Shunt's value with its unit: the median of all rounds (smallest to largest round) |
| rival | the name of the other side, and its value in the same rounds |
| ratio | with a rival, how many times better Shunt is (worst to best round): 2.00 is half the time or \
twice the rate, below 1 is worse. *Within the noise*: the rounds disagree, or differ by less than \
2 %. Without a rival, the measured value divided by the published one |
| reason for the difference | why Shunt is worse than the rival, or differs from the published value \
by more than 10 %. \"Ours\" and \"here\" mean Shunt in this run |
";

/// Returns the table of the words that a text contains.
pub(super) fn words_of(text: &str) -> String {
    let mut table = "| word | meaning |\n| --- | --- |\n".to_owned();
    let head = table.len();
    for (word, meaning) in WORDS.iter().filter(|(word, _)| contains(text, word)) {
        let _ = writeln!(table, "| {word} | {meaning} |");
    }
    if table.len() == head { String::new() } else { table }
}

/// Returns whether a text contains words, with no letter or digit next to them.
fn contains(text: &str, words: &str) -> bool {
    let is_bound = |sign: Option<char>| sign.is_none_or(|sign| !sign.is_alphanumeric());
    text.match_indices(words).any(|(at, _)| {
        let before = text.get(..at).and_then(|part| part.chars().next_back());
        let after = text.get(at + words.len()..).and_then(|part| part.chars().next());
        is_bound(before) && is_bound(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{EXPERIMENTS, registry::OF_DBSP};

    #[test]
    fn every_experiment_has_one_question() {
        for experiment in EXPERIMENTS {
            assert!(question(experiment.name).is_some(), "{} has no question", experiment.name);
        }
        for (name, question) in QUESTIONS {
            let is_known = EXPERIMENTS.iter().any(|experiment| experiment.name == *name);
            assert!(is_known || OF_DBSP.contains(name), "{name} is no experiment");
            assert!(question.ends_with('?'), "{name}: {question}");
            assert_eq!(QUESTIONS.iter().filter(|(other, _)| other == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_results_page_explains_only_its_own_terms() {
        let table = words_of("| hit rate with 4 LTM entries |");
        assert!(table.contains("| LTM entries |"), "{table}");
        assert!(!table.contains("ClassBench"), "{table}");
        assert_eq!(words_of("nothing"), "");
        assert!(contains("a EMC, b", "EMC") && !contains("EMCs", "EMC"));
        // Only rows of NIC experiments have batches of rules.
        for text in ["CPU of a lookup, in batches of 32 packets", "sorted batches of rows"] {
            assert!(!words_of(text).contains("P4Runtime"), "{text}");
        }
        assert!(words_of("| batches of 1: rules |").contains("P4Runtime"));
    }
}
