//! A complete workload.

use std::time::Duration;

use super::{
    RuleLine,
    workload_source::{FilledPipeline, WorkloadSource},
};
use crate::{
    DumpError, Progress, Seed, TrafficError, WorkloadError,
    name::{RuleUpdates, SourceName, WorkloadName, count, time},
    populate::PopulationCounts,
    statistics::FlowOrigin,
    traffic::{
        Appearance, CoflowTrace, Flow, GapSampler, LengthSampler, Schedule, TrafficLength,
        UpdatePlan, coflow_rules, coflows, collective_flows, collective_rules, place_coflows,
        scale_to_packets,
    },
};

/// A complete workload: rules, flows, and a source of their packets.
///
/// ```
/// use shunt_pipebench::{Progress, workload::Workload};
///
/// let name = "coflow:low:1k:seed=1:packets=5k".parse()?;
/// let workload = Workload::of(&name, &Progress::hidden())?;
/// assert_eq!(workload.flows().len(), 1000);
/// assert_eq!(workload.packets().count(), 5000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Workload {
    name: WorkloadName,
    rules: Vec<RuleLine>,
    /// The origins of the flows, by class.
    classes: Vec<FlowOrigin>,
    /// Details of the filled pipeline, if the source is a pipeline.
    filled: Option<FilledPipeline>,
    /// Errors of dump rules that were left out.
    left_out: Vec<DumpError>,
    flows: Vec<Flow>,
    /// The number of packets of each flow.
    packets: Vec<u32>,
    appearances: Vec<Appearance>,
    gaps: GapSampler,
    lengths: LengthSampler,
    updates: UpdatePlan,
}

impl Workload {
    /// Generates the workload that `name` describes.
    ///
    /// # Errors
    ///
    /// If a file of the name cannot be read, or the rules give too few flows.
    pub fn of(name: &WorkloadName, progress: &Progress) -> Result<Self, WorkloadError> {
        check_packets(name)?;
        let trace = name.trace.as_deref().map(CoflowTrace::read).transpose()?;
        let RulesAndFlows { rules, classes, filled, left_out, flows } =
            RulesAndFlows::of(name, trace.as_ref(), progress)?;
        progress.advance(1);
        let packets = sizes(name)?;
        let total: u64 = packets.iter().map(|count| u64::from(*count)).sum();
        let appearances = choose_intervals(name, trace.as_ref(), &flows, &packets, total);
        progress.advance(1);
        let gaps = name.gaps.sampler(name.rate_wanted()).map_err(TrafficError::from)?;
        let lengths = name.bytes.sampler().map_err(TrafficError::from)?;
        let updates = match name.updates {
            Some(updates) => plan(name, updates, &rules, total, gaps)?,
            None => UpdatePlan::default(),
        };
        progress.advance(1);
        let name = name.clone();
        Ok(Self {
            name,
            rules,
            classes,
            filled,
            left_out,
            flows,
            packets,
            appearances,
            gaps,
            lengths,
            updates,
        })
    }

    /// Returns the name of the workload.
    #[must_use]
    pub const fn name(&self) -> &WorkloadName {
        &self.name
    }

    /// Returns all rules, including those that are added and deleted.
    #[must_use]
    pub fn rules(&self) -> &[RuleLine] {
        &self.rules
    }

    /// Returns the rules before the first update.
    pub fn base_rules(&self) -> impl Iterator<Item = &RuleLine> {
        let mut changing = self.updates.changing.iter().copied().peekable();
        self.rules
            .iter()
            .enumerate()
            .filter_map(move |(index, rule)| changing.next_if_eq(&index).is_none().then_some(rule))
    }

    /// Returns the origins of the flows, indexed by class.
    #[must_use]
    pub fn classes(&self) -> &[FlowOrigin] {
        &self.classes
    }

    /// Returns the numbers and names of the pipeline's tables; empty for other sources.
    pub fn tables(&self) -> impl Iterator<Item = (u8, &str)> {
        let tables = self.filled.iter().flat_map(|filled| &filled.tables);
        tables.map(|(number, name)| (*number, name.as_str()))
    }

    /// Returns the published number of rules, scaled to the filters, if any.
    pub(super) fn published_rules(&self) -> Option<f64> {
        self.filled.as_ref()?.published_rules
    }

    /// Returns the errors of unsupported dump rules, which were left out.
    #[must_use]
    pub fn left_out(&self) -> &[DumpError] {
        &self.left_out
    }

    /// Returns the counts of the filled pipeline; `None` for other sources.
    #[must_use]
    pub fn counts(&self) -> Option<&PopulationCounts> {
        self.filled.as_ref().map(|filled| &filled.counts)
    }

