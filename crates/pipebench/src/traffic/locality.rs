//! Samples flows from the rules that they match.
//!
//! A packet of a pipeline has headers for every table that it visits. The fields of a traversal
//! form groups: fields that some table matches together. Within a group the headers must come from
//! one rule; across groups any combination is a flow. So ten thousand rules give millions of flows.
//!
//! The same rules give traffic of two kinds (A. Zulfiqar, *Rearchitecting the End Host Network for
//! the Terabit Per Second Era*, thesis, University of Michigan, 2026, 3.6.1.4):
//!
//! - **low** locality: every header tuple of a group is equally likely;
//! - **high** locality: the probability of a rule is proportional to the recurrence of its tuple
//!   among the rules of its group. As that many rules have the tuple, the weight of a tuple is the
//!   square of its recurrence.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use shunt_flow::{FieldId, FlowKey, PortNo};

use crate::{
    Progress, RandomStream, TrafficError, WeightedIndices, groups::connected, traffic::flow::Flow,
};

/// The distribution from which the flows of a pipeline are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Locality {
    /// Header tuples that recur among the rules are sampled more often.
    High,
    /// All header tuples are equally likely.
    Low,
}

impl Locality {
    /// Names of the localities.
    pub(crate) const WORDS: &[&'static str] = &["high", "low"];

    /// Returns the locality that a word names; `None` for another word.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        [Self::High, Self::Low].into_iter().find(|locality| locality.to_string() == word)
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::High => "high",
            Self::Low => "low",
        })
    }
}

/// The values of one field that a rule matches: a closed interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The field that the rule matches.
    pub field: FieldId,
    /// The lowest value that the rule matches.
    pub low: u128,
    /// The highest value that the rule matches.
    pub high: u128,
}

/// Matches of one rule on the fields of a group, in the same order for all rules.
pub type Tuple = Vec<Span>;

/// Header tuples of fields that must come from one rule.
#[derive(Clone, Debug, Default)]
pub struct FieldGroup {
    tuples: Vec<Tuple>,
    /// Number of rules with each tuple.
    counts: Vec<u32>,
    /// The weight of each tuple in high locality.
    weights: Vec<f64>,
}

impl FieldGroup {
    /// Creates a group from the tuples of rules, with their recurrence.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = Tuple>) -> Self {
        let mut all: Vec<Tuple> = rules.into_iter().collect();
        all.sort_unstable();
        let mut group = Self::default();
        for tuple in all {
            if let (Some(last), Some(count)) = (group.tuples.last(), group.counts.last_mut())
                && *last == tuple
            {
                *count = count.saturating_add(1);
            } else {
                group.tuples.push(tuple);
                group.counts.push(1);
            }
        }
        group.weights =
            group.counts.iter().map(|count| f64::from(*count) * f64::from(*count)).collect();
        group
    }

    /// Creates a group with the recurrence of only some fields.
    ///
    /// The probability of a rule is proportional to the recurrence of its values of `fields`, so
    /// the weight of these values is the square of their recurrence.
    #[must_use]
    pub fn recurring(rules: impl IntoIterator<Item = Tuple>, fields: &[FieldId]) -> Self {
        let mut group = Self::new(rules);
        let part = |tuple: &Tuple| -> Tuple {
            tuple.iter().filter(|span| fields.contains(&span.field)).copied().collect()
        };
        let mut recurrence: BTreeMap<Tuple, u32> = BTreeMap::new();
        for (tuple, count) in group.tuples.iter().zip(&group.counts) {
            let recurrence = recurrence.entry(part(tuple)).or_default();
            *recurrence = recurrence.saturating_add(*count);
        }
        let weight = |(tuple, count): (&Tuple, &u32)| {
            f64::from(*count) * f64::from(recurrence.get(&part(tuple)).copied().unwrap_or(1))
        };
        group.weights = group.tuples.iter().zip(&group.counts).map(weight).collect();
        group
    }

    /// Returns whether the group has no tuple.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tuples.is_empty()
    }

    /// Returns the number of distinct tuples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tuples.len()
    }

    /// Returns the mean number of rules per tuple.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
    pub fn recurrence(&self) -> f64 {
        let rules: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        rules as f64 / self.tuples.len().max(1) as f64
    }
}

