//! One update in several sizes, and with caches of several sizes.
//!
//! This reproduces A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second
//! Era*, figures 4.7a to 4.7c. A share of the rules of one table is added and removed (P2 is a
//! tenth of all rules). The cache has as many entries as the flows need. From the same samples, the
//! maximum cache size for a million stale packets is computed.

use std::sync::Arc;

use shunt_kairo::Direct;
use shunt_pipebench::published::Figure;
use shunt_pipeline::{FlowModCommand, Iterative};

use super::{
    engines::{PIPELINES, RIVAL},
    patterns::PACKETS_PER_US,
    workload::{Clock, UpdateWorkload, Watched},
};
use crate::experiment::{Better, Row, Run};

/// Percentages of all rules.
const SHARES: [usize; 5] = [2, 4, 6, 8, 10];
/// Numbers of cached flows, in thousands.
const FLOWS: [usize; 3] = [50, 100, 250];
/// Flows in thousands, for pipelines with few tables that fit into memory.
const MANY_FLOWS: usize = 1000;
const SHORT_PIPELINES: [&str; 2] = ["ofd", "psc"];
/// Flows that the published mean covers, in thousands.
const OF_MEAN: [usize; 2] = [100, 250];

const BY_SHARE: &str = "CPU of the eviction engine for one change, by share of all rules";
const BY_ENTRIES: &str =
    "CPU of the eviction engine for a change of a tenth of all rules, by entries";
const EVICTED_BY_SHARE: &str = "entries evicted by a change, by share of all rules";
const EVICTED_BY_ENTRIES: &str = "entries evicted by a change of a tenth of all rules, by entries";
const SPEED_UP: &str = "speed-up over the iterative engine, by share of all rules";
const FASTER_BY_FLOWS: &str =
    "speed-up over the iterative engine, for a tenth of all rules, by flows";

const LARGEST: &str =
    "largest cache in which one update P2 leaves at most 1M stale packets (computed)";
const LARGER: &str =
    "that cache divided by that of the iterative engine, mean of the pipelines (computed)";

/// Link rates in Gbit/s.
const RATES: [f64; 5] = [50.0, 100.0, 200.0, 400.0, 800.0];
/// Maximum number of stale packets.
const STALE_MAX: f64 = 1e6;

const WHY_LARGER: &str = "our change costs less than the published one at any size, so a million \
                          stale packets need a larger cache. Most of these caches are smaller \
                          than all measured ones, and some are larger";

const WHY: &str = "the cost of Shunt's engine grows with the evicted entries, that of the \
                   published engine with the rules and packets that it reads; the number of its \
                   evictions is unknown";

/// The metrics in reading order.
const ORDER: [&str; 8] = [
    SPEED_UP,
    FASTER_BY_FLOWS,
    LARGER,
    BY_SHARE,
    EVICTED_BY_SHARE,
    BY_ENTRIES,
    EVICTED_BY_ENTRIES,
    LARGEST,
];

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = if run.is_quick { &PIPELINES[..1] } else { PIPELINES };
    let many = |pipeline: &str| usize::from(SHORT_PIPELINES.contains(&pipeline));
    let sizes: usize = pipelines.iter().map(|one| FLOWS.len() + many(one)).sum();
    run.begin(pipelines.len() * (SHARES.len() + 1) + sizes);
    let scale = run.either(1, 10);
    let published = |pipeline: &str, configuration: &str| {
        let figure = Figure::find("tte_speedup", pipeline, "-", configuration);
        figure.filter(|_| scale == 1).map(|figure| figure.value)
    };
    let mut rows = Vec::new();
    let mut of_mean = Vec::new();
    let mut larger = RATES.map(|_| Vec::new());
    for pipeline in pipelines {
        let flows = 100 / scale;
        let name = format!("{pipeline}:low:{flows}k:updates=p2@100ms");
        let workload = run.step(&name, |_| UpdateWorkload::of(&name));
        for share in SHARES {
            let title = format!("{pipeline} {share} %");
            // P2 changes a tenth of all rules.
            let rules = (workload.changing.len() * share / 10).max(1);
            let measured = run.step(&title, |_| measure(&workload, rules));
            let published = published(pipeline, &format!("{share} % of the rules"));
            rows.push(speed_up_row(title.clone(), SPEED_UP, times_faster(&measured), published));
            let metrics = [BY_SHARE, EVICTED_BY_SHARE];
            rows.extend(rows_of(title, metrics, measured, workload.keys.len() as f64));
        }
        drop(workload);
        let mut curves = [Curve::default(), Curve::default()];
        for thousands in FLOWS.into_iter().chain(std::iter::repeat_n(MANY_FLOWS, many(pipeline))) {
            let name = format!("{pipeline}:low:{}k:updates=p2@100ms", thousands / scale);
            let (entries, measured) = run.step(&name, |_| {
                let workload = UpdateWorkload::of(&name);
                (workload.keys.len(), measure(&workload, workload.changing.len()))
            });
            for ((curve, watched), part) in curves.iter_mut().zip(&measured).zip([1.0, 0.5]) {
                curve.add(
                    entries as f64,
                    part * watched.stale_us(entries as f64).in_pairs().median(),
                );
            }
            let times = times_faster(&measured);
            of_mean.extend(OF_MEAN.contains(&thousands).then_some(times));
            let published = published(pipeline, &format!("P2, {thousands}K entries"));
            let title = format!("{pipeline} {}K", thousands / scale);
            rows.push(speed_up_row(title, FASTER_BY_FLOWS, times, published));
            let (title, metrics) =
                (format!("{pipeline} {entries} entries"), [BY_ENTRIES, EVICTED_BY_ENTRIES]);
            rows.extend(rows_of(title, metrics, measured, entries as f64));
        }
        for (rate, ratios) in RATES.iter().zip(&mut larger) {
            let [ours, theirs] = curves.each_ref().map(|curve| curve.largest(*rate));
            ratios.push(ours / theirs);
            rows.push(Row {
                // The value is computed from a fit: there are no rounds to compare.
                better: Better::Neither,
                ours: ours.into(),
                rival: Some((RIVAL.to_owned(), theirs.into())),
                ..Row::new(format!("{pipeline} {rate} Gbit/s"), LARGEST, "count")
            });
        }
    }
    let published = published("-", "P2, 100K to 250K entries");
    let mean = of_mean.iter().sum::<f64>() / of_mean.len().max(1) as f64;
    let title =
        format!("mean of the pipelines, {}K and {}K", OF_MEAN[0] / scale, OF_MEAN[1] / scale);
    rows.push(speed_up_row(title, FASTER_BY_FLOWS, mean, published));
    rows.extend(larger_rows(&larger, scale == 1));
    rows.sort_by_key(|row: &Row| ORDER.iter().position(|metric| *metric == row.metric));
    rows
}