    /// Returns the flows of the workload.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Returns the number of packets of each flow.
    #[must_use]
    pub fn packets_of_flows(&self) -> &[u32] {
        &self.packets
    }

    /// Returns the packets ordered by time; each call returns the same packets.
    #[must_use]
    pub fn packets(&self) -> Schedule {
        let seed = schedule_seed(&self.name);
        Schedule::new(self.appearances.clone(), self.gaps, self.lengths.clone(), seed)
    }

    /// Returns the rules that are added and deleted during the traffic.
    #[must_use]
    pub const fn updates(&self) -> &UpdatePlan {
        &self.updates
    }
}

/// The rules and flows of a workload, and the origins of the flows.
struct RulesAndFlows {
    rules: Vec<RuleLine>,
    classes: Vec<FlowOrigin>,
    filled: Option<FilledPipeline>,
    left_out: Vec<DumpError>,
    flows: Vec<Flow>,
}

impl RulesAndFlows {
    /// Generates the rules and flows that a name describes.
    fn of(
        name: &WorkloadName,
        trace: Option<&CoflowTrace>,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let material = match &name.source {
            SourceName::ClassBench(filters) => WorkloadSource::of_filters(filters, name, progress)?,
            SourceName::Pipeline(word) => WorkloadSource::of_builtin(word, name, progress)?,
            SourceName::PipelineFile(path) => WorkloadSource::of_file(path, name, progress)?,
            SourceName::Coflow => return Ok(Self::of_coflows(name, trace)?),
            SourceName::Collective => return Ok(Self::of_collective(name)),
        };
        let count = usize::try_from(name.flows_total()).unwrap_or(usize::MAX);
        let mut stream = name.seed_of().stream("flows");
        let flows = material.flows.draw(count, name.locality, &mut stream, progress)?;
        let classes = material.classes();
        let WorkloadSource { rules, filled, left_out, .. } = material;
        Ok(Self { rules, classes, filled, left_out, flows })
    }

    /// Generates the rules and flows of coflows.
    fn of_coflows(name: &WorkloadName, trace: Option<&CoflowTrace>) -> Result<Self, TrafficError> {
        let coflowiness = f64::from(name.coflowiness) / 100.0;
        let seed = name.seed_of().child("flows");
        let flows = coflows(name.flows, coflowiness, name.locality, trace, seed)?;
        Ok(Self::of_one_table(coflow_rules(), "services", flows))
    }

    /// Generates the rules and flows of a collective operation.
    fn of_collective(name: &WorkloadName) -> Self {
        let flows = collective_flows(name.flows, name.pattern);
        Self::of_one_table(collective_rules(), "hosts", flows)
    }

    /// Creates a value with rules of one table and flows of one class.
    fn of_one_table(rules: Vec<String>, class: &str, flows: Vec<Flow>) -> Self {
        let rules = rules.into_iter().map(|text| RuleLine { table: 0, text }).collect();
        let classes = vec![FlowOrigin { name: class.to_owned(), table_ids: None }];
        Self { rules, classes, filled: None, left_out: Vec::new(), flows }
    }
}

/// Refuses fewer packets than flows, before flows are generated.
fn check_packets(name: &WorkloadName) -> Result<(), TrafficError> {
    match name.packets_wanted() {
        Some(packets) if packets < name.flows_total().into() => {
            let flows = usize::try_from(name.flows_total()).unwrap_or(usize::MAX);
            Err(TrafficError::Packets { flows, packets })
        }
        _ => Ok(()),
    }
}

/// Returns the number of packets of each flow.
fn sizes(name: &WorkloadName) -> Result<Vec<u32>, TrafficError> {
    let mut stream = name.seed_of().stream("sizes");
    let mut sizes = Vec::new();
    for flows in [name.flows, name.arrival.map_or(0, |arrival| arrival.flows)] {
        let flows = usize::try_from(flows).unwrap_or(usize::MAX);
        sizes.extend(name.sizes.draw(flows, &mut stream)?);
    }
    if let Some(packets) = name.packets_wanted()
        && !scale_to_packets(&mut sizes, packets)
    {
        return Err(TrafficError::Packets { flows: sizes.len(), packets });
    }
    Ok(sizes)
}

