//! Steady-state hit rates where Gigaflow loses: OLS with ten times the published packets.
//!
//! The published design hits much less often than megaflows with this pipeline. Set duelling
//! chooses one of the two policies by sampled packets. This choice takes time: in a short run, even
//! the last third includes a part of this time.

use super::{
    hits::CacheCase,
    replay::{STAGE_ENTRIES, Testbed},
};
use crate::{
    experiment::{Better, Row, Run},
    experiments::loaded::LOCALITIES,
};

/// Configurations with eviction: megaflows, LTM entries, and set duelling.
const NAMES: [&str; 4] = ["megaflow-lru", "megaflow-second-use", "gigaflow-lru", "gigaflow-switch"];

const PACKETS: usize = 3_000_000;
const FLOWS: usize = 100_000;
const RULES: usize = 10_000;

const FINAL_HIT_RATE: &str = "hit rate in the last third of 3,000,000 packets";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let cache_cases = NAMES.map(|name| (name, CacheCase::find(name)));
    run.begin(LOCALITIES.len() * (cache_cases.len() + 1));
    let scale = run.either(1, 20);
    let mut rows = Vec::new();
    for locality in LOCALITIES {
        let (flows, packets, rules) = (FLOWS / scale, PACKETS / scale, RULES / scale);
        let name = format!("ols:{locality}:{flows}:packets={packets}:rules={rules}");
        let testbed = run.step(&name, |_| Testbed::new(&name));
        for (name, cache_case) in cache_cases {
            let name = format!("ols {locality} {name}");
            let Some(cache_case) = cache_case else { continue };
            let share = run.step(&name, |_| late_hits(&testbed, cache_case, scale));
            let row = Row::new(name, FINAL_HIT_RATE, "%");
            rows.push(Row { better: Better::More, ours: share.into(), ..row });
        }
    }
    rows
}

/// Returns the hit rate of the last third in percent.
fn late_hits(testbed: &Testbed, cache_case: &CacheCase, scale: usize) -> f64 {
    let mut replay = cache_case.replay(testbed, cache_case.capacity(STAGE_ENTRIES / scale));
    let packets = testbed.packets.len();
    let last = packets - packets / 3;
    replay.send(0..last);
    let hits = replay.send(last..packets);
    100.0 * hits as f64 / (packets - last).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_compared_cache_has_settings() {
        assert!(NAMES.iter().all(|name| CacheCase::find(name).is_some()));
    }
}
