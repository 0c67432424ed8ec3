//! Statistics of a workload, next to target values from its name and publications.

use std::collections::HashSet;

use shunt_flow::{FieldId, FlowKey};

use super::Workload;
use crate::{
    Progress, WorkloadError,
    name::{SourceName, WorkloadName},
    statistics::{FlowTraversals, LATER, NoEvictionCache, StatisticRow, TrafficStatistics},
    traffic::{CoflowRole, FlowSizes, Gaps, PacketSizes, published},
};

/// Maximum number of rules to look flows up in: more rules need gigabytes.
const FOLLOWED_RULES_MAX: usize = 300_000;

/// Number of entries of the published cache.
const CACHED_MAX: usize = 32_000;

impl Workload {
    /// Returns the statistics of flows and rules, and of packets if collected.
    ///
    /// Without the traversals of flows if the workload has more than 300,000 rules.
    ///
    /// # Errors
    ///
    /// If a rule cannot be parsed.
    pub fn figures(
        &self,
        packets: &TrafficStatistics,
        progress: &Progress,
    ) -> Result<Vec<StatisticRow>, WorkloadError> {
        let mut rows = self.rule_figures();
        rows.extend(packets.rows().into_iter().map(|row| self.against(row)));
        rows.extend(self.recurrence());
        rows.extend(self.coflow_figures());
        if self.base_rules().take(FOLLOWED_RULES_MAX + 1).count() <= FOLLOWED_RULES_MAX {
            let rules = self.base_rules().map(|rule| rule.text.as_str());
            let flow_traversals = FlowTraversals::of(rules, self.flows(), progress)?;
            rows.extend(flow_traversals.rows(self.classes()));
            rows.push(self.hits(&flow_traversals));
        } else {
            rows.push(StatisticRow::count("maximum rules for following flows", FOLLOWED_RULES_MAX));
        }
        Ok(rows)
    }

    /// Returns the hit rate of a cache with the published capacity.
    fn hits(&self, flow_traversals: &FlowTraversals) -> StatisticRow {
        let mut cache = NoEvictionCache::new(CACHED_MAX, flow_traversals.entries());
        for packet in self.packets() {
            let entry = flow_traversals.entry_of_flows().get(packet.flow as usize);
            entry.into_iter().for_each(|entry| cache.look_up(*entry));
        }
        StatisticRow::new("packets that hit a cache of 32,000 entries", cache.hit_rate(), "%")
    }

    /// Returns a collector of packet statistics.
    #[must_use]
    pub fn traffic_statistics(&self) -> TrafficStatistics {
        let is_later = self.name().arrival.is_some();
        TrafficStatistics::with_later(is_later.then(|| self.name().flows))
    }

    /// Returns statistics of the initial rules, and of the rules that change.
    #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
    fn rule_figures(&self) -> Vec<StatisticRow> {
        let rules = StatisticRow::count("rules", self.rules().len());
        let mut rows = vec![match self.published_rules() {
            Some(published) => rules.against(published, "as published"),
            None => rules,
        }];
        if !self.left_out().is_empty() {
            rows.push(StatisticRow::count(
                "rules that cannot be parsed: left out",
                self.left_out().len(),
            ));
        }
        if let Some(updates) = self.name().updates {
            let wanted = updates.kind.rules(self.rules().len()) as f64;
            let source = if updates.kind.is_published() { "Table 4.3" } else { "the name" };
            rows.push(
                StatisticRow::count(
                    "rules that updates add and delete",
                    self.updates().changing.len(),
                )
                .against(wanted, source),
            );
            let batches = if self.updates().is_truncated {
                "batches of updates, truncated at the maximum: the last periods have none"
            } else {
                "batches of updates"
            };
            rows.push(StatisticRow::count(batches, self.updates().batches.len()));
        }
        rows
    }