/// Returns the mean factor over the pipelines at each rate.
fn larger_rows(larger: &[Vec<f64>; RATES.len()], is_full: bool) -> impl Iterator<Item = Row> {
    RATES.iter().zip(larger).map(move |(rate, ratios)| {
        let figure = Figure::find("cache_size_ratio", "-", "-", &format!("{rate} Gbps"));
        let published = figure.filter(|_| is_full).map(|figure| figure.value);
        let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
        let name = format!("{rate} Gbit/s");
        Row { better: Better::More, ours: mean.into(), ..Row::new(name, LARGER, "x") }
            .beside_published(published, WHY_LARGER)
    })
}

/// Returns the median speed-up of our changes.
fn times_faster([ours, theirs]: &[Watched; 2]) -> f64 {
    theirs.spent.in_pairs().median() / ours.spent.in_pairs().median()
}

fn speed_up_row(name: String, metric: &'static str, times: f64, published: Option<f64>) -> Row {
    Row { better: Better::More, ours: times.into(), ..Row::new(name, metric, "x") }
        .beside_published(published, WHY)
}

/// Returns the cost of a change, and the evicted share of `entries`.
fn rows_of(
    name: String,
    [cost, evicted]: [&'static str; 2],
    [ours, theirs]: [Watched; 2],
    entries: f64,
) -> [Row; 2] {
    let rival = |samples| Some((RIVAL.to_owned(), samples));
    let share =
        |watched: &Watched| watched.evicted.in_pairs().map(|evicted| 100.0 * evicted / entries);
    [
        Row {
            ours: ours.spent.in_pairs(),
            rival: rival(theirs.spent.in_pairs()),
            ..Row::new(name.clone(), cost, "us")
        },
        Row {
            better: Better::Neither,
            ours: share(&ours),
            rival: rival(share(&theirs)),
            ..Row::new(name, evicted, "%")
        },
    ]
}

/// Adds and removes `rules` rules three times:
/// with our engine, then with the rival.
fn measure(workload: &UpdateWorkload, rules: usize) -> [Watched; 2] {
    let direct = Box::new(Direct::new(workload.pipeline.version(), 1));
    let iterative = Box::new(Iterative::new(Arc::clone(&workload.pipeline)));
    let mut both = [
        Watched::new(direct, workload.keys.len(), Clock::Thread),
        Watched::new(iterative, workload.keys.len(), Clock::Thread),
    ];
    for watched in &mut both {
        watched.load(workload);
    }
    let changing = workload.changing.get(..rules).unwrap_or(&workload.changing);
    for _ in 0..3 {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            let change = workload.change(command, changing);
            for watched in &mut both {
                watched.apply_and_restore(&change, workload);
            }
        }
    }
    both
}

/// Stale time as a function of the number of entries of a cache.
///
/// The function is a power of the number, as in the published fit.
#[derive(Default)]
struct Curve {
    /// Logarithms of the number of entries, and of the microseconds of full staleness.
    points: Vec<(f64, f64)>,
}

impl Curve {
    fn add(&mut self, entries: f64, stale_us: f64) {
        self.points.push((entries.ln(), stale_us.ln()));
    }

    /// Returns the largest cache with at most [`STALE_MAX`] stale packets at a rate.
    fn largest(&self, gigabits: f64) -> f64 {
        let count = self.points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| self.points.iter().map(of).sum::<f64>() / count;
        let (entries, stale) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| self.points.iter().map(of).sum::<f64>();
        let slope = sum(&|point| (point.0 - entries) * (point.1 - stale))
            / sum(&|point| (point.0 - entries).powi(2));
        let allowed = (STALE_MAX / (PACKETS_PER_US * gigabits / 100.0)).ln();
        (entries + (allowed - stale) / slope).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_cache_meets_the_stale_limit() {
        let mut curve = Curve::default();
        // Each entry costs a hundredth of a microsecond.
        [1e4, 1e5, 1e6].into_iter().for_each(|entries| curve.add(entries, entries / 100.0));
        let largest = curve.largest(100.0);
        assert!((largest / (100.0 * 1e6 / PACKETS_PER_US) - 1.0).abs() < 1e-9, "{largest}");
        assert!((curve.largest(200.0) * 2.0 / largest - 1.0).abs() < 1e-9);
    }
}
