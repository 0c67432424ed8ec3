//! What a name says.

use std::fmt;

use super::{
    key::KEYS,
    number::count,
    source::{FilterName, SourceName},
};
use crate::{
    Seed,
    populate::Form,
    traffic::{FlowSizes, Gaps, Locality, PacketSizes, UpdateKind, published},
};

/// The name of a workload, taken apart.
///
/// Printed, it reads back as itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// What the rules are made of.
    pub source: SourceName,
    /// How flows are drawn from the rules.
    pub locality: Locality,
    /// How many flows there are from the beginning.
    pub flows: u32,
    /// What all randomness comes from.
    pub seed: u64,
    /// How many filters are made, of which each becomes rules in several tables; those of a file are
    /// taken whole.
    pub rules: u32,
    /// Where filters come from, if the source is a pipeline.
    pub filters: FilterName,
    /// Which traversals get rules and flows.
    pub terminals: Terminals,
    /// How much of a pipeline its rules do.
    pub form: Form,
    /// How many packets there are; `None`: 30 for each flow, in coflows as the sizes say.
    pub packets: Option<u64>,
    /// How packets are distributed over flows.
    pub sizes: FlowSizes,
    /// How long packets are.
    pub bytes: PacketSizes,
    /// How the times between packets are distributed.
    pub gaps: Gaps,
    /// Packets in a second; `None`: that of the gaps, in coflows the published one.
    pub rate: Option<u32>,
    /// How many flows are under way at a time; `None`: all.
    pub active: Option<u32>,
    /// More flows that come later.
    pub arrival: Option<Arrival>,
    /// Changes of rules while packets come.
    pub updates: Option<Updates>,
    /// How many percent of the associated flows of coflows are predicted.
    pub coflowiness: u8,
}

/// Which traversals of a pipeline get rules and flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terminals {
    /// Those that forward.
    Output,
    /// Those that drop or ask a controller, too.
    All,
}

/// Flows that come while others run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// How many.
    pub flows: u32,
    /// After how many percent of the packets of those that were there before.
    pub percent: u8,
}

/// Changes of rules while packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Updates {
    /// What changes.
    pub kind: UpdateKind,
    /// Time between one change and the next.
    pub period_ms: u32,
}

impl Name {
    /// The name of the usual workload of a source.
    #[must_use]
    pub fn of(source: SourceName) -> Self {
        let coflows = &published().coflows;
        let is_coflow = source == SourceName::Coflow;
        Self {
            source,
            locality: Locality::High,
            flows: if is_coflow { coflows.flows } else { 100_000 },
            seed: 1,
            rules: 10_000,
            filters: FilterName::OpenFlow,
            terminals: Terminals::Output,
            form: Form::Plain,
            packets: None,
            sizes: if is_coflow { FlowSizes::Hadoop } else { FlowSizes::Caida },
            bytes: PacketSizes::Fixed(if is_coflow { coflows.frame_bytes } else { 64 }),
            gaps: if is_coflow { Gaps::Poisson } else { Gaps::Caida },
            rate: None,
            active: None,
            arrival: None,
            updates: None,
            coflowiness: 0,
        }
    }

    /// All flows, those that come later with them.
    #[must_use]
    pub fn flows_of_all(&self) -> u32 {
        self.flows.saturating_add(self.arrival.map_or(0, |arrival| arrival.flows))
    }

    /// How many packets there are; `None`: as many as the sizes say.
    #[must_use]
    pub fn packets_wanted(&self) -> Option<u64> {
        let replay = &published().replay;
        let usual = u64::from(self.flows_of_all()).saturating_mul(replay.packets / replay.flows);
        self.packets.or_else(|| (self.source != SourceName::Coflow).then_some(usual))
    }

    /// Packets in a second.
    #[must_use]
    pub fn rate_wanted(&self) -> u32 {
        self.rate.unwrap_or_else(|| match self.source {
            SourceName::Coflow => published().coflows.packets_per_second,
            _ => self.gaps.rate(),
        })
    }

    /// What all randomness comes from.
    #[must_use]
    pub const fn seed_of(&self) -> Seed {
        Seed::new(self.seed)
    }
}

impl fmt::Display for Name {
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
