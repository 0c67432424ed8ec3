//! The unchanged rules of a real switch as a workload, with flows that match its first table.
//!
//! Each rule of the first table that an IPv4 packet can match is a class of flows, with the rule's
//! ingress port and matched headers. Wildcarded fields are sampled from the matches of other rules,
//! field by field, so that later tables have flows to distinguish.

use shunt_flow::{FieldId, FlowMask, Match, PortNo};

use super::{RuleLine, workload_source::WorkloadSource};
use crate::{
    DumpError,
    populate::SwitchDump,
    traffic::{FieldGroup, FlowClass, FlowSource, Span, Tuple},
};

/// The groups of fields with related values.
const GROUPS: &[&[FieldId]] = &[
    &[FieldId::EthSrc],
    &[FieldId::EthDst],
    &[FieldId::Ipv4Src],
    &[FieldId::Ipv4Dst],
    &[FieldId::IpProto, FieldId::TcpSrc, FieldId::TcpDst],
];
/// The other fields that a rule of the first table can match.
const OTHER_FIELDS: &[FieldId] =
    &[FieldId::InPort, FieldId::EthType, FieldId::VlanTci, FieldId::VlanTpid];
const IPV4: u128 = 0x0800;
/// The bit of a tag that is set if the tag is present.
const TAG_PRESENT: u128 = 0x1000;
/// The TPID of the tags of generated packets.
const TAG: u128 = 0x8100;
/// The source ports of flows if no rule matches source ports.
const CLIENT_PORTS: (u128, u128) = (1024, 65_535);

impl WorkloadSource {
    /// Creates the rules of a dump, and flows that match its first table.
    pub(super) fn of_switch(text: &str) -> Result<Self, DumpError> {
        let dump = SwitchDump::read(text)?;
        let line = |(table, text)| RuleLine { table, text };
        let rules = dump.lines().map(line).collect();
        let matches: Vec<&Match> = dump
            .rules()
            .iter()
            .map(|rule| &rule.matching)
            .filter(|matching| is_ipv4(matching))
            .collect();
        let groups: Vec<FieldGroup> = GROUPS.iter().map(|group| values(&matches, group)).collect();
        let groups: Vec<FieldGroup> =
            groups.into_iter().filter(|group| !group.is_empty()).collect();
        let class = |(text, matching): (&str, &Match)| {
            let own = matched_values(matching)?;
            let mut groups = groups.clone();
            // The last value of a field wins, so the group of the rule itself comes last.
            groups.push(FieldGroup::new([own]));
            let key = matching.key();
            let in_port = if matching.mask().field(FieldId::InPort) == 0 {
                1
            } else {
                key.in_port().number()
            };
            let (low, high) = CLIENT_PORTS;
            let client = vec![Span { field: FieldId::TcpSrc, low, high }];
            let in_port = PortNo::new(in_port);
            let name =
                text.split_once(" actions=").map_or(text, |(matching, _)| matching).to_owned();
            Some(FlowClass { name, in_port, groups, rest: FieldGroup::new([client]) })
        };
        let classes = dump.first_table().filter_map(class).collect();
        Ok(Self {
            rules,
            flows: FlowSource { classes },
            left_out: dump.left_out().to_vec(),
            ..Self::default()
        })
    }
}

/// Returns whether an IPv4 packet can match.
fn is_ipv4(matching: &Match) -> bool {
    matching.mask().field(FieldId::EthType) == 0 || matching.key().field(FieldId::EthType) == IPV4
}

/// Returns the header values that a rule of the first table matches.
///
/// Returns `None` if no packet of a workload can match, or if the rule matches all packets.
fn matched_values(matching: &Match) -> Option<Tuple> {
    let mut known = FlowMask::default();
    for field in GROUPS.iter().copied().flatten().chain(OTHER_FIELDS) {
        known.add_field(*field);
    }
    let mut mask = FlowMask::default();
    mask.add_sparse(matching.mask());
    if mask.is_empty() || !mask.is_subset_of(&known) || !is_ipv4(matching) {
        return None;
    }
    let fields = GROUPS.iter().copied().flatten().chain([&FieldId::VlanTci]);
    let mut own: Tuple = fields.filter_map(|field| span(matching, *field)).collect();
    let is_tagged = |span: &&Span| span.field == FieldId::VlanTci && span.low & TAG_PRESENT != 0;
    if own.iter().any(|span| is_tagged(&span)) {
        own.push(Span { field: FieldId::VlanTpid, low: TAG, high: TAG });
    }
    Some(own)
}

/// Returns the values of `fields` that rules match.
fn values(matches: &[&Match], fields: &[FieldId]) -> FieldGroup {
    let of = |matching: &&Match| -> Tuple {
        fields.iter().filter_map(|field| span(matching, *field)).collect()
    };
    FieldGroup::new(matches.iter().map(of).filter(|tuple| !tuple.is_empty()))
}

/// Returns the values of a field that a match accepts.
///
/// For a prefix, returns all its values; for any other mask, only the lowest value.
fn span(matching: &Match, field: FieldId) -> Option<Span> {
    let mask = matching.mask().field(field);
    let low = matching.key().field(field) & mask;
    let open = field.value_max() & !mask;
    let is_prefix = open & open.wrapping_add(1) == 0;
    let high = if is_prefix { low | open } else { low };
    (mask != 0).then_some(Span { field, low, high })
}

/// Samples some flows of a dump, if any.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn draw_flows_of_dump(text: &str) {
    use crate::{Progress, Seed, traffic::Locality};
    if let Ok(material) = WorkloadSource::of_switch(text) {
        let mut stream = Seed::new(1).stream("flows");
        // Fewer than three distinct flows may exist.
        let _ = material.flows.draw(3, Locality::High, &mut stream, &Progress::hidden());
    }
}
