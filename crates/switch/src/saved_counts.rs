//! Saved counters of rules, groups and meters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    BridgeContents, BridgeId, Group, Meter, PacketTotals, Pipeline, Rule, Time,
    text::{RuleFormat, format_group, format_meter, format_rule},
};

/// A number of packets and a number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SavedCount(pub u64, pub u64);

/// The counters of rules, groups and meters, by the text of each object.
///
/// Counters at zero are left out. The counter of a group comes before the counters of its buckets,
/// and the counter of a meter before the counters of its bands.
pub type SavedCounts = BTreeMap<String, Vec<SavedCount>>;

impl From<PacketTotals> for SavedCount {
    fn from(PacketTotals { packets, bytes }: PacketTotals) -> Self {
        Self(packets, bytes)
    }
}

/// The text format of rules in a saved state.
pub(crate) const FORMAT: RuleFormat<'_> = RuleFormat { ports: &NoPortNames, stats_at: None };

/// Returns the counter of a rule; empty at zero.
pub(crate) fn rule_counts(rule: &Rule) -> Vec<SavedCount> {
    let totals = rule.stats.totals();
    let totals = PacketTotals { packets: totals.packets, bytes: totals.bytes };
    counts_with_parts(totals, Vec::new())
}

/// Returns the counters of a group and its buckets; empty at zero.
pub(crate) fn group_counts(group: &Group) -> Vec<SavedCount> {
    counts_with_parts(group.stats.totals(), group.stats.bucket_totals())
}

/// Returns the counters of a meter and its bands; empty at zero.
pub(crate) fn meter_counts(meter: &Meter) -> Vec<SavedCount> {
    counts_with_parts(meter.totals(), meter.band_totals())
}

/// Returns the total, then the counts of buckets or bands; empty at zero.
fn counts_with_parts(total: PacketTotals, parts: Vec<PacketTotals>) -> Vec<SavedCount> {
    if total.packets == 0 {
        return Vec::new();
    }
    std::iter::once(total).chain(parts).map(SavedCount::from).collect()
}

/// Adds saved counters to the rules, groups and meters with the same text.
pub(crate) fn restore_counts(pipeline: &Pipeline, id: BridgeId, counts: &SavedCounts) {
    if counts.is_empty() {
        return;
    }
    let BridgeContents { rules, groups, meters } = pipeline.contents(id);
    for rule in rules {
        if let Some([SavedCount(packets, bytes), ..]) =
            counts.get(&format_rule(&rule, FORMAT)).map(Vec::as_slice)
        {
            // The restored rule has not been used yet, so its last use is [`Time::ZERO`].
            rule.stats.credit(*packets, *bytes, Time::ZERO);
        }
    }
    for group in groups {
        let own = counts.get(&format_group(&group, &NoPortNames)).map(Vec::as_slice);
        let Some([total, buckets @ ..]) = own else { continue };
        group.stats.credit(total.0, total.1);
        for (bucket, count) in buckets.iter().enumerate() {
            group.stats.credit_bucket(bucket, count.0, count.1);
        }
    }
    for meter in meters {
        let own = counts.get(&format_meter(meter.id, &meter.config)).map(Vec::as_slice);
        let Some([total, bands @ ..]) = own else { continue };
        let totals = |count: &SavedCount| PacketTotals { packets: count.0, bytes: count.1 };
        meter.credit(totals(total), &bands.iter().map(totals).collect::<Vec<_>>());
    }
}