/// A class of flows: the flows of one traversal.
#[derive(Clone, Debug)]
pub struct FlowClass {
    /// The name of the class.
    pub name: String,
    /// The ingress port of the packets.
    pub in_port: PortNo,
    /// The groups of fields, which are sampled independently.
    pub groups: Vec<FieldGroup>,
    /// Complete rules, which provide the fields outside of all groups.
    pub rest: FieldGroup,
}

impl FlowClass {
    /// Creates the class of a traversal from its steps and rules.
    #[must_use]
    pub fn of_traversal(
        name: String,
        in_port: PortNo,
        steps: &[Vec<FieldId>],
        rules: &[Tuple],
    ) -> Self {
        let projected = |fields: &Vec<FieldId>| {
            let of = |tuple: &Tuple| {
                tuple.iter().filter(|span| fields.contains(&span.field)).copied().collect()
            };
            FieldGroup::new(rules.iter().map(of))
        };
        let groups = connected(steps.iter().cloned()).iter().map(projected).collect();
        Self { name, in_port, groups, rest: FieldGroup::new(rules.iter().cloned()) }
    }
}

/// The source of flows: all classes.
#[derive(Clone, Debug, Default)]
pub struct FlowSource {
    /// The classes, which are equally likely.
    pub classes: Vec<FlowClass>,
}

/// Maximum number of samples per requested flow, before the search ends.
const TRIES: usize = 40;

/// Number of flows between two progress updates.
const PROGRESS_STEP: usize = 10_000;

impl FlowSource {
    /// Samples distinct flows.
    ///
    /// # Errors
    ///
    /// If no class has a tuple for each group, or if fewer distinct flows exist.
    pub fn draw(
        &self,
        count: usize,
        locality: Locality,
        stream: &mut RandomStream,
        progress: &Progress,
    ) -> Result<Vec<Flow>, TrafficError> {
        if self.classes.len() > usize::from(u16::MAX) {
            return Err(TrafficError::Classes { classes: self.classes.len() });
        }
        let classes = self.classes.iter().enumerate();
        let samplers =
            classes.filter_map(|(index, class)| ClassSampler::new(index, class, locality));
        let samplers: Vec<ClassSampler<'_>> = samplers.collect();
        if samplers.is_empty() {
            return Err(TrafficError::NoSource);
        }
        let no_memory = |_| TrafficError::Memory { flows: count };
        let mut seen = HashSet::with_hasher(foldhash::fast::FixedState::default());
        seen.try_reserve(count).map_err(no_memory)?;
        let mut flows = Vec::new();
        flows.try_reserve_exact(count).map_err(no_memory)?;
        progress.expect(count as u64);
        for _ in 0..count.saturating_mul(TRIES) {
            if flows.len() == count {
                break;
            }
            let Some(sampler) = stream.pick(&samplers) else { break };
            let flow = sampler.sample(stream);
            if seen.insert(*flow.headers()) {
                flows.push(flow);
                if flows.len().is_multiple_of(PROGRESS_STEP) {
                    progress.advance(PROGRESS_STEP as u64);
                }
            }
        }
        if flows.len() < count {
            return Err(TrafficError::TooFewFlows { found: flows.len(), wanted: count });
        }
        Ok(flows)
    }
}

/// Samples flows of one class.
struct ClassSampler<'a> {
    number: u16,
    class: &'a FlowClass,
    groups: Vec<(&'a FieldGroup, WeightedIndices)>,
}

