//! A set of filters as one table of rules, and the flows that match them.

use shunt_flow::{FieldId, PortNo};

use super::{RuleLine, workload_source::WorkloadSource};
use crate::{
    WorkloadError,
    classbench::{AddressPrefix, Filter, PortRange},
    pipeline_file::Field,
    populate::{BaseRule, OtherMatches, step_matches},
    traffic::{FieldGroup, FlowClass, FlowSource, Span, Tuple},
};

/// Maximum number of filters with separate priorities.
///
/// The first filter has the highest priority.
const PRIORITIES: usize = 60_000;
/// The highest priority of OpenFlow.
const PRIORITY_MAX: usize = u16::MAX as usize;
/// Maximum number of filters that share a priority.
const SHARING_MAX: usize = 512;
/// Maximum number of rules in a table.
///
/// Two port ranges can expand a filter to hundreds of rules.
const RULES_MAX: usize = 20_000_000;
/// Number of output ports, which the rules use in turn.
const OUTPUTS: usize = 4;
/// The fields that the rules match.
const FIELDS: [&str; 6] = ["eth_type", "ip_src", "ip_dst", "ip_proto", "tp_src", "tp_dst"];

impl WorkloadSource {
    /// Creates one table in which the first filter wins, and flows of its filters.
    pub(super) fn one_table(filters: &[Filter]) -> Result<Self, WorkloadError> {
        let fields: Vec<Field> = FIELDS.iter().filter_map(|name| Field::new(name).ok()).collect();
        let fields: Vec<&Field> = fields.iter().collect();
        let mut rules = Vec::new();
        for (index, (filter, priority)) in filters.iter().zip(priorities(filters)?).enumerate() {
            let output = 2 + index % OUTPUTS;
            let base = BaseRule { filter: *filter, eth_src: 0, eth_dst: 0 };
            let matches = step_matches(&fields, &base, &OtherMatches::default());
            rules.extend(matches.into_iter().map(|step_match| RuleLine {
                table: 0,
                text: format!(
                    "table=0,priority={priority},{},actions=output:{output}",
                    step_match.text
                ),
            }));
            if rules.len() > RULES_MAX {
                return Err(WorkloadError::TooManyRules { max: RULES_MAX });
            }
        }
        // All filters are distinct, but pairs of addresses recur among them.
        let pair = [FieldId::Ipv4Src, FieldId::Ipv4Dst];
        let groups = vec![FieldGroup::recurring(filters.iter().map(tuple), &pair)];
        let class = FlowClass {
            name: "filters".to_owned(),
            in_port: PortNo::new(1),
            groups,
            rest: FieldGroup::default(),
        };
        Ok(Self { rules, flows: FlowSource { classes: vec![class] }, ..Self::default() })
    }
}

/// Returns priorities such that the first filter that matches a packet wins.
///
/// With more filters than priorities, consecutive filters share a priority until two of them
/// overlap.
fn priorities(filters: &[Filter]) -> Result<Vec<usize>, WorkloadError> {
    if filters.len() <= PRIORITIES {
        return Ok((0..filters.len()).map(|index| PRIORITIES.saturating_sub(index)).collect());
    }
    let mut steps = Vec::with_capacity(filters.len());
    let (mut step, mut first) = (0_usize, 0_usize);
    for (index, filter) in filters.iter().enumerate() {
        let sharing = filters.get(first..index).unwrap_or_default();
        let meets = sharing.iter().any(|other| overlap(filter, other));
        if meets || sharing.len() >= SHARING_MAX {
            (step, first) = (step.saturating_add(1), index);
        }
        steps.push(step);
    }
    match PRIORITY_MAX.checked_sub(step).filter(|lowest| *lowest > 0) {
        Some(_) => Ok(steps.into_iter().map(|step| PRIORITY_MAX.saturating_sub(step)).collect()),
        None => Err(WorkloadError::Priorities { needed: step.saturating_add(1) }),
    }
}

/// Returns whether any packet matches both filters; their TCP flags are ignored.
fn overlap(one: &Filter, other: &Filter) -> bool {
    let meets =
        |one: PortRange, other: PortRange| one.low() <= other.high() && other.low() <= one.high();
    let within = |one: AddressPrefix, other: AddressPrefix| {
        let (wide, narrow) =
            if one.length() <= other.length() { (one, other) } else { (other, one) };
        wide.contains(narrow.address())
    };
    within(one.source, other.source)
        && within(one.destination, other.destination)
        && one.protocol.zip(other.protocol).is_none_or(|(one, other)| one == other)
        && (has_no_ports(one) || has_no_ports(other) || {
            meets(one.source_ports, other.source_ports)
                && meets(one.destination_ports, other.destination_ports)
        })
}

/// Returns whether the filter's protocol has no ports to match.
fn has_no_ports(filter: &Filter) -> bool {
    filter.protocol.is_some_and(|protocol| ![TCP, UDP, SCTP].contains(&protocol))
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Returns the header values that a filter matches.
pub(super) fn tuple(filter: &Filter) -> Tuple {
    let prefix = |field, prefix: AddressPrefix| Span {
        field,
        low: prefix.address().into(),
        high: prefix.last().into(),
    };
    let ports = |field, range: PortRange| Span {
        field,
        low: range.low().into(),
        high: range.high().into(),
    };
    let (low, high) = filter.protocol.map_or((0, u8::MAX), |protocol| (protocol, protocol));
    vec![
        prefix(FieldId::Ipv4Src, filter.source),
        prefix(FieldId::Ipv4Dst, filter.destination),
        Span { field: FieldId::IpProto, low: low.into(), high: high.into() },
        ports(FieldId::TcpSrc, filter.source_ports),
        ports(FieldId::TcpDst, filter.destination_ports),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Progress, Seed,
        classbench::{BuiltinSet, FilterRequest, generate},
    };

    #[test]
    fn the_first_matching_filter_has_higher_priority() {
        let request = FilterRequest::new(70_000);
        let firewall = BuiltinSet::Firewall.parameters();
        let mut filters = generate(&firewall, &request, Seed::new(1), &Progress::hidden()).unwrap();
        filters.truncate(PRIORITIES + 100);
        assert!(filters.len() > PRIORITIES);
        let priorities = priorities(&filters).unwrap();
        assert!(priorities.iter().all(|priority| (1..=PRIORITY_MAX).contains(priority)));
        let shared = priorities.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(shared > 0, "there are more filters than priorities");
        // Sampled filters are compared with those around them.
        for (first, one) in filters.iter().enumerate().step_by(7) {
            for (second, other) in filters.iter().enumerate().skip(first + 1).take(1500) {
                let (high, low) = (priorities[first], priorities[second]);
                assert!(high > low || (high == low && !overlap(one, other)), "{one} {other}");
            }
        }
    }
}
