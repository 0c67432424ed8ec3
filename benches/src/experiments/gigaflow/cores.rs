//! More cores: each has a cache of its own, and the packets of the flows that fall to it.

use shunt_gigaflow::partition::PolicyName;

use super::replay::{Bed, Replay, Resume, STAGE_ENTRIES, config};
use crate::experiment::{Row, Run};

const CORES: [u64; 5] = [1, 2, 4, 8, 16];

const EACH: &str = "misses of a core, by cores";
const ALL: &str = "misses of all cores together, by cores";

const WHOLE: &str = "megaflow 32K";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(1 + CORES.len());
    let scale = run.either(1, 10);
    let bed = run.step("psc high", |_| Bed::published("psc", "high", scale));
    let mut rows = Vec::new();
    for cores in CORES {
        let title = format!("psc high {cores} cores");
        let [pieces, whole] = run.step(&title, |_| misses(&bed, cores, STAGE_ENTRIES / scale));
        for (metric, parts) in [(EACH, cores as f64), (ALL, 1.0)] {
            rows.push(Row {
                ours: (pieces as f64 / parts).into(),
                rival: Some((WHOLE.to_owned(), (whole as f64 / parts).into())),
                ..Row::new(title.clone(), metric, "count")
            });
        }
    }
    rows.sort_by_key(|row: &Row| row.metric != EACH);
    rows
}

/// Misses of all cores together: with pieces in four stages each, and with whole entries in one table
/// of as much room each.
fn misses(bed: &Bed, cores: u64, entries: usize) -> [u64; 2] {
    let pieces = config(4, entries, PolicyName::Joint);
    let whole = config(1, 4 * entries, PolicyName::Megaflow);
    [pieces, whole].map(|config| {
        let of_core = |core| {
            let mut replay = Replay::new(bed, config, Resume::StartOver);
            let is_its = |number: &usize| core_of(bed.packets[*number], cores) == core;
            let packets: Vec<usize> = (0..bed.packets.len()).filter(is_its).collect();
            packets.len() as u64 - replay.send(packets.into_iter())
        };
        (0..cores).map(of_core).sum()
    })
}

/// Where the packets of a flow go, as a NIC spreads them.
fn core_of(flow: u32, cores: u64) -> u64 {
    (u64::from(flow).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_has_one_core_and_every_core_has_its_share() {
        let mut shares = [0; 4];
        (0..4000).for_each(|flow| shares[usize::try_from(core_of(flow, 4)).unwrap()] += 1);
        assert!(shares.iter().all(|share| (900..1100).contains(share)), "{shares:?}");
        assert_eq!(core_of(17, 8), core_of(17, 8));
    }
}
