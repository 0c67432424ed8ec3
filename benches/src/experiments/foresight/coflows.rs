//! Coflows with a perfect forecast of a share of their flows: figures 4 and 5 of the paper.
//!
//! E. Ståhl, M. Chiesa, S. Ferlin and E. Chaudron, *On the Benefits of Predictable Traffic in Virtual
//! Switches*. The predictable flows have entries before traffic starts, and both switches get the same
//! packets. The published figures are from kernel ports at a million packets per second, so only the
//! relative change by coflowiness is comparable.

use super::{
    run_time::{RECORDED, traces},
    traffic::Coflows,
    wired_switch::{Measured, WiredSwitch},
};
use crate::{
    experiment::{Row, Run, Samples},
    switch::{Contender, Setup},
};

/// Shares of the associated flows that are predicted, in percent.
pub(super) const COFLOWINESS: [u32; 7] = [0, 10, 25, 50, 75, 90, 100];

/// A distribution of flow sizes, with the traffic that has it.
pub(super) struct SizeDistribution {
    pub(super) title: &'static str,
    name: &'static str,
    flows: u32,
    packets: u32,
    pub(super) gap_ns: u64,
}

pub(super) const DISTRIBUTIONS: [SizeDistribution; 2] = [
    SizeDistribution {
        title: "Google search",
        name: "search",
        flows: 193_000,
        packets: 194_000,
        gap_ns: 30_000,
    },
    SizeDistribution {
        title: "Facebook Hadoop",
        name: "hadoop",
        flows: 19_300,
        packets: 390_000,
        gap_ns: 15_000,
    },
];

/// *Facebook Hadoop* with all flows and the mean size of a flow as published.
///
/// A round takes about an hour, so only `--only` selects this distribution.
const WHOLE_HADOOP: SizeDistribution = SizeDistribution {
    title: "Facebook Hadoop, all flows",
    name: "hadoop",
    flows: 193_000,
    packets: 15_720_000,
    gap_ns: 15_000,
};

/// Coflows that a value of `--only` selects.
struct CoflowChoice {
    name: &'static str,
    distribution: &'static SizeDistribution,
    /// True for the sizes, arrivals and racks of the recorded trace.
    is_recorded: bool,
}

/// All coflows that can be selected, the default ones first.
static CHOICES: [CoflowChoice; 5] = [
    CoflowChoice { name: "search", distribution: &DISTRIBUTIONS[0], is_recorded: false },
    CoflowChoice { name: "hadoop", distribution: &DISTRIBUTIONS[1], is_recorded: false },
    CoflowChoice { name: "hadoop-whole", distribution: &WHOLE_HADOOP, is_recorded: false },
    CoflowChoice { name: "search-recorded", distribution: &DISTRIBUTIONS[0], is_recorded: true },
    CoflowChoice { name: "hadoop-recorded", distribution: &DISTRIBUTIONS[1], is_recorded: true },
];

/// Number of coflows that are selected by default.
const DEFAULT_CHOICES: usize = 2;

const FIRST_PACKET_MEAN: &str = "mean latency of the first packet of a flow";
const BASE_MEAN: &str = "mean latency of the first packet of a base flow";
const ASSOCIATED_MEAN: &str = "mean latency of the first packet of an associated flow";
const FIRST_MEDIAN: &str = "median latency of the first packet of a flow";
const MEAN_LATENCY: &str = "mean latency of a packet";
const CPU: &str = "CPU of the switch for a packet";
const LOST: &str = "packets lost";
const FIRST_LEFT: &str = "mean latency of the first packet, of that without forecasts";
const CPU_LEFT: &str = "CPU of the switch, of that without forecasts";

/// Published values with forecasts, in percent of the values without forecasts.
struct PublishedShare {
    distribution: &'static str,
    /// Percentage of the flows with forecasts.
    share: u32,
    latency: Option<f64>,
    cpu: Option<f64>,
}

/// The values that the text of the paper states: abstract and section 5.
const PUBLISHED: [PublishedShare; 5] = [
    PublishedShare { distribution: "search", share: 25, latency: Some(70.0), cpu: None },
    PublishedShare { distribution: "search", share: 100, latency: None, cpu: Some(0.14) },
    PublishedShare { distribution: "hadoop", share: 25, latency: Some(76.0), cpu: Some(88.0) },
    PublishedShare { distribution: "hadoop", share: 50, latency: None, cpu: Some(50.0) },
    PublishedShare { distribution: "hadoop", share: 100, latency: None, cpu: Some(0.14) },
];

const WHY_LATENCY: &str = "published at a million packets per second, where packets wait for each \
                           other; here most of the latency is the wake-up of the switch";
const WHY_CPU: &str = "published for the threads that handle misses alone; here for all threads, which \
                       poll and forward";

/// Ports: the clients, and eight pods.
pub(super) const PORTS: u32 = 9;

impl SizeDistribution {
    /// Returns the name of the workload with a share of predictable flows, in percent.
    pub(super) fn workload(&self, share: u32, scale: u32) -> String {
        format!(
            "coflow:low:{}:coflowiness={}:sizes={}:packets={}",
            self.flows / scale,
            f64::from(share) / 100.0,
            self.name,
            self.packets / scale,
        )
    }
}

/// Returns the values of `--only`.
pub(crate) fn names() -> Vec<&'static str> {
    CHOICES.iter().map(|own| own.name).collect()
}

