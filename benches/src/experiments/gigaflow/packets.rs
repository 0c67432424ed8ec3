//! What a packet costs on average, hits and misses together.

use shunt_gigaflow::partition::PolicyName;
use shunt_pipebench::published::Figure;

use super::replay::{Bed, Replay, Resume, STAGE_ENTRIES, config};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    experiments::loaded::{LOCALITIES, PIPELINES, WHY_OLS},
};

const MEAN: &str = "CPU of a packet, those that miss among them";
const LESS: &str = "less CPU of a packet than with whole entries";

const WHOLE: &str = "megaflow 32K";

const WHY: &str = "the published figure is the latency of packets on their way through a NIC, of which \
                   about 9 us are the same for every packet; ours is what hits and misses cost a \
                   processor";
const WHY_WORSE: &str = "pieces save misses and make each packet that hits cost more: where whole \
                         entries miss hardly more often, they are cheaper";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * LOCALITIES.len() * 2);
    let scale = run.either(1, 10);
    let rounds = run.either(5, 3);
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for locality in LOCALITIES {
            let title = format!("{pipeline} {locality}");
            let bed = run.step(&title, |_| Bed::published(pipeline, locality, scale));
            let [pieces, whole] =
                run.step(&format!("{title} packets"), |_| measure(&bed, rounds, scale));
            let less = pieces.0.iter().zip(&whole.0);
            let less = Samples(less.map(|(own, whole)| 100.0 * (1.0 - own / whole)).collect());
            let published = Figure::find("latency_reduction", pipeline, locality, "4x8K vs 32K");
            let published = published.filter(|_| scale == 1).map(|figure| figure.value);
            let is_worse = less.median() < 0.0;
            let row =
                Row { better: Better::More, ours: less, ..Row::new(title.clone(), LESS, "%") };
            rows.push(row.beside_published(published, if is_worse { WHY_OLS } else { WHY }));
            rows.push(Row {
                ours: pieces,
                rival: Some((WHOLE.to_owned(), whole)),
                why: if is_worse { WHY_WORSE } else { "" },
                ..Row::new(title, MEAN, "us")
            });
        }
    }
    rows.sort_by_key(|row: &Row| row.metric != MEAN);
    rows
}

/// Microseconds of a packet, in rounds: with pieces, and with whole entries in as much room.
fn measure(bed: &Bed, rounds: usize, scale: usize) -> [Samples; 2] {
    let entries = STAGE_ENTRIES / scale;
    let ways =
        [config(4, entries, PolicyName::Joint), config(1, 4 * entries, PolicyName::Megaflow)];
    let mut spent = [Samples::default(), Samples::default()];
    for _ in 0..rounds {
        for (config, samples) in ways.iter().zip(&mut spent) {
            let mut replay = Replay::new(bed, *config, Resume::StartOver);
            let ns = cpu::timed(|| {
                replay.send(0..bed.packets.len());
            });
            samples.0.push(ns as f64 / 1e3 / bed.packets.len().max(1) as f64);
        }
    }
    spent
}
