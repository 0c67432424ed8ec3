//! Average CPU cost of a packet over hits and misses.

use shunt_gigaflow::partition::PolicyName;
use shunt_pipebench::published::Figure;

use super::replay::{Replay, Resume, STAGE_ENTRIES, Testbed, config};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    experiments::loaded::{LOCALITIES, PIPELINES, WHY_OLS},
};

const MEAN: &str = "CPU per packet, hits and misses";
const CPU_SAVED: &str = "CPU per packet saved compared with megaflows";

const MEGAFLOWS: &str = "megaflow 32K";

const WHY: &str = "the published value is the latency of packets through a NIC, of which about 9 \
                   us are constant; ours is the CPU of hits and misses";
const WHY_WORSE: &str = "LTM entries save misses and make each hit more expensive; where \
                         megaflows hardly miss more often, megaflows are cheaper";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * LOCALITIES.len() * 2);
    let scale = run.either(1, 10);
    let rounds = run.either(5, 3);
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for locality in LOCALITIES {
            let title = format!("{pipeline} {locality}");
            let testbed = run.step(&title, |_| Testbed::published(pipeline, locality, scale));
            let [gigaflow, megaflow] =
                run.step(&format!("{title} packets"), |_| measure(&testbed, rounds, scale));
            let less = gigaflow.0.iter().zip(&megaflow.0);
            let less =
                Samples(less.map(|(own, megaflow)| 100.0 * (1.0 - own / megaflow)).collect());
            let published = Figure::find("latency_reduction", pipeline, locality, "4x8K vs 32K");
            let published = published.filter(|_| scale == 1).map(|figure| figure.value);
            let is_worse = less.median() < 0.0;
            let row =
                Row { better: Better::More, ours: less, ..Row::new(title.clone(), CPU_SAVED, "%") };
            rows.push(row.beside_published(published, if is_worse { WHY_OLS } else { WHY }));
            rows.push(Row {
                ours: gigaflow,
                rival: Some((MEGAFLOWS.to_owned(), megaflow)),
                reason: if is_worse { WHY_WORSE } else { "" },
                ..Row::new(title, MEAN, "us")
            });
        }
    }
    rows.sort_by_key(|row: &Row| row.metric != MEAN);
    rows
}

/// Returns microseconds per packet, with LTM entries and with megaflows.
///
/// Both caches have equal size.
fn measure(testbed: &Testbed, rounds: usize, scale: usize) -> [Samples; 2] {
    let entries = STAGE_ENTRIES / scale;
    let configs =
        [config(4, entries, PolicyName::Joint), config(1, 4 * entries, PolicyName::Megaflow)];
    let mut spent = [Samples::default(), Samples::default()];
    for _ in 0..rounds {
        for (config, samples) in configs.iter().zip(&mut spent) {
            let mut replay = Replay::new(testbed, *config, Resume::StartOver);
            let ns = cpu::measure_ns(|| {
                replay.send(0..testbed.packets.len());
            });
            samples.0.push(ns as f64 / 1e3 / testbed.packets.len().max(1) as f64);
        }
    }
    spent
}
