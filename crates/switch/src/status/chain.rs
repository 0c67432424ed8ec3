//! What chains of stages say of themselves: plain values that programs read as JSON and people as
//! tables.

use serde::Serialize;
use shunt_datapath::{
    Command,
    command::DumpedEntry,
    metrics::{ChainCounters, ThreadCounters},
};
use shunt_gigaflow::ltm::{ChainLink, Coverage};

use crate::{config, control::Control};

/// The chain of one packet thread, or of all together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChainStatus {
    /// Packets that came to the end of their way.
    pub hits: u64,
    /// Entries that one of these met, on average.
    pub steps: f64,
    /// Packets that met no entry.
    pub misses: u64,
    /// Packets that met some, and no end.
    pub partial: u64,
    /// Translations that went on where their packets had missed.
    pub resumed: u64,
    /// Pieces of ways that became entries.
    pub made: u64,
    /// Pieces that were entries already.
    pub shared: u64,
    /// Entries that made room for others, or gave way to them.
    pub evicted: u64,
    /// Tags in use.
    pub tags: u64,
    /// What became one entry for its whole way, or none, by why.
    pub not_cut: NotCut,
    /// The stages, first to last.
    pub stages: Vec<StageStatus>,
}

/// Translations that became one entry for their whole way, or none.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NotCut {
    /// None: they teach.
    pub teaching: u64,
    /// One: pieces would come near to a bound of translations.
    pub near_bounds: u64,
    /// One, or none: no tag was left.
    pub without_tags: u64,
    /// Not all of their pieces: no stage had room.
    pub without_room: u64,
    /// Not all of their pieces: no slot was free, or no report fitted.
    pub refused: u64,
}

/// A stage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StageStatus {
    /// Its entries.
    pub entries: u64,
    /// How many it has room for.
    pub entries_max: u64,
    /// Its masks, those of different tags counted apart.
    pub masks: u64,
}

/// How many ways the entries of one packet thread, or of a NIC, make together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoverageStatus {
    /// Ways from a bridge to an end, exactly, or the largest number.
    pub chains: u64,
    /// An estimate by tags: for each, the entries that lead to it times those that it leads to.
    pub pairs: u64,
    /// An estimate by partitions, which published figures are.
    pub published: u64,
}

impl CoverageStatus {
    fn of(entries: &[DumpedEntry]) -> Self {
        let links: Vec<ChainLink> = entries.iter().filter_map(|entry| entry.link).collect();
        let Coverage { chains, pairs, published } = Coverage::of(&links);
        let small = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
        Self { chains: small(chains), pairs: small(pairs), published: small(published) }
    }
}

impl ChainStatus {
    /// What one packet thread counts.
    pub(crate) fn of(counters: &ChainCounters, config: &config::Gigaflow) -> Self {
        let hits = counters.hits.get();
        let stage = |own: &shunt_datapath::metrics::StageCounters| StageStatus {
            entries: own.entries.get(),
            entries_max: config.stage_entries as u64,
            masks: own.masks.get(),
        };
        Self {
            hits,
            steps: average(counters.steps.get(), hits),
            misses: counters.misses.get(),
            partial: counters.partial.get(),
            resumed: counters.resumed.get(),
            made: counters.made.get(),
            shared: counters.shared.get(),
            evicted: counters.evicted.get(),
            tags: counters.tags.get(),
            not_cut: NotCut {
                teaching: counters.learning.get(),
                near_bounds: counters.near_bounds.get(),
                without_tags: counters.without_tags.get(),
                without_room: counters.without_room.get(),
                refused: counters.refused.get(),
            },
            stages: counters.stages.iter().take(config.stages.into()).map(stage).collect(),
        }
    }

    /// All threads together.
    pub(crate) fn sum(all: &[Self]) -> Self {
        let mut sum = Self::default();
        let mut steps = 0.0;
        for own in all {
            #[expect(clippy::cast_precision_loss, reason = "an average for people")]
            {
                steps += own.steps * own.hits as f64;
            }
            for (total, count) in [
                (&mut sum.hits, own.hits),
                (&mut sum.misses, own.misses),
                (&mut sum.partial, own.partial),
                (&mut sum.resumed, own.resumed),
                (&mut sum.made, own.made),
                (&mut sum.shared, own.shared),
                (&mut sum.evicted, own.evicted),
                (&mut sum.tags, own.tags),
                (&mut sum.not_cut.teaching, own.not_cut.teaching),
                (&mut sum.not_cut.near_bounds, own.not_cut.near_bounds),
                (&mut sum.not_cut.without_tags, own.not_cut.without_tags),
                (&mut sum.not_cut.without_room, own.not_cut.without_room),
                (&mut sum.not_cut.refused, own.not_cut.refused),
            ] {
                *total += count;
            }
            sum.stages.resize(own.stages.len().max(sum.stages.len()), StageStatus::default());
            for (total, stage) in sum.stages.iter_mut().zip(&own.stages) {
                total.entries += stage.entries;
                total.entries_max += stage.entries_max;
                total.masks += stage.masks;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "an average for people")]
        {
            sum.steps = if sum.hits == 0 { 0.0 } else { steps / sum.hits as f64 };
        }
        sum
    }
}

impl Control {
    /// The chains of all packet threads, one by one; empty where they have none.
    pub(crate) fn chain_statuses(&self) -> Vec<ChainStatus> {
        let config = self.config.lock().caches.clone();
        if config.kind != config::CacheKind::Gigaflow {
            return Vec::new();
        }
        let of =
            |own: &std::sync::Arc<ThreadCounters>| ChainStatus::of(&own.chain, &config.gigaflow);
        self.plane.counters().iter().map(of).collect()
    }

    /// How many ways the entries of each packet thread make. Each of them looks at some of its
    /// entries a turn.
    pub(crate) async fn coverage(&self) -> Vec<CoverageStatus> {
        let dumps = self.plane.ask(|_, reply| Command::Dump(reply)).await;
        dumps.iter().map(|dump| CoverageStatus::of(dump)).collect()
    }

    /// The same of the pieces that are meant to be in the NIC.
    pub(crate) async fn coverage_of_nic(&self) -> CoverageStatus {
        CoverageStatus::of(&self.entries_of_nic().await)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average for people")]
fn average(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}
