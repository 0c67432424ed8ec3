//! Forwarding through one table of 1,000 to 500,000 rules, compared with OVS-DPDK as installed.
//!
//! The set-up is that of `nuevomatch-forwarding`, in the form of the published comparison: three
//! rule sets of each size, and flow sizes as in a CAIDA trace. Shunt runs with default settings,
//! which include the learned index over megaflows (the computational cache), and with
//! computational flows. The published values are geometric means over twelve rule sets.

use std::path::Path;

use super::forwarding::{Subject, explain, measure};
use crate::{
    experiment::{Better, Row, Run},
    experiments::{
        captures::Files,
        forwarding::{CHOICES, Pair, Sample, pair_rows},
    },
    switch::Contender,
};

/// Numbers of rules, with the published means of both variants.
const SIZES: &[(&str, f64, f64)] = &[("1K", 1.02, 2.6), ("100K", 1.5, 8.5), ("500K", 1.9, 12.3)];

const SETS: &[&str] = &["acl", "fw", "ipc"];

/// The pairs of the published comparison.
const AGAINST_INSTALLED: [&str; 2] = ["against EMC", "flows against EMC"];

/// Seconds of a measurement after the set-up.
const SECONDS: usize = 3;

const METRIC: &str = "rate in multiples of OVS-DPDK as installed, geometric mean";

const WHY: &str = "other rule sets, other packets and another processor; OVS-DPDK is 3.1 here, and \
                   2.13 in the paper";

/// Compares both switches with each rule set of each size.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let mut subjects = Subject::own();
    let mut pairs: Vec<Pair> = Vec::new();
    if let Some(rival) = Contender::OpenVSwitchDpdk.if_installed() {
        let (caches, words) = CHOICES[0];
        let name = format!("{}, {words}", rival.name());
        subjects.push(Subject { contender: rival, caches, name, entries_max: None });
        pairs.extend(AGAINST_INSTALLED.iter().enumerate().map(|(own, name)| (*name, own, Some(2))));
    } else {
        pairs.extend([("as installed", 0, None), ("flows", 1, None)]);
    }
    let (sizes, sets) = if run.is_quick { (&SIZES[..1], &SETS[..1]) } else { (SIZES, SETS) };
    let (rounds, seconds) = (run.either(3, 1), run.either(SECONDS, 1) as u64);
    run.begin(sizes.len() * sets.len() * (1 + rounds * subjects.len()));
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    let mut rows = Vec::new();
    for (size, ..) in sizes {
        for set in sets {
            let title = format!("{set} {size}");
            let files = run.step(&title, |folder| Files::of(&workload(set, size), folder));
            let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (subject, samples) in subjects.iter().zip(&mut samples) {
                    let what = format!("{title}, {}", subject.name);
                    let step = |folder: &Path| measure(subject, folder, &files, seconds);
                    samples.push(run.step(&what, step));
                }
            }
            rows.extend(pairs.iter().flat_map(|pair| pair_rows(&title, pair, &names, &samples)));
        }
    }
    explain(&mut rows);
    // The main metric first.
    rows.sort_by_key(|row| row.unit != "cycles");
    rows.splice(0..0, mean_rows(&rows));
    rows
}

/// Returns the name of the workload: 100,000 flows with the sizes of a CAIDA trace.
fn workload(set: &str, size: &str) -> String {
    format!("classbench-{set}:100k:rules={}:sizes=caida:packets=180k", size.to_lowercase())
}

/// Returns the geometric means over the rule sets of each size.
fn mean_rows(rows: &[Row]) -> Vec<Row> {
    let mut means = Vec::new();
    for (own, against) in AGAINST_INSTALLED.into_iter().enumerate() {
        for (size, cache, flows) in SIZES {
            let names: Vec<String> =
                SETS.iter().map(|set| format!("{set} {size}, {against}")).collect();
            let of_size =
                rows.iter().filter(|row| row.unit == "cycles" && names.contains(&row.name));
            let ratios: Vec<f64> =
                of_size.filter_map(Row::ratio).map(|ratio| ratio.middle.ln()).collect();
            if ratios.is_empty() {
                continue;
            }
            let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
            let row = Row::new(format!("mean of the sets of {size}, {against}"), METRIC, "");
            let row = Row { ours: mean.into(), better: Better::More, ..row };
            means.push(row.beside_published(Some(if own == 0 { *cache } else { *flows }), WHY));
        }
    }
    means
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Samples;

    #[test]
    fn means_are_over_the_sets_of_a_size() {
        let row = |name: &str, rival: f64| {
            let rival = Some(("OVS-DPDK".to_owned(), Samples(vec![rival; 3])));
            let ours = Samples(vec![100.0; 3]);
            Row { ours, rival, ..Row::new(name, "CPU cycles per packet", "cycles") }
        };
        let rows = [
            row("acl 1K, against EMC", 200.0),
            row("fw 1K, against EMC", 800.0),
            row("acl 100K, against EMC", 150.0),
            row("acl 1K, flows against EMC", 260.0),
        ];
        let means = mean_rows(&rows);
        let values: Vec<(&str, f64, Option<f64>)> = means
            .iter()
            .map(|row| (row.name.as_str(), (row.ours.median() * 1e6).round() / 1e6, row.published))
            .collect();
        let expected = [
            ("mean of the sets of 1K, against EMC", 4.0, Some(1.02)),
            ("mean of the sets of 100K, against EMC", 1.5, Some(1.5)),
            ("mean of the sets of 1K, flows against EMC", 2.6, Some(2.6)),
        ];
        assert_eq!(values, expected);
        assert_eq!((means[0].reason, means[2].reason), (WHY, ""));
    }

    #[test]
    fn workloads_have_the_size_in_their_name() {
        for (size, ..) in SIZES {
            let name = workload("fw", size);
            assert!(name.parse::<shunt_pipebench::name::WorkloadName>().is_ok(), "{name}");
        }
    }
}
