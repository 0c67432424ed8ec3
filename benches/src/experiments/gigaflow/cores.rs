//! Several cores. Each core has a cache and the packets of a share of the flows.

use shunt_gigaflow::partition::PolicyName;

use super::replay::{Replay, Resume, STAGE_ENTRIES, Testbed, config};
use crate::experiment::{Row, Run};

const CORES: [u64; 5] = [1, 2, 4, 8, 16];

const MISSES_PER_CORE: &str = "misses per core, by number of cores";
const TOTAL_MISSES: &str = "misses of all cores, by number of cores";

const MEGAFLOWS: &str = "megaflow 32K";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(1 + CORES.len());
    let scale = run.either(1, 10);
    let testbed = run.step("psc high", |_| Testbed::published("psc", "high", scale));
    let mut rows = Vec::new();
    for cores in CORES {
        let title = format!("psc high {cores} cores");
        let [gigaflow, megaflow] =
            run.step(&title, |_| misses(&testbed, cores, STAGE_ENTRIES / scale));
        for (metric, parts) in [(MISSES_PER_CORE, cores as f64), (TOTAL_MISSES, 1.0)] {
            rows.push(Row {
                ours: (gigaflow as f64 / parts).into(),
                rival: Some((MEGAFLOWS.to_owned(), (megaflow as f64 / parts).into())),
                ..Row::new(title.clone(), metric, "count")
            });
        }
    }
    rows.sort_by_key(|row: &Row| row.metric != MISSES_PER_CORE);
    rows
}

/// Returns the misses of all cores, with LTM entries and with megaflows.
///
/// Both caches have equal size.
fn misses(testbed: &Testbed, cores: u64, entries: usize) -> [u64; 2] {
    let gigaflow = config(4, entries, PolicyName::Joint);
    let megaflow = config(1, 4 * entries, PolicyName::Megaflow);
    [gigaflow, megaflow].map(|config| {
        let of_core = |core| {
            let mut replay = Replay::new(testbed, config, Resume::StartOver);
            let is_its = |number: &usize| core_of(testbed.packets[*number], cores) == core;
            let packets: Vec<usize> = (0..testbed.packets.len()).filter(is_its).collect();
            packets.len() as u64 - replay.send(packets.into_iter())
        };
        (0..cores).map(of_core).sum()
    })
}

/// Returns the core of a flow, chosen as a NIC with RSS distributes flows.
fn core_of(flow: u32, cores: u64) -> u64 {
    (u64::from(flow).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_spread_evenly_over_cores() {
        let mut shares = [0; 4];
        (0..4000).for_each(|flow| shares[usize::try_from(core_of(flow, 4)).unwrap()] += 1);
        assert!(shares.iter().all(|share| (900..1100).contains(share)), "{shares:?}");
        assert_eq!(core_of(17, 8), core_of(17, 8));
    }
}