    /// Adds the target, if any, to a packet statistic.
    #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
    fn against(&self, row: StatisticRow) -> StatisticRow {
        let name = self.name();
        let by_name = "the name";
        let by = |is_given: bool| if is_given { by_name } else { "usual" };
        match row.what.as_str() {
            "flows" => row.against(name.flows_total().into(), by_name),
            "packets" => match name.packets_wanted() {
                Some(packets) => row.against(packets as f64, by(name.packets.is_some())),
                None => row,
            },
            "packets per flow" => match (name.packets_wanted(), self.published_flow_mean()) {
                (Some(packets), _) => {
                    let mean = packets as f64 / f64::from(name.flows_total());
                    row.against(mean, by(name.packets.is_some()))
                }
                (None, Some((mean, source))) => row.against(mean, source),
                (None, None) => row,
            },
            "bytes per packet" => {
                let bytes = &published().packet_bytes;
                match name.bytes {
                    PacketSizes::Fixed(bytes) => {
                        let usual = WorkloadName::of(name.source.clone()).bytes;
                        row.against(bytes.into(), by(name.bytes != usual))
                    }
                    PacketSizes::Campus => row.against(bytes.campus_mean, "campus link"),
                    PacketSizes::Imix => row.against(361.8, "simple IMIX"),
                }
            }
            "mean gap" => {
                let source = match (name.rate, name.gaps) {
                    (Some(_), _) => by_name,
                    (None, Gaps::Caida) => "CAIDA",
                    (None, Gaps::Mawi) => "MAWI",
                    (None, Gaps::Poisson | Gaps::Constant) => "usual",
                };
                row.against(1e6 / f64::from(name.rate_wanted()), source)
            }
            LATER => match name.arrival {
                Some(arrival) => row.against(arrival.percent.into(), by_name),
                None => row,
            },
            "deviation of gaps / mean gap" => {
                let traces = &published().traces;
                let ratio = |trace: &crate::traffic::TraceStatistics| {
                    trace.gap_deviation_us / trace.gap_mean_us
                };
                match name.gaps {
                    Gaps::Caida => row.against(ratio(&traces.caida), "CAIDA"),
                    Gaps::Mawi => row.against(ratio(&traces.mawi), "MAWI"),
                    Gaps::Poisson => row.against(1.0, "Poisson"),
                    Gaps::Constant => row.against(0.0, "constant"),
                }
            }
            _ => row,
        }
    }

    /// Returns the published mean number of packets per flow for the flow sizes.
    fn published_flow_mean(&self) -> Option<(f64, &'static str)> {
        let published = published();
        match self.name().sizes {
            FlowSizes::Caida => Some((published.traces.caida.flow_mean(), "CAIDA")),
            FlowSizes::Mawi => Some((published.traces.mawi.flow_mean(), "MAWI")),
            FlowSizes::Campus => Some((published.flow_lengths.mean, "campus link")),
            FlowSizes::Fixed => Some((1.0, "the name")),
            FlowSizes::Zipf { .. } | FlowSizes::Hadoop | FlowSizes::Search => None,
        }
    }

    /// Returns the mean number of flows per header tuple.
    fn recurrence(&self) -> [StatisticRow; 3] {
        let of = |what, fields: &[FieldId]| {
            let tuple = |key: &FlowKey| fields.iter().map(|field| key.field(*field)).collect();
            let differ: HashSet<Vec<u128>, foldhash::fast::FixedState> =
                self.flows().iter().map(|flow| tuple(&flow.key())).collect();
            #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
            let mean = self.flows().len() as f64 / differ.len().max(1) as f64;
            StatisticRow::new(what, mean, "")
        };
        let (source, destination) = (FieldId::Ipv4Src, FieldId::Ipv4Dst);
        [
            of("flows per destination MAC", &[FieldId::EthDst]),
            of("flows per destination address", &[destination]),
            of("flows per pair of addresses", &[source, destination]),
        ]
    }

    /// Returns the statistics of coflows, beside published figures.
    fn coflow_figures(&self) -> Vec<StatisticRow> {
        if self.name().source != SourceName::Coflow {
            return Vec::new();
        }
        let count =
            |is: fn(&CoflowRole) -> bool| self.flows().iter().filter(|flow| is(&flow.role)).count();
        let bases = count(|role| matches!(role, CoflowRole::Base { .. }));
        let associated = count(|role| matches!(role, CoflowRole::Associated { .. }));
        let predicted =
            count(|role| matches!(role, CoflowRole::Associated { predicted: true, .. }));
        let coflows = &published().coflows;
        #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
        let share = 100.0 * predicted as f64 / associated.max(1) as f64;
        let per_flow = f64::from(coflows.coflows) / f64::from(coflows.flows);
        vec![
            StatisticRow::count("coflows", bases)
                .against((per_flow * f64::from(self.name().flows)).floor(), "Ståhl et al."),
            StatisticRow::new("associated flows that are predicted", share, "%")
                .against(self.name().coflowiness.into(), "the name"),
        ]
    }
}