/// Returns the coflows that the options select.
///
/// Each of them has the end of its workload name.
fn chosen(run: &Run) -> Vec<(&'static CoflowChoice, String)> {
    let is_chosen = |index: usize, own: &CoflowChoice| match run.option("--only") {
        Some(_) => run.chooses("--only", own.name),
        None => index < DEFAULT_CHOICES,
    };
    let all = CHOICES.iter().enumerate().filter(|(index, own)| is_chosen(*index, own));
    let mut chosen: Vec<_> = all.map(|(_, own)| (own, String::new())).collect();
    if chosen.iter().any(|(own, _)| own.is_recorded) {
        let trace = traces().into_iter().find(|(origin, _)| *origin == RECORDED);
        chosen.retain(|(own, _)| !own.is_recorded || trace.is_some());
        let suffix = trace.map(|(_, suffix)| suffix).unwrap_or_default();
        let recorded = chosen.iter_mut().filter(|(own, _)| own.is_recorded);
        recorded.for_each(|(_, end)| end.clone_from(&suffix));
    }
    chosen
}

impl CoflowChoice {
    /// Returns the title of the coflows in results.
    fn title(&self) -> String {
        let origin = if self.is_recorded { "recorded, " } else { "" };
        format!("{origin}{}", self.distribution.title)
    }
}

/// Runs the coflows of `--only` with all shares.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let chosen = chosen(run);
    let shares: &[u32] = if run.is_quick { &[0, 50, 100] } else { &COFLOWINESS };
    let rounds = run.either(3, 1);
    run.begin(chosen.len() * shares.len() * rounds * contenders.len());
    let mut rows = Vec::new();
    for (choice, suffix) in &chosen {
        let distribution = choice.distribution;
        let mut without = Vec::new();
        for share in shares {
            let scale = if run.is_quick { 10 } else { 1 };
            let name = format!("{}{suffix}", distribution.workload(*share, scale));
            let coflows = Coflows::new(&name, distribution.gap_ns);
            let title = format!("{}, {share} % predicted", choice.title());
            let mut measured: Vec<Vec<Measured>> = contenders.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (contender, measured) in contenders.iter().zip(&mut measured) {
                    let what = format!("{title}, {}", contender.name());
                    measured.push(run.step(&what, |folder| measure(contender, folder, &coflows)));
                }
            }
            rows.extend(rows_of(&title, &contenders, &measured));
            let ours = measured.into_iter().next().unwrap_or_default();
            if *share == 0 {
                without = ours;
            } else {
                rows.extend(relative_rows(&title, distribution, *share, &without, &ours));
            }
        }
    }
    // The main metric first.
    rows.sort_by_key(|row| row.metric != FIRST_PACKET_MEAN);
    rows
}

fn measure(contender: &Contender, folder: &std::path::Path, coflows: &Coflows) -> Measured {
    let setup = Setup { keeps_entries: true, forecasts: true, ..Setup::default() };
    let wired = WiredSwitch::new(contender, folder, PORTS, &coflows.rules, &setup);
    wired.preload(&coflows.predicted_flows());
    wired.measure(&coflows.plan)
}

/// Returns latency and CPU in percent of the values without forecasts.
///
/// The rows also have the published values.
fn relative_rows(
    title: &str,
    distribution: &SizeDistribution,
    share: u32,
    without: &[Measured],
    own: &[Measured],
) -> [Row; 2] {
    let mut published = PUBLISHED.iter();
    let published =
        published.find(|known| known.distribution == distribution.name && known.share == share);
    let row = |metric, value: fn(&Measured) -> f64| {
        let pairs = own.iter().zip(without);
        let parts = pairs.map(|(own, without)| 100.0 * value(own) / value(without).max(1.0));
        Row { ours: Samples(parts.collect()), ..Row::new(title, metric, "%") }
    };
    [
        row(FIRST_LEFT, Measured::first_mean)
            .beside_published(published.and_then(|known| known.latency), WHY_LATENCY),
        row(CPU_LEFT, Measured::cpu)
            .beside_published(published.and_then(|known| known.cpu), WHY_CPU),
    ]
}

fn rows_of(title: &str, contenders: &[Contender], measured: &[Vec<Measured>]) -> [Row; 7] {
    let row = |metric, unit, value: fn(&Measured) -> f64| {
        let mut samples = measured.iter().map(|own| Samples(own.iter().map(value).collect()));
        let ours = samples.next().unwrap_or_default();
        let rival = contenders.get(1).map(Contender::name).zip(samples.next());
        Row { ours, rival, ..Row::new(title, metric, unit) }
    };
    [
        row(FIRST_PACKET_MEAN, "us", Measured::first_mean),
        row(BASE_MEAN, "us", Measured::base_mean),
        row(ASSOCIATED_MEAN, "us", Measured::associated_mean),
        row(FIRST_MEDIAN, "us", Measured::first_median),
        row(MEAN_LATENCY, "us", Measured::mean),
        row(CPU, "ns", Measured::cpu),
        row(LOST, "%", |own| 100.0 * own.lost()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Progress;

    #[test]
    fn the_whole_distribution_is_only_run_by_name() {
        let titles = |options: &[&str]| -> Vec<String> {
            let run = Run {
                is_quick: true,
                folder: tempfile::tempdir().unwrap(),
                options: options.iter().map(|word| (*word).to_owned()).collect(),
                progress: Progress::new(1),
                skipped: None,
            };
            chosen(&run).iter().map(|(own, _)| own.title()).collect()
        };
        assert_eq!(titles(&[]), ["Google search", "Facebook Hadoop"]);
        assert_eq!(titles(&["--only", "hadoop-whole"]), ["Facebook Hadoop, all flows"]);
    }
}
