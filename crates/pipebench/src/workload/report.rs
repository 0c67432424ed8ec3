//! The figures of a workload beside what its name asks for and what was published.

use std::collections::HashSet;

use shunt_flow::{FieldId, FlowKey};

use super::Workload;
use crate::{
    Progress, WorkloadError,
    name::{Name, SourceName},
    statistics::{Fates, KeptEntries, LATER, Row, TrafficStatistics},
    traffic::{FlowSizes, Gaps, PacketSizes, Role, published},
};

/// Most rules of which it is told what becomes of the flows: a switch that holds more takes gigabytes.
const FATES_RULES_MAX: usize = 300_000;

/// Entries of a cache, as the published one has them.
const CACHED_MAX: usize = 32_000;

impl Workload {
    /// The figures of the flows and rules, and those of the packets if they were collected.
    ///
    /// What becomes of the flows is told of at most 300,000 rules.
    ///
    /// # Errors
    ///
    /// A rule that cannot be read.
    pub fn figures(
        &self,
        packets: &TrafficStatistics,
        progress: &Progress,
    ) -> Result<Vec<Row>, WorkloadError> {
        let mut rows = self.rule_figures();
        rows.extend(packets.rows().into_iter().map(|row| self.against(row)));
        rows.extend(self.recurrence());
        rows.extend(self.coflow_figures());
        if self.base_rules().take(FATES_RULES_MAX + 1).count() <= FATES_RULES_MAX {
            let rules = self.base_rules().map(|rule| rule.text.as_str());
            let fates = Fates::of(rules, self.flows(), progress)?;
            rows.extend(fates.rows(self.classes()));
            rows.push(self.hits(&fates));
        } else {
            rows.push(Row::count(
                "rules, of which flows are followed through at most",
                FATES_RULES_MAX,
            ));
        }
        Ok(rows)
    }

    /// What share of the packets a cache of the published size would know.
    fn hits(&self, fates: &Fates) -> Row {
        let mut cache = KeptEntries::new(CACHED_MAX, fates.entries());
        for packet in self.packets() {
            let entry = fates.entry_of_flows().get(packet.flow as usize);
            entry.into_iter().for_each(|entry| cache.meet(*entry));
        }
        Row::new("packets that hit a cache of 32,000 entries", cache.hit_rate(), "%")
    }

    /// What collects figures of the packets.
    #[must_use]
    pub fn traffic_statistics(&self) -> TrafficStatistics {
        let is_later = self.name().arrival.is_some();
        TrafficStatistics::with_later(is_later.then(|| self.name().flows))
    }

    /// The figures of the rules that are there in the beginning, and of those that come and go.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn rule_figures(&self) -> Vec<Row> {
        let rules = Row::count("rules", self.rules().len());
        let mut rows = vec![match self.published_rules() {
            Some(published) => rules.against(published, "as published"),
            None => rules,
        }];
        if !self.left_out().is_empty() {
            rows.push(Row::count(
                "rules that cannot be read: what follows is without them",
                self.left_out().len(),
            ));
        }
        if let Some(updates) = self.name().updates {
            let wanted = updates.kind.rules(self.rules().len()) as f64;
            let whose = if updates.kind.is_published() { "Table 4.3" } else { "the name" };
            rows.push(
                Row::count("of those, rules that come and go", self.updates().changing.len())
                    .against(wanted, whose),
            );
            let batches = if self.updates().is_cut {
                "batches of updates, as many as there can be: the last periods have none"
            } else {
                "batches of updates"
            };
            rows.push(Row::count(batches, self.updates().batches.len()));
        }
        rows
    }

    /// Puts the target beside a figure of the packets, if there is one.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn against(&self, row: Row) -> Row {
        let name = self.name();
        let by_name = "the name";
        let by = |is_said: bool| if is_said { by_name } else { "usual" };
        match row.what.as_str() {
            "flows" => row.against(name.flows_of_all().into(), by_name),
            "packets" => match name.packets_wanted() {
                Some(packets) => row.against(packets as f64, by(name.packets.is_some())),
                None => row,
            },
            "packets per flow" => match (name.packets_wanted(), self.published_flow_mean()) {
                (Some(packets), _) => {
                    let mean = packets as f64 / f64::from(name.flows_of_all());
                    row.against(mean, by(name.packets.is_some()))
                }
                (None, Some((mean, whose))) => row.against(mean, whose),
                (None, None) => row,
            },
            "bytes per packet" => {
                let bytes = &published().packet_bytes;
                match name.bytes {
                    PacketSizes::Fixed(bytes) => {
                        let usual = Name::of(name.source.clone()).bytes;
                        row.against(bytes.into(), by(name.bytes != usual))
                    }
                    PacketSizes::Campus => row.against(bytes.campus_mean, "campus link"),
                    PacketSizes::Imix => row.against(361.8, "simple IMIX"),
                }
            }
            "mean gap" => {
                let whose = match (name.rate, name.gaps) {
                    (Some(_), _) => by_name,
                    (None, Gaps::Caida) => "CAIDA",
                    (None, Gaps::Mawi) => "MAWI",
                    (None, Gaps::Poisson | Gaps::Constant) => "usual",
                };
                row.against(1e6 / f64::from(name.rate_wanted()), whose)
            }
            LATER => match name.arrival {
                Some(arrival) => row.against(arrival.percent.into(), by_name),
                None => row,
            },
            "deviation of gaps over their mean" => {
                let traces = &published().traces;
                let ratio =
                    |trace: &crate::traffic::Trace| trace.gap_deviation_us / trace.gap_mean_us;
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

    /// The mean of the packets of a flow that was published for these sizes.
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

    /// How many flows have a header tuple in common, on the average.
    fn recurrence(&self) -> [Row; 3] {
        let of = |what, fields: &[FieldId]| {
            let tuple = |key: &FlowKey| fields.iter().map(|field| key.field(*field)).collect();
            let differ: HashSet<Vec<u128>, foldhash::fast::FixedState> =
                self.flows().iter().map(|flow| tuple(&flow.key())).collect();
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let mean = self.flows().len() as f64 / differ.len().max(1) as f64;
            Row::new(what, mean, "")
        };
        let (source, destination) = (FieldId::Ipv4Src, FieldId::Ipv4Dst);
        [
            of("flows per destination MAC", &[FieldId::EthDst]),
            of("flows per destination address", &[destination]),
            of("flows per pair of addresses", &[source, destination]),
        ]
    }

    fn coflow_figures(&self) -> Vec<Row> {
        if self.name().source != SourceName::Coflow {
            return Vec::new();
        }
        let count =
            |is: fn(&Role) -> bool| self.flows().iter().filter(|flow| is(&flow.role)).count();
        let bases = count(|role| matches!(role, Role::Base { .. }));
        let associated = count(|role| matches!(role, Role::Associated { .. }));
        let predicted = count(|role| matches!(role, Role::Associated { predicted: true, .. }));
        let coflows = &published().coflows;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let share = 100.0 * predicted as f64 / associated.max(1) as f64;
        let per_flow = f64::from(coflows.coflows) / f64::from(coflows.flows);
        vec![
            Row::count("coflows", bases)
                .against((per_flow * f64::from(self.name().flows)).floor(), "Ståhl et al."),
            Row::new("associated flows that are predicted", share, "%")
                .against(self.name().coflowiness.into(), "the name"),
        ]
    }
}
