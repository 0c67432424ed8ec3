//! The links between tables: rules that continue in another table.

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
    /// Table in which packets continue, by `goto_table` or `resubmit`.
    pub to: u8,
    /// Number of rules.
    pub rules: u64,
    /// Packets that matched these rules.
    pub packets: u64,
}

/// Number of rules up to which the links of a bridge are read.
///
/// Reading locks the tables for a time in proportion to the rules.
const RULES_MAX: usize = 1000;

impl TableLink {
    /// Returns the links of all bridges with few rules.
    pub(crate) fn of_all(bridges: &BridgeRegistry, pipeline: &Pipeline) -> Vec<Self> {
        bridges.iter().flat_map(|bridge| Self::of_bridge(bridge, pipeline)).collect()
    }

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

/// Returns the tables in which packets of a rule continue.
///
/// Actions within `clone` and within groups are left out.
fn targets(rule: &Rule) -> BTreeSet<TableId> {
    let instructions = &rule.instructions;
    let resubmits = instructions.apply.iter().filter_map(|action| match action {
        Action::Resubmit { table, .. } => Some(table.unwrap_or(rule.table)),
        _ => None,
    });
    // A rule may resubmit to one table several times.
    instructions.goto.into_iter().chain(resubmits).collect()
}
