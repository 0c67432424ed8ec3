//! The status of Gigaflow caches, and the rule-space coverage of their entries.

use std::sync::Arc;

use serde::Serialize;
use shunt_datapath::{
    Command,
    command::DumpedEntry,
    metrics::{ChainCounters, ThreadCounters},
};
use shunt_gigaflow::ltm::{Coverage, CoverageLink};

use crate::{config, nic::NicSlot, threads::data_plane::DataPlane};

/// The status of the Gigaflow cache of one packet thread,
/// or the sum over all threads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GigaflowStatus {
    /// Packets that hit entries up to the end of their traversal.
    pub hits: u64,
    /// Average number of LTM entries on the path of a packet of `hits`.
    pub entries_per_hit: f64,
    /// Packets that hit no LTM entry.
    pub misses: u64,
    /// Packets that hit one or more LTM entries and then missed.
    pub partial_hits: u64,
    /// Partial hits that were translated from the point of the miss.
    pub resumed: u64,
    /// LTM entries that the thread created.
    pub created: u64,
    /// Sub-traversals that needed no new LTM entry: the cache had one already.
    pub shared: u64,
    /// LTM entries that were evicted for space or replaced by other entries.
    pub evicted_for_space: u64,
    /// Number of tags in use.
    pub tags: u64,
    /// Traversals that were not cached as all of their sub-traversals, by reason.
    pub not_partitioned: NotPartitioned,
    /// Fill levels of the stages, from first to last.
    pub stages: Vec<StageStatus>,
}

/// Traversals that were not cached as all of their sub-traversals, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NotPartitioned {
    /// Not cached, because the packet makes the switch learn.
    pub learns: u64,
    /// Cached as one megaflow, because sub-traversals would come near a limit.
    pub near_limits: u64,
    /// Cached as one megaflow, or not at all, because no tag was free.
    pub no_tag: u64,
    /// Cached in part, or not at all, because a stage was full.
    pub stages_full: u64,
    /// Cached in part, because no slot was free or the report queue was full.
    pub refused: u64,
}

/// The fill level of a stage of a Gigaflow cache.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StageStatus {
    /// Number of entries in the stage.
    pub entries: u64,
    /// Maximum number of entries in the stage.
    pub entries_max: u64,
    /// Number of masks in the stage; equal masks of different tags count separately.
    pub masks: u64,
}

/// The rule-space coverage of the entries of one packet thread, or of a NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleSpaceStatus {
    /// Number of complete traversals that the entries form, counted exactly.
    ///
    /// The count saturates.
    pub exact: u64,
    /// Pairwise estimate of the number of traversals.
    ///
    /// For each tag, it multiplies the number of entries that set the tag by the number that match
    /// it.
    pub pairwise: u64,
    /// Estimate by the formula of the Gigaflow paper.
    pub published: u64,
}

impl RuleSpaceStatus {
    /// Computes the rule-space coverage of the entries.
    fn of(entries: &[DumpedEntry]) -> Self {
        let links: Vec<CoverageLink> = entries.iter().filter_map(|entry| entry.link).collect();
        let Coverage { chains, pairs, published } = Coverage::of(&links);
        // JSON numbers have at most 64 bits; products over many stages may be larger.
        let small = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
        Self { exact: small(chains), pairwise: small(pairs), published: small(published) }
    }

    /// Returns the rule-space coverage of each packet thread.
    ///
    /// Each thread reads some of its entries in each poll loop iteration.
    pub(crate) async fn of_threads(plane: &DataPlane) -> Vec<Self> {
        let dumps = plane.ask(|_, reply| Command::Dump(reply)).await;
        dumps.iter().map(|dump| Self::of(dump)).collect()
    }

    /// Returns the rule-space coverage of the entries of the NIC.
    pub(crate) async fn of_nic(nic: &NicSlot) -> Self {
        Self::of(&nic.entries().await)
    }
}

impl GigaflowStatus {
    /// Returns the status of the Gigaflow cache of each packet thread.
    ///
    /// Empty if the packet threads have another kind of cache.
    pub(crate) fn of_threads(
        counters: &[Arc<ThreadCounters>],
        config: &config::CacheOptions,
    ) -> Vec<Self> {
        if config.kind != config::CacheKind::Gigaflow {
            return Vec::new();
        }
        counters.iter().map(|own| Self::of(&own.chain, &config.gigaflow)).collect()
    }

    /// Returns the status of the Gigaflow cache of one packet thread.
    fn of(counters: &ChainCounters, config: &config::GigaflowOptions) -> Self {
        let hits = counters.hits.get();
        let stage = |own: &shunt_datapath::metrics::StageCounters| StageStatus {
            entries: own.entries.get(),
            entries_max: config.stage_entries as u64,
            masks: own.masks.get(),
        };
        Self {
            hits,
            entries_per_hit: average(counters.steps.get(), hits),
            misses: counters.misses.get(),
            partial_hits: counters.partial.get(),
            resumed: counters.resumed.get(),
            created: counters.made.get(),
            shared: counters.shared.get(),
            evicted_for_space: counters.evicted.get(),
            tags: counters.tags.get(),
            not_partitioned: NotPartitioned {
                learns: counters.learning.get(),
                near_limits: counters.near_bounds.get(),
                no_tag: counters.without_tags.get(),
                stages_full: counters.without_room.get(),
                refused: counters.refused.get(),
            },
            stages: counters.stages.iter().take(config.stages.into()).map(stage).collect(),
        }
    }

    /// Returns the sum over all packet threads.
    pub(crate) fn sum(all: &[Self]) -> Self {
        let mut sum = Self::default();
        let mut steps = 0.0;
        for own in all {
            #[expect(clippy::cast_precision_loss, reason = "the average is only displayed")]
            {
                steps += own.entries_per_hit * own.hits as f64;
            }
            for (total, count) in [
                (&mut sum.hits, own.hits),
                (&mut sum.misses, own.misses),
                (&mut sum.partial_hits, own.partial_hits),
                (&mut sum.resumed, own.resumed),
                (&mut sum.created, own.created),
                (&mut sum.shared, own.shared),
                (&mut sum.evicted_for_space, own.evicted_for_space),
                (&mut sum.tags, own.tags),
                (&mut sum.not_partitioned.learns, own.not_partitioned.learns),
                (&mut sum.not_partitioned.near_limits, own.not_partitioned.near_limits),
                (&mut sum.not_partitioned.no_tag, own.not_partitioned.no_tag),
                (&mut sum.not_partitioned.stages_full, own.not_partitioned.stages_full),
                (&mut sum.not_partitioned.refused, own.not_partitioned.refused),
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
        #[expect(clippy::cast_precision_loss, reason = "the average is only displayed")]
        {
            sum.entries_per_hit = if sum.hits == 0 { 0.0 } else { steps / sum.hits as f64 };
        }
        sum
    }
}

/// Returns the average; 0 without any values.
#[expect(clippy::cast_precision_loss, reason = "the average is only displayed")]
fn average(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}
