//! The parsed name of a workload.

use std::fmt;

use super::{
    key::KEYS,
    number::count,
    source::{FilterName, SourceName},
};
use crate::{
    Seed,
    populate::RuleForm,
    traffic::{CollectivePattern, FlowSizes, Gaps, Locality, PacketSizes, UpdateKind, published},
};

/// The parsed name of a workload.
///
/// The printed form of a name parses to the same value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkloadName {
    /// The source of the rules.
    pub source: SourceName,
    /// The locality of the flows.
    pub locality: Locality,
    /// Number of flows at the start.
    pub flows: u32,
    /// Seed of all randomness.
    pub seed: u64,
    /// Number of filters to generate; each filter becomes rules in several tables.
    ///
    /// Has no effect on a file of filters, which is used completely.
    pub rules: u32,
    /// Source of the filters of a pipeline.
    pub filters: FilterName,
    /// Traversals that get rules and flows.
    pub terminals: Terminals,
    /// Actions that the rules use.
    pub form: RuleForm,
    /// Number of packets; `None` for 30 per flow, or for the sizes of coflows.
    pub packets: Option<u64>,
    /// Distribution of packets over flows.
    pub sizes: FlowSizes,
    /// Lengths of the packets, in bytes.
    pub bytes: PacketSizes,
    /// Distribution of the times between packets.
    pub gaps: Gaps,
    /// Packets per second; `None` for the rate of the gaps, or of published coflows.
    pub rate: Option<u32>,
    /// Number of flows active at a time; `None` for all.
    pub active: Option<u32>,
    /// Additional flows that arrive later.
    pub arrival: Option<FlowArrival>,
    /// Rule changes during the traffic.
    pub updates: Option<RuleUpdates>,
    /// Percentage of the flows of coflows that are predicted.
    pub coflowiness: u8,
    /// File of recorded coflows.
    pub trace: Option<String>,
    /// Hosts to which a host of a collective operation sends.
    pub pattern: CollectivePattern,
}

/// The traversals of a pipeline for which rules and flows are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terminals {
    /// Only traversals that forward packets.
    Output,
    /// All traversals, including those that drop or ask a controller.
    All,
}

/// Additional flows that arrive while the initial flows are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowArrival {
    /// Number of additional flows.
    pub flows: u32,
    /// Percentage of the initial flows' packets after which the new flows arrive.
    pub percent: u8,
}

/// Rule changes during the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleUpdates {
    /// Kind of the change.
    pub kind: UpdateKind,
    /// Time between two changes.
    pub period_ms: u32,
}

impl WorkloadName {
    /// Returns the default workload of a source.
    #[must_use]
    pub fn of(source: SourceName) -> Self {
        let coflows = &published().coflows;
        let has_filters = source.has_filters();
        Self {
            locality: Locality::High,
            flows: if source == SourceName::Coflow { coflows.flows } else { 100_000 },
            seed: 1,
            rules: 10_000,
            filters: FilterName::OpenFlow,
            terminals: Terminals::Output,
            form: RuleForm::Plain,
            packets: None,
            sizes: match source {
                SourceName::Coflow => FlowSizes::Hadoop,
                SourceName::Collective => FlowSizes::Fixed,
                _ => FlowSizes::Caida,
            },
            bytes: PacketSizes::Fixed(if has_filters { 64 } else { coflows.frame_bytes }),
            gaps: if has_filters { Gaps::Caida } else { Gaps::Poisson },
            rate: None,
            active: None,
            arrival: None,
            updates: None,
            coflowiness: 0,
            trace: None,
            pattern: CollectivePattern::AllToAll,
            source,
        }
    }

    /// Returns the total number of flows, including later flows.
    #[must_use]
    pub fn flows_total(&self) -> u32 {
        self.flows.saturating_add(self.arrival.map_or(0, |arrival| arrival.flows))
    }

    /// Returns the number of packets; `None` if the sizes of flows determine it.
    #[must_use]
    pub fn packets_wanted(&self) -> Option<u64> {
        let replay = &published().replay;
        let usual = u64::from(self.flows_total()).saturating_mul(replay.packets / replay.flows);
        self.packets.or_else(|| (self.source != SourceName::Coflow).then_some(usual))
    }

    /// Returns the packets per second.
    #[must_use]
    pub fn rate_wanted(&self) -> u32 {
        self.rate.unwrap_or_else(|| match self.source {
            SourceName::Coflow => published().coflows.packets_per_second,
            _ => self.gaps.rate(),
        })
    }

    /// Returns the seed of all randomness.
    #[must_use]
    pub const fn seed_of(&self) -> Seed {
        Seed::new(self.seed)
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::of(self.source.clone());
        write!(f, "{}:{}:{}", self.source, self.locality, count(self.flows.into()))?;
        for key in KEYS {
            let value = (key.show)(self);
            if key.is_always_shown || value != (key.show)(&usual) {
                write!(f, ":{}={value}", key.name)?;
            }
        }
        Ok(())
    }
}