impl<'a> ClassSampler<'a> {
    /// Creates a sampler; `None` if a group has no tuple.
    fn new(index: usize, class: &'a FlowClass, locality: Locality) -> Option<Self> {
        let weight = |weight: &f64| match locality {
            Locality::High => *weight,
            Locality::Low => 1.0,
        };
        let weighted = |group: &'a FieldGroup| {
            Some((group, WeightedIndices::new(group.weights.iter().map(weight)).ok()?))
        };
        let groups = class.groups.iter().map(weighted).collect::<Option<_>>()?;
        Some(Self { number: u16::try_from(index).ok()?, class, groups })
    }

    /// Returns a random flow of the class.
    fn sample(&self, stream: &mut RandomStream) -> Flow {
        let mut key = FlowKey::ZERO;
        key.set_in_port(self.class.in_port);
        for (field, value) in USUAL {
            key.set_field(*field, *value);
        }
        let rest = stream.index(self.class.rest.tuples.len());
        if let Some(tuple) = self.class.rest.tuples.get(rest) {
            set_tuple(&mut key, tuple, stream);
        }
        for (group, weights) in &self.groups {
            if let Some(tuple) = group.tuples.get(weights.sample(stream)) {
                set_tuple(&mut key, tuple, stream);
            }
        }
        settle_transport(&mut key);
        Flow::new(&key, self.number)
    }
}

/// The default header fields of a packet.
const USUAL: &[(FieldId, u128)] = &[
    (FieldId::EthDst, 0x0200_0000_0002),
    (FieldId::EthSrc, 0x0200_0000_0001),
    (FieldId::EthType, 0x0800),
    (FieldId::NwTtl, 64),
];

const TCP: u128 = 6;
const UDP: u128 = 17;
const SCTP: u128 = 132;
const ICMP: u128 = 1;
const ECHO_REQUEST: u128 = 8;

/// Sets the fields of a tuple, each to a random value of its interval.
fn set_tuple(key: &mut FlowKey, tuple: &Tuple, stream: &mut RandomStream) {
    for span in tuple {
        let value = if span.field == FieldId::IpProto && span.low != span.high {
            // Rules for any protocol may also match ports.
            if stream.chance(0.5) { TCP } else { UDP }
        } else {
            sample_between(span.low, span.high, stream)
        };
        key.set_field(span.field, value);
    }
}

/// Returns a random number from `low` to `high`.
fn sample_between(low: u128, high: u128, stream: &mut RandomStream) -> u128 {
    let width = high.saturating_sub(low);
    match u64::try_from(width) {
        Ok(u64::MAX) => low.saturating_add(stream.bits().into()),
        Ok(width) => low.saturating_add(stream.below(width.saturating_add(1)).into()),
        // Only IPv6 prefixes are wider than 64 bits; their width is a power of two minus one.
        Err(_) => low | (u128::from(stream.bits()) << 64 | u128::from(stream.bits())) & width,
    }
}

