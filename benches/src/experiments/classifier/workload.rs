//! The tables and packets of both classifiers.
//!
//! Synthetic tables come from `shunt_classifier::testing::workload`. ClassBench rule sets (Taylor,
//! Turner, *ClassBench: A Packet Classification Benchmark*, 2007) come from [`shunt_pipebench`]. A
//! range of ports becomes prefixes that cover the range, because an OpenFlow controller can only
//! write prefixes. The first filter has the highest priority.

use shunt_classifier::{
    Priority, Rank,
    testing::workload::{Priorities, RankedRules, SplitMix64, match_rule, packets, rules},
};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_pipebench::{
    Progress, Seed,
    classbench::{BuiltinSet, Filter, FilterRequest, generate},
};

/// One table and its packets.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) rules: RankedRules,
    pub(crate) packets: Vec<FlowKey>,
}

impl Workload {
    /// Returns a title that fits plots, such as `acl 10K: 13K rules/424 masks`.
    pub(crate) fn title(&self) -> String {
        let rules = match self.rules.len() {
            count if count >= 10_000 => format!("{}K", count / 1000),
            count => count.to_string(),
        };
        format!("{}: {rules} rules/{} masks", self.name, self.masks_count())
    }

    fn masks_count(&self) -> usize {
        let masks = self.rules.iter().map(|(matching, _)| matching.mask());
        masks.collect::<std::collections::HashSet<_>>().len()
    }
}

/// Returns a table of `rules` rules over `masks` masks.
pub(crate) fn synthetic(
    rules_count: usize,
    masks_count: usize,
    priorities: Priorities,
    packets_count: usize,
) -> Workload {
    let rules = rules(rules_count, masks_count, priorities);
    let packets = packets(packets_count, &rules);
    let name = format!("{priorities:?}").to_lowercase();
    Workload { name, rules, packets }
}

/// Returns a ClassBench rule set by kind and size, such as `acl_10k`.
///
/// Nine of ten packets match a rule sampled uniformly; the tenth packet is random.
///
/// # Panics
///
/// If there is no such set.
pub(crate) fn class_bench(name: &str, packets_count: usize) -> Workload {
    let (set, thousands) = kind_and_thousands(name).unwrap_or_else(|| {
        panic!(
            "there is no rule \
                                         set {name}"
        )
    });
    let request = FilterRequest::new(thousands * 1000);
    let made = generate(&set.parameters(), &request, Seed::new(1), &Progress::hidden());
    let filters = made.unwrap_or_else(|error| panic!("{name}: {error}"));
    let lines: Vec<Vec<Match>> = filters.iter().map(matches).collect();
    let priority = |line: usize| {
        let step = usize::from(u16::MAX) * (lines.len() - line) / lines.len();
        Priority::new(u16::try_from(step).unwrap_or(u16::MAX))
    };
    let rules = lines.iter().enumerate().flat_map(|(index, matches)| {
        matches.iter().map(move |matching| (matching.clone(), priority(index)))
    });
    let mut seen = std::collections::HashSet::new();
    let rules: RankedRules = rules
        .filter(|(matching, priority)| seen.insert((matching.clone(), *priority)))
        .zip(0..)
        .map(|((matching, priority), age)| (matching, Rank { priority, age }))
        .collect();
    let mut random = SplitMix64(1);
    let packet = |_| {
        let mut packet = random_packet(&mut random);
        if random.below(10) > 0 {
            let matches = &lines[random.below(lines.len())];
            match_rule(&mut packet, &matches[random.below(matches.len())]);
        }
        packet
    };
    let packets = (0..packets_count).map(packet).collect();
    Workload { name: format!("{} {thousands}K", set.name()), rules, packets }
}

fn kind_and_thousands(name: &str) -> Option<(BuiltinSet, u32)> {
    let (set, count) = name.split_once('_')?;
    Some((set.parse().ok()?, count.strip_suffix('k')?.parse().ok()?))
}

/// Returns a random IPv4 packet of a protocol with ports.
fn random_packet(random: &mut SplitMix64) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::InPort, 1);
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::IpProto, random.pick(&[6, 17]));
    for field in [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst] {
        key.set_field(field, u128::from(random.draw()) & field.value_max());
    }
    key
}

/// Returns the matches of a filter:
/// several matches if ranges of ports are not prefixes.
fn matches(filter: &Filter) -> Vec<Match> {
    let mut key = FlowKey::ZERO;
    let mut mask = FlowMask::EMPTY;
    key.set_field(FieldId::EthType, 0x0800);
    mask.add_field(FieldId::EthType);
    for (field, prefix) in
        [(FieldId::Ipv4Src, filter.source), (FieldId::Ipv4Dst, filter.destination)]
    {
        key.set_field(field, prefix.address().into());
        mask.add_bits(field, prefix.mask().into());
    }
    let Some(protocol) = filter.protocol else { return vec![Match::new(&key, &mask)] };
    key.set_field(FieldId::IpProto, protocol.into());
    mask.add_field(FieldId::IpProto);
    if !matches!(protocol, 6 | 17 | 132) {
        return vec![Match::new(&key, &mask)];
    }
    let mut matches = Vec::new();
    for source in filter.source_ports.masks() {
        for target in filter.destination_ports.masks() {
            let (mut key, mut mask) = (key.clone(), mask.clone());
            for (field, port) in [(FieldId::TcpSrc, source), (FieldId::TcpDst, target)] {
                key.set_field(field, port.value.into());
                mask.add_bits(field, port.mask.into());
            }
            matches.push(Match::new(&key, &mask));
        }
    }
    matches
}
