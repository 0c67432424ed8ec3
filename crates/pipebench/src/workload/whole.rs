//! A workload: all that a name says.

use std::time::Duration;

use super::{RuleLine, material::Material};
use crate::{
    Progress, TrafficError, WorkloadError,
    name::{Name, SourceName},
    populate::Counts,
    traffic::{
        Appearance, Course, Flow, GapSampler, LengthSampler, Schedule, UpdatePlan, coflow_rules,
        coflows, fit, place_coflows,
    },
};

/// All that a name says: rules, flows, and what draws their packets.
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
    name: Name,
    rules: Vec<RuleLine>,
    /// What flows were drawn from, by their class.
    classes: Vec<String>,
    counts: Option<Counts>,
    flows: Vec<Flow>,
    /// Of each flow.
    packets: Vec<u32>,
    appearances: Vec<Appearance>,
    gaps: GapSampler,
    lengths: LengthSampler,
    updates: UpdatePlan,
}

impl Workload {
    /// The workload of a name.
    ///
    /// # Errors
    ///
    /// A file of the name that cannot be read, or rules that make too few flows.
    pub fn of(name: &Name, progress: &Progress) -> Result<Self, WorkloadError> {
        let seed = name.seed_of();
        let Drawn { rules, classes, counts, flows } = Drawn::of(name)?;
        progress.advance(1);
        let packets = sizes(name)?;
        let total: u64 = packets.iter().map(|count| u64::from(*count)).sum();
        let appearances = place(name, &flows, &packets, total);
        progress.advance(1);
        let rate = name.rate_wanted();
        let gaps = name.gaps.sampler(rate).map_err(TrafficError::from)?;
        let lengths = name.bytes.sampler().map_err(TrafficError::from)?;
        let updates = name.updates.map_or_else(UpdatePlan::default, |updates| {
            let tables: Vec<u8> = rules.iter().map(|rule| rule.table).collect();
            let period = Duration::from_millis(updates.period_ms.into());
            let mut stream = seed.stream("updates");
            UpdatePlan::new(updates.kind, period, &tables, lasts(total, rate), &mut stream)
        });
        let name = name.clone();
        Ok(Self {
            name,
            rules,
            classes,
            counts,
            flows,
            packets,
            appearances,
            gaps,
            lengths,
            updates,
        })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// All rules, those that come and go as well.
    #[must_use]
    pub fn rules(&self) -> &[RuleLine] {
        &self.rules
    }

    /// The rules that are there in the beginning.
    pub fn base_rules(&self) -> impl Iterator<Item = &RuleLine> {
        let mut changing = self.updates.changing.iter().copied().peekable();
        self.rules
            .iter()
            .enumerate()
            .filter_map(move |(index, rule)| changing.next_if_eq(&index).is_none().then_some(rule))
    }

    /// What flows were drawn from: the index is their class.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// What there is in the filled pipeline; `None` if the source is none.
    #[must_use]
    pub const fn counts(&self) -> Option<&Counts> {
        self.counts.as_ref()
    }

    /// The flows.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// How many packets each flow has.
    #[must_use]
    pub fn packets_of_flows(&self) -> &[u32] {
        &self.packets
    }

    /// The packets, in the order of their times; the same ones every time.
    #[must_use]
    pub fn packets(&self) -> Schedule {
        let seed = self.name.seed_of().child("schedule");
        Schedule::new(self.appearances.clone(), self.gaps, self.lengths.clone(), seed)
    }

    /// Rules that come and go while packets come.
    #[must_use]
    pub const fn updates(&self) -> &UpdatePlan {
        &self.updates
    }
}

/// The rules of a name, what its flows are drawn from, and the flows.
struct Drawn {
    rules: Vec<RuleLine>,
    classes: Vec<String>,
    counts: Option<Counts>,
    flows: Vec<Flow>,
}

impl Drawn {
    fn of(name: &Name) -> Result<Self, WorkloadError> {
        let seed = name.seed_of();
        let Material { rules, flows: source, counts } = match &name.source {
            SourceName::ClassBench(filters) => Material::of_filters(filters, name)?,
            SourceName::Pipeline(word) => Material::of_builtin(word, name)?,
            SourceName::PipelineFile(path) => Material::of_file(path, name)?,
            SourceName::Coflow => return Ok(Self::of_coflows(name)?),
        };
        let count = usize::try_from(name.flows_of_all()).unwrap_or(usize::MAX);
        let flows = source.draw(count, name.locality, &mut seed.stream("flows"))?;
        let classes = source.classes.into_iter().map(|class| class.name).collect();
        Ok(Self { rules, classes, counts, flows })
    }

    fn of_coflows(name: &Name) -> Result<Self, TrafficError> {
        let rule = |text| RuleLine { table: 0, text };
        let rules = coflow_rules().into_iter().map(rule).collect();
        let coflowiness = f64::from(name.coflowiness) / 100.0;
        let seed = name.seed_of().child("flows");
        let flows = coflows(name.flows, coflowiness, name.locality, seed)?;
        Ok(Self { rules, classes: vec!["services".to_owned()], counts: None, flows })
    }
}

/// How many packets each flow has.
fn sizes(name: &Name) -> Result<Vec<u32>, TrafficError> {
    let mut stream = name.seed_of().stream("sizes");
    let mut sizes = Vec::new();
    for flows in [name.flows, name.arrival.map_or(0, |arrival| arrival.flows)] {
        let flows = usize::try_from(flows).unwrap_or(usize::MAX);
        sizes.extend(name.sizes.draw(flows, &mut stream)?);
    }
    if let Some(packets) = name.packets_wanted()
        && !fit(&mut sizes, packets)
    {
        return Err(TrafficError::Packets { flows: sizes.len(), packets });
    }
    Ok(sizes)
}

/// Where in the course of the traffic each flow has its packets.
fn place(name: &Name, flows: &[Flow], packets: &[u32], total: u64) -> Vec<Appearance> {
    let course = Course::of(total, name.active);
    if name.source == SourceName::Coflow {
        return place_coflows(flows, packets, &course, name.seed_of());
    }
    let mut stream = name.seed_of().stream("place");
    let later = name.arrival.map_or(0, |arrival| course.ticks / 100 * u64::from(arrival.percent));
    let mut place = |(flow, packets): (u32, &u32)| {
        let from = if flow < name.flows { 0 } else { later };
        course.place((flow, *packets), from, &mut stream)
    };
    (0..).zip(packets).map(&mut place).collect()
}

/// How long so many packets take, about.
fn lasts(packets: u64, rate: u32) -> Duration {
    let nanoseconds = u128::from(packets) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
