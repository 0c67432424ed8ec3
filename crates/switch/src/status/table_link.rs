//! Links between tables: rules that continue a packet in another table.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use shunt_pipeline::{Action, Pipeline, Rule, RuleFilter, TableId};

use crate::ports::registry::{BridgeRegistry, BridgeState};

/// The rules of one table that continue in one other table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableLink {
    /// Name of the bridge.
    pub bridge: String,
    /// Table of the rules.
    pub from: u8,
    /// Table in which the packets continue, by `goto_table` or `resubmit`.
    pub to: u8,
    /// Number of rules that continue in that table.
    pub rules: u64,
    /// Packets that matched these rules.
    pub packets: u64,
}

/// Maximum number of rules of a bridge for which links are computed.
///
/// The computation locks the tables for a time proportional to the number of rules.
const RULES_MAX: usize = 1000;

impl TableLink {
    /// Returns the links of all bridges with at most [`RULES_MAX`] rules.
    pub(crate) fn of_all(bridges: &BridgeRegistry, pipeline: &Pipeline) -> Vec<Self> {
        bridges.iter().flat_map(|bridge| Self::of_bridge(bridge, pipeline)).collect()
    }

    /// Returns the links between the tables of a bridge.
    fn of_bridge(bridge: &BridgeState, pipeline: &Pipeline) -> Vec<Self> {
        let tables = pipeline.table_stats(bridge.id);
        if tables.iter().map(|table| table.rules_count).sum::<usize>() > RULES_MAX {
            return Vec::new();
        }
        let mut links = BTreeMap::<(TableId, TableId), (u64, u64)>::new();
        for rule in pipeline.rules(bridge.id, &RuleFilter::all()) {
            let packets = rule.stats.totals().packets;
            for target in targets(&rule) {
                let (rules, sum) = links.entry((rule.table, target)).or_default();
                *rules += 1;
                *sum += packets;
            }
        }
        let link = |((from, to), (rules, packets)): ((TableId, TableId), _)| Self {
            bridge: bridge.settings.name.clone(),
            from: from.number(),
            to: to.number(),
            rules,
            packets,
        };
        links.into_iter().map(link).collect()
    }
}

/// Returns the tables in which a rule continues its packets.
///
/// Actions inside `clone`, and inside groups, are not considered.
fn targets(rule: &Rule) -> BTreeSet<TableId> {
    let instructions = &rule.instructions;
    let resubmits = instructions.apply.iter().filter_map(|action| match action {
        Action::Resubmit { table, .. } => Some(table.unwrap_or(rule.table)),
        _ => None,
    });
    // A rule may resubmit several times to the same table.
    instructions.goto.into_iter().chain(resubmits).collect()
}