/// Chooses the interval of each flow in the traffic.
fn choose_intervals(
    name: &WorkloadName,
    trace: Option<&CoflowTrace>,
    flows: &[Flow],
    packets: &[u32],
    total: u64,
) -> Vec<Appearance> {
    let course = TrafficLength::of(total, name.active);
    if name.source == SourceName::Coflow {
        return place_coflows(flows, packets, &course, trace, name.seed_of());
    }
    let mut stream = name.seed_of().stream("place");
    // Initial flows span the whole traffic, so a share of the traffic has the same share of their
    // packets.
    let later = name.arrival.map_or(0, |arrival| percentage_of(course.ticks, arrival.percent));
    let mut place = |(flow, packets): (u32, &u32)| {
        let from = if flow < name.flows { 0 } else { later };
        course.place(flow, *packets, from, &mut stream)
    };
    (0..).zip(packets).map(&mut place).collect()
}

/// Returns a percentage of a number.
fn percentage_of(number: u64, percent: u8) -> u64 {
    u64::try_from(u128::from(number) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// Plans the rule changes, all of which precede the last packet.
fn plan(
    name: &WorkloadName,
    updates: RuleUpdates,
    rules: &[RuleLine],
    packets: u64,
    gaps: GapSampler,
) -> Result<UpdatePlan, WorkloadError> {
    let lasts = gaps.last(packets, schedule_seed(name));
    let period = Duration::from_millis(updates.period_ms.into());
    if period > lasts {
        // 64 bits of milliseconds last for 584 million years.
        let lasts_ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        let period_ms = updates.period_ms;
        let instead = suggest_name(name, updates, lasts_ms);
        return Err(WorkloadError::NoUpdate { lasts_ms, period_ms, instead });
    }
    let tables: Vec<u8> = rules.iter().map(|rule| rule.table).collect();
    let mut stream = name.seed_of().stream("updates");
    Ok(UpdatePlan::new(updates.kind, period, &tables, lasts, &mut stream))
}

/// Returns a suggestion for a name with enough traffic for some updates.
fn suggest_name(name: &WorkloadName, updates: RuleUpdates, lasts_ms: u64) -> String {
    let slower = u64::from(name.rate_wanted()).saturating_mul(lasts_ms);
    let rate = slower / u64::from(updates.period_ms).saturating_mul(UPDATES_SOME);
    let rate = format!("rate={} or slower", count(rate.max(1)));
    match u32::try_from(lasts_ms / UPDATES_SOME).ok().filter(|period| *period > 0) {
        Some(period) => format!("updates={}@{} or shorter, or {rate}", updates.kind, time(period)),
        None => rate,
    }
}

/// Number of updates for which the suggestion leaves time.
const UPDATES_SOME: u64 = 4;

/// Returns the seed for order, times and lengths of packets.
fn schedule_seed(name: &WorkloadName) -> Seed {
    name.seed_of().child("schedule")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generates the workload with a name.
    fn workload(name: &str) -> Result<Workload, WorkloadError> {
        Workload::of(&name.parse().unwrap(), &Progress::hidden())
    }

    #[test]
    fn every_update_is_within_the_traffic() {
        for kind in ["p1", "p4", "flap", "burst"] {
            let name = format!("classbench-acl:low:500:rules=300:packets=5k:updates={kind}@1ms");
            let workload = workload(&name).unwrap();
            let last = workload.packets().last().unwrap().time_ns;
            let batches = &workload.updates().batches;
            assert!(!batches.is_empty(), "{kind}");
            assert!(batches.iter().all(|batch| batch.at <= Duration::from_nanos(last)), "{kind}");
        }
    }

    #[test]
    fn late_updates_suggest_a_valid_name() {
        let base = "classbench-acl:low:500:rules=300:packets=50k:updates=p2";
        let message = workload(&format!("{base}@10s")).unwrap_err().to_string();
        let said = |from: &str, to: &str| {
            let rest = message.split_once(from).unwrap().1;
            rest.split_once(to).unwrap().0.to_owned()
        };
        let period = said("updates=p2", " or shorter");
        assert!(workload(&format!("{base}{period}")).is_ok(), "{message}");
        let rate = said("rate=", " or slower");
        assert!(workload(&format!("{base}@10s:rate={rate}")).is_ok(), "{message}");
    }

    #[test]
    fn later_flows_arrive_after_their_share() {
        for percent in [0_u32, 30, 50, 90] {
            let name = format!("classbench-ipc:low:1k:rules=300:arrival=2k@{percent}%");
            let workload = workload(&name).unwrap();
            let first = workload.packets().position(|packet| packet.flow >= 1000).unwrap();
            let all = workload.packets().filter(|packet| packet.flow < 1000).count();
            let share = 100.0 * first as f64 / all as f64;
            assert!((share - f64::from(percent)).abs() < 2.0, "{percent} %: {share}");
        }
    }
}
