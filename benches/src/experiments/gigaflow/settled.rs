//! Where pieces lose, once the duel has settled: OLS, ten times as many packets as published.
//!
//! The published design loses many hits to whole entries there. Which of both is better is decided on
//! packets that are drawn, so it takes its time; the last third of a short run has a part of that in it.

use super::{
    hits::Way,
    replay::{Bed, STAGE_ENTRIES},
};
use crate::{
    experiment::{Better, Row, Run},
    experiments::loaded::LOCALITIES,
};

/// Those that make room, whole and with the duel.
const WAYS: [&str; 4] = ["megaflow-lru", "megaflow-second-use", "gigaflow-lru", "gigaflow-switch"];

const PACKETS: usize = 3_000_000;
const FLOWS: usize = 100_000;
const RULES: usize = 10_000;

const LATE: &str = "packets of the last third that hit, of 3,000,000";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let ways = WAYS.map(|name| (name, Way::find(name)));
    run.begin(LOCALITIES.len() * (ways.len() + 1));
    let scale = run.either(1, 20);
    let mut rows = Vec::new();
    for locality in LOCALITIES {
        let (flows, packets, rules) = (FLOWS / scale, PACKETS / scale, RULES / scale);
        let name = format!("ols:{locality}:{flows}:packets={packets}:rules={rules}");
        let bed = run.step(&name, |_| Bed::new(&name));
        for (name, way) in ways {
            let name = format!("ols {locality} {name}");
            let Some(way) = way else { continue };
            let share = run.step(&name, |_| late_hits(&bed, way, scale));
            let row = Row::new(format!("{name} settled hit"), LATE, "%");
            rows.push(Row { better: Better::More, ours: share.into(), ..row });
        }
    }
    rows
}

/// How many of a hundred packets of the last third hit.
fn late_hits(bed: &Bed, way: &Way, scale: usize) -> f64 {
    let mut replay = way.replay(bed, way.capacity(STAGE_ENTRIES / scale));
    let packets = bed.packets.len();
    let last = packets - packets / 3;
    replay.send(0..last);
    let hits = replay.send(last..packets);
    100.0 * hits as f64 / (packets - last).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_one_of_those_that_hits_are_counted_of() {
        assert!(WAYS.iter().all(|name| Way::find(name).is_some()));
    }
}
