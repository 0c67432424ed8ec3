//! Saved counters of rules, groups and meters, and the saved MAC table of a bridge.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shunt_flow::{PortNo, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, Learning, MacSighting, PacketTotals, Pipeline, RuleFilter, Time,
    text::{RuleFormat, format_group, format_meter, format_rule},
};

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SavedCount(pub u64, pub u64);

/// The counters of rules, groups and meters, by their texts.
///
/// Those at zero are left out. A group is followed by its buckets, and a meter by its bands.
pub type SavedCounts = BTreeMap<String, Vec<SavedCount>>;

/// A learned MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedMac {
    /// VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The address.
    pub mac: [u8; 6],
    /// Number of its port.
    pub port: u32,
}

impl From<PacketTotals> for SavedCount {
    fn from(PacketTotals { packets, bytes }: PacketTotals) -> Self {
        Self(packets, bytes)
    }
}

/// The format of rules in a saved state.
const FORMAT: RuleFormat<'_> = RuleFormat { ports: &NoPortNames, stats_at: None };

/// Returns the counters of a bridge.
pub(crate) fn saved_counts(pipeline: &Pipeline, id: BridgeId) -> SavedCounts {
    let mut counts = SavedCounts::new();
    for rule in pipeline.rules(id, &RuleFilter::all()) {
        let totals = rule.stats.totals();
        if totals.packets > 0 {
            let count = SavedCount(totals.packets, totals.bytes);
            counts.insert(format_rule(&rule, FORMAT), vec![count]);
        }
    }
    let with_parts = |total: PacketTotals, parts: Vec<PacketTotals>| {
        let all = std::iter::once(total).chain(parts).map(SavedCount::from);
        Some(all.collect::<Vec<_>>()).filter(|_| total.packets > 0)
    };
    for group in pipeline.groups(id) {
        let own = with_parts(group.stats.totals(), group.stats.bucket_totals());
        counts.extend(own.map(|own| (format_group(&group, &NoPortNames), own)));
    }
    for meter in pipeline.meters(id) {
        let own = with_parts(meter.totals(), meter.band_totals());
        counts.extend(own.map(|own| (format_meter(meter.id, &meter.config), own)));
    }
    counts
}

/// Adds saved counters to the rules, groups and meters with the same texts.
pub(crate) fn restore_counts(pipeline: &Pipeline, id: BridgeId, counts: &SavedCounts) {
    if counts.is_empty() {
        return;
    }
    for rule in pipeline.rules(id, &RuleFilter::all()) {
        if let Some([SavedCount(packets, bytes), ..]) =
            counts.get(&format_rule(&rule, FORMAT)).map(Vec::as_slice)
        {
            // The rule was not used since its addition.
            rule.stats.credit(*packets, *bytes, Time::ZERO);
        }
    }
    for group in pipeline.groups(id) {
        let own = counts.get(&format_group(&group, &NoPortNames)).map(Vec::as_slice);
        let Some([total, buckets @ ..]) = own else { continue };
        group.stats.credit(total.0, total.1);
        for (bucket, count) in buckets.iter().enumerate() {
            group.stats.credit_bucket(bucket, count.0, count.1);
        }
    }
    for meter in pipeline.meters(id) {
        let own = counts.get(&format_meter(meter.id, &meter.config)).map(Vec::as_slice);
        let Some([total, bands @ ..]) = own else { continue };
        let totals = |count: &SavedCount| PacketTotals { packets: count.0, bytes: count.1 };
        meter.credit(totals(total), &bands.iter().map(totals).collect::<Vec<_>>());
    }
}

/// Returns the learned MAC addresses of a bridge.
pub(crate) fn saved_macs(pipeline: &Pipeline, id: BridgeId) -> Vec<SavedMac> {
    let macs = pipeline.macs(id);
    macs.iter()
        .map(|own| SavedMac { vlan: own.vlan, mac: own.mac, port: own.port.number() })
        .collect()
}

/// Returns the requests that learn saved MAC addresses.
pub(crate) fn learnings(bridge: BridgeId, macs: &[SavedMac]) -> Vec<Learning> {
    macs.iter()
        .map(|SavedMac { vlan, mac, port }| {
            let port = PortNo::new(*port);
            Learning::Mac(MacSighting { bridge, vlan: *vlan, mac: *mac, port })
        })
        .collect()
}