/// Sets the transport header that the protocol requires.
fn settle_transport(key: &mut FlowKey) {
    match key.field(FieldId::IpProto) {
        // Every IP packet needs a protocol; the default is TCP.
        0 => key.set_field(FieldId::IpProto, TCP),
        TCP | UDP | SCTP => {}
        protocol => {
            let kind = if protocol == ICMP { ECHO_REQUEST } else { 0 };
            key.set_field(FieldId::TcpSrc, kind);
            key.set_field(FieldId::TcpDst, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Seed;

    /// Returns the span of one value.
    fn exact(field: FieldId, value: u128) -> Span {
        Span { field, low: value, high: value }
    }

    /// Returns a class of flows with some groups of fields.
    fn class(groups: Vec<FieldGroup>) -> FlowClass {
        FlowClass {
            name: "a".to_owned(),
            in_port: PortNo::new(1),
            groups,
            rest: FieldGroup::default(),
        }
    }

    fn sample_flows(
        source: &FlowSource,
        count: usize,
        locality: Locality,
    ) -> Result<Vec<Flow>, TrafficError> {
        source.draw(count, locality, &mut Seed::new(1).stream("flows"), &Progress::hidden())
    }

    /// Returns a source with one tuple of three rules, and three tuples of one rule.
    ///
    /// Each rule matches many ports.
    fn recurring() -> FlowSource {
        let tuple = |address| {
            let ports = Span { field: FieldId::TcpSrc, low: 0, high: 65535 };
            vec![exact(FieldId::Ipv4Dst, address), ports]
        };
        let rules = [1, 2, 1, 3, 1, 4].map(tuple);
        FlowSource { classes: vec![class(vec![FieldGroup::new(rules)])] }
    }

    fn share_of_first(locality: Locality) -> f64 {
        let flows = sample_flows(&recurring(), 10_000, locality).unwrap();
        let first = flows.iter().filter(|flow| flow.key().field(FieldId::Ipv4Dst) == 1);
        first.count() as f64 / 10_000.0
    }

    #[test]
    fn high_locality_weighs_tuples_by_squared_recurrence() {
        let (high, low) = (share_of_first(Locality::High), share_of_first(Locality::Low));
        assert!((high - 9.0 / 12.0).abs() < 0.02, "{high}");
        assert!((low - 1.0 / 4.0).abs() < 0.02, "{low}");
    }

    #[test]
    fn groups_are_sampled_independently() {
        let macs = FieldGroup::new((0..20).map(|mac| vec![exact(FieldId::EthSrc, mac)]));
        let addresses = FieldGroup::new((0..20).map(|ip| vec![exact(FieldId::Ipv4Dst, ip)]));
        let source = FlowSource { classes: vec![class(vec![macs, addresses])] };
        assert_eq!(sample_flows(&source, 400, Locality::Low).unwrap().len(), 400);
        let error = sample_flows(&source, 401, Locality::Low).unwrap_err();
        assert_eq!(error, TrafficError::TooFewFlows { found: 400, wanted: 401 });
    }

    /// Two rules give two pairs of addresses and two ports: four flows, and no fifth.
    #[test]
    fn fields_of_one_lookup_share_a_rule() {
        use FieldId::{EthDst, EthSrc, TcpDst};
        let rule =
            |number: u128| [EthSrc, EthDst, TcpDst].map(|field| exact(field, number)).to_vec();
        let class = FlowClass::of_traversal(
            "x".to_owned(),
            PortNo::new(1),
            &[vec![EthSrc, EthDst], vec![TcpDst]],
            &[rule(1), rule(2), rule(2)],
        );
        // The flows are all combinations of two pairs of addresses and two ports.
        let source = FlowSource { classes: vec![class] };
        assert_eq!(sample_flows(&source, 4, Locality::High).unwrap().len(), 4);
        assert!(sample_flows(&source, 5, Locality::High).is_err());
    }

    /// Filters with one value of the field share the square of its recurrence.
    #[test]
    fn weight_of_rule_is_that_of_fields() {
        let pair =
            |address, port| vec![exact(FieldId::Ipv4Dst, address), exact(FieldId::TcpDst, port)];
        let rules = [pair(1, 1), pair(1, 2), pair(1, 3), pair(2, 1), pair(3, 1), pair(3, 1)];
        let group = FieldGroup::recurring(rules, &[FieldId::Ipv4Dst]);
        assert_eq!(group.weights, [3.0, 3.0, 3.0, 1.0, 4.0]);
    }

    #[test]
    fn class_without_group_rules_has_no_flows() {
        let source = FlowSource { classes: vec![class(vec![FieldGroup::default()])] };
        assert_eq!(sample_flows(&source, 1, Locality::Low).unwrap_err(), TrafficError::NoSource);
    }

    proptest! {
        #[test]
        fn flows_match_the_rules_of_their_class(
            spans in prop::collection::vec((any::<u32>(), 0_u32..=32, 0_u16.., 0_u16..), 1..20),
            high: bool,
        ) {
            let tuple = |&(address, length, a, b): &(u32, u32, u16, u16)| {
                let free = u32::MAX.checked_shr(length).unwrap_or(0);
                let (low, high) = ((address & !free).into(), (address | free).into());
                let ports = (u128::from(a.min(b)), u128::from(a.max(b)));
                vec![
                    Span { field: FieldId::Ipv4Src, low, high },
                    exact(FieldId::IpProto, TCP),
                    Span { field: FieldId::TcpDst, low: ports.0, high: ports.1 },
                ]
            };
            let rules: Vec<Tuple> = spans.iter().map(tuple).collect();
            let source = FlowSource { classes: vec![class(vec![FieldGroup::new(rules.clone())])] };
            let locality = if high { Locality::High } else { Locality::Low };
            for flow in sample_flows(&source, 1, locality).unwrap() {
                let inside = |span: &Span| (span.low..=span.high).contains(&flow.key().field(span.field));
                prop_assert!(rules.iter().any(|tuple| tuple.iter().all(inside)));
            }
        }
    }
}
