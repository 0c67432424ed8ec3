//! The contract of a wildcard cache: an index that finds entries by consulted bits.
//!
//! The entries themselves belong to the thread's [`Owner`]. An index only maps keys to [`EntryRef`]s
//! of live entries, so an invalidation is one store per entry, without a call of the index. An
//! index must therefore ask the owner if a found entry is live. The index removes dead entries
//! later, when [`WildcardIndex::remove`] is called for each dead entry.
//!
//! # Add an index
//!
//! Implement [`WildcardIndex`] in one file, and add one line to the list `wildcard_indexes!` at the end
//! of this file, with the setting in [`Wildcard`] that selects the index. A packet thread has one index
//! at a time. Calls are dispatched by a `match` in [`AnyIndex`], once per burst on the packet path.

use std::{fmt, sync::Arc};

use shunt_flow::{FlowKey, SparseMask};
use shunt_foresight::ForecastRefusal;
use shunt_pipeline::{Continuation, Pipeline, Time, Traversal, Version};

use super::{
    EntryRef, HitSlots, KeyHasher, PositionSet, Reclaimed, Trainer, Wildcard,
    chain::{CoverageLink, GigaflowIndex},
    flows::NoIndex,
    megaflow::MegaflowIndex,
};
use crate::{
    evict::owner::Owner, forecast::Preload, metrics::ThreadCounters, packet::buffer::BURST,
};

/// Finds the entries that cover a packet, and adds entries for packets that miss.
pub(crate) trait WildcardIndex: fmt::Debug {
    /// The settings of the index.
    type Config;

    /// The state of a lookup that missed, for [`Self::handle_miss`].
    ///
    /// The default is the state of a lookup that has found nothing.
    type Partial: Default;

    /// Counts that continue when the index is replaced and later selected again.
    type Totals: Copy + Default + fmt::Debug;

    /// Creates an empty index that continues counting at `totals`.
    fn new(config: Self::Config, seeds: &IndexSeeds, totals: Self::Totals) -> Self;

    /// Returns the counts of this kind of index since the thread started.
    fn totals(&self) -> Self::Totals;

    /// Returns the number of entries that the index has room for.
    fn capacity(&self) -> IndexCapacity;

    /// Returns whether the next burst needs the hashes of its packets.
    ///
    /// By default, an index needs no hashes.
    fn uses_hashes(&self) -> bool {
        false
    }

    /// Looks up the packets of a burst at `selected` positions, and sets their `hits`.
    ///
    /// All packets come from one port. Returns the number of hash tables probed, summed over packets.
    fn find_burst(
        &mut self,
        owner: &Owner,
        burst: &IngressBurst<'_>,
        selected: PositionSet,
        hits: &mut [HitSlots; BURST],
    ) -> u32;

    /// Looks up one packet: one from the upcall queue, or one that was recirculated.
    fn find(&mut self, owner: &Owner, key: &FlowKey) -> Lookup<Self::Partial>;

    /// Subtracts a hit at a position of the last burst.
    ///
    /// The packet will be looked up again.
    fn uncount_hit(&mut self, position: usize, hit: &HitSlots);

    /// Translates a packet that missed, and adds entries for it.
    ///
    /// `partial` is the result of [`Self::find`] for the same key, or the default. A traversal that
    /// learns is not cached.
    fn handle_miss(
        &mut self,
        owner: &mut Owner,
        upcall: Upcall<'_>,
        partial: Self::Partial,
    ) -> UpcallResult;

    /// Removes a dead entry. Does nothing if the entry belongs to a former index.
    fn remove(&mut self, entry: EntryRef);

    /// Removes a dead entry and translates its traversal again at the owner's version.
    ///
    /// Returns the outcome and the number of translations.
    fn repair(
        &mut self,
        owner: &mut Owner,
        pipeline: &Pipeline,
        old: &Reclaimed,
    ) -> (RepairOutcome, u64);

    /// Translates a forecast, and adds entries for it if no entry covers it.
    ///
    /// A preload counts no packet. The default refuses every forecast, as for an index without
    /// entries.
    fn preload(&mut self, _owner: &mut Owner, _forecast: &ForecastUpcall<'_>) -> Preload {
        Preload::Refused { reason: ForecastRefusal::NoEntries, translations: 0 }
    }

    /// Returns whether more than one entry in `divisor` is free in each stage.
    ///
    /// By default, an index has no limits apart from the slots of the owner.
    fn has_room(&self, _divisor: usize) -> bool {
        true
    }

    /// Does a bounded amount of deferred work; returns whether there was any.
    ///
    /// By default, an index has no deferred work.
    fn maintain(&mut self) -> bool {
        false
    }

    /// Returns the number of masks in use.
    fn masks(&self) -> usize;

    /// Publishes the counts of the index.
    fn publish(&self, counters: &ThreadCounters);

    /// Returns the positions of the hits of a burst to pass to [`Self::observe`].
    fn sample_burst(&mut self, _hits: &[HitSlots]) -> PositionSet {
        PositionSet::EMPTY
    }

    /// Observes a sampled packet that hit, to learn where to partition traversals.
    fn observe(&mut self, _upcall: Upcall<'_>) {}

    /// Returns the position of a live entry in the chain, if it is an LTM entry.
    fn link(&self, _entry: EntryRef) -> Option<CoverageLink> {
        None
    }
}

/// The packets of a burst, as they arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IngressBurst<'a> {
    /// The keys of the packets.
    pub(crate) keys: &'a [FlowKey],
    /// The hashes of the keys, if [`WildcardIndex::uses_hashes`] returned true.
    pub(crate) hashes: &'a [u64; BURST],
}

/// A forecast that needs a translation.
pub(crate) struct ForecastUpcall<'a> {
    /// The flow and the functions that translate it.
    pub(crate) upcall: Upcall<'a>,
    /// The bits of the key that the forecast knows; `None`: all bits.
    pub(crate) known: Option<&'a SparseMask>,
    /// True if entries may be added.
    pub(crate) has_room: bool,
}

/// A packet that needs a translation.
#[derive(Clone, Copy)]
pub(crate) struct Upcall<'a> {
    /// The tables to translate with.
    pub(crate) pipeline: &'a Pipeline,
    /// The key of the packet at lookup.
    pub(crate) key: &'a FlowKey,
    /// The continuation at which a recirculated packet resumes.
    pub(crate) start: Option<&'a Arc<Continuation>>,
    /// The version of the thread.
    pub(crate) version: Version,
    /// The time of the upcall.
    pub(crate) now: Time,
}

/// The result of a lookup of one packet.
#[derive(Debug)]
pub(crate) enum Lookup<P> {
    /// Live entries cover the packet.
    Hit {
        /// The slots of the entries that cover the packet.
        slots: HitSlots,
        /// True if the packet is to be passed to [`WildcardIndex::observe`].
        is_sampled: bool,
    },
    /// No entry, or not all entries, were found.
    Miss(P),
}

/// The result of the translation of a packet that missed.
pub(crate) struct UpcallResult {
    /// The sub-traversals of the packet in order, or its whole traversal.
    pub(crate) traversals: Vec<Arc<Traversal>>,
    /// The entry of the whole traversal, if one was installed.
    pub(crate) entry: Option<EntryRef>,
    /// Number of translations, whole or of a sub-traversal.
    pub(crate) translations: u64,
}

/// The outcome of the re-translation of an evicted entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepairOutcome {
    /// A new entry has the same actions.
    Same,
    /// A new entry has other actions.
    Changed,
    /// Another live entry already covers the packets.
    Covered,
    /// No entry was added.
    ///
    /// The traversal learns, no slot is free, or it is not the first sub-traversal of a chain.
    Dropped,
}

/// Limits of an index: its slots, and the entries that one packet hits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexCapacity {
    /// Number of slots for an index that evicts entries; `None`: as configured.
    pub(crate) entries_max: Option<usize>,
    /// Maximum number of entries that one packet hits.
    pub(crate) hits_per_packet_max: usize,
}

/// The random inputs of an index.
#[derive(Debug)]
pub(crate) struct IndexSeeds {
    /// The hash function of keys.
    pub(crate) hasher: KeyHasher,
    /// The start value of further random numbers.
    pub(crate) seed: u64,
    /// The trainer of learned indexes.
    pub(crate) trainer: Arc<Trainer>,
}

/// Returns the reason for which no forecast can be installed now.
pub(super) fn room_refusal(owner: &Owner, has_room: bool) -> Option<ForecastRefusal> {
    if !has_room || owner.entries().is_full() {
        return Some(ForecastRefusal::NoRoom);
    }
    (!owner.can_install()).then_some(ForecastRefusal::ReportsFull)
}

impl Upcall<'_> {
    /// Translates the packet, and installs nothing.
    pub(super) fn translate(&self) -> Traversal {
        match self.start {
            None => self.pipeline.translate(self.key, self.version),
            Some(start) => self.pipeline.resume(self.key, start, self.version),
        }
    }
}

impl<P> Lookup<P> {
    /// Converts the partial lookup of a miss.
    fn map_partial<Q>(self, map: impl FnOnce(P) -> Q) -> Lookup<Q> {
        match self {
            Self::Hit { slots, is_sampled } => Lookup::Hit { slots, is_sampled },
            Self::Miss(partial) => Lookup::Miss(map(partial)),
        }
    }
}

impl RepairOutcome {
    /// Returns the outcome of a repair with the same actions, or with other actions.
    pub(super) const fn of(is_same: bool) -> Self {
        if is_same { Self::Same } else { Self::Changed }
    }
}

/// Lists the indexes: field of the totals, variant, type, setting, configuration.
macro_rules! wildcard_indexes {
    ($($field:ident: $name:ident($index:ty), if $setting:pat => $config:expr;)*) => {
        /// The wildcard cache of a packet thread.
        #[derive(Debug)]
        pub(crate) enum AnyIndex {
            $($name(Box<$index>),)*
        }

        /// The state of a lookup that missed in one of the indexes.
        #[expect(clippy::large_enum_variant, reason = "the value is on the stack until the miss is handled")]
        #[derive(Debug, Default)]
        pub(crate) enum PartialLookup {
            #[default]
            Unknown,
            $($name(<$index as WildcardIndex>::Partial),)*
        }

        /// The totals of every index that the thread has used.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct IndexTotals {
            $($field: <$index as WildcardIndex>::Totals,)*
        }

        impl AnyIndex {
            /// Creates the index that the setting selects.
            pub(super) fn new(setting: Wildcard, seeds: &IndexSeeds, totals: &IndexTotals) -> Self {
                match setting {
                    $($setting => {
                        Self::$name(Box::new(<$index>::new($config, seeds, totals.$field)))
                    })*
                }
            }

            /// Stores the totals of the index, for the next index of its kind.
            pub(super) fn save_totals(&self, totals: &mut IndexTotals) {
                match self {
                    $(Self::$name(index) => totals.$field = index.totals(),)*
                }
            }

            /// Finds the entries of one packet.
            pub(super) fn find(&mut self, owner: &Owner, key: &FlowKey) -> Lookup<PartialLookup> {
                match self {
                    $(Self::$name(index) => {
                        index.find(owner, key).map_partial(PartialLookup::$name)
                    })*
                }
            }

            /// Installs entries for a packet that missed.
            pub(super) fn handle_miss(
                &mut self,
                owner: &mut Owner,
                upcall: Upcall<'_>,
                partial: PartialLookup,
            ) -> UpcallResult {
                match (self, partial) {
                    $((Self::$name(index), PartialLookup::$name(partial)) => {
                        index.handle_miss(owner, upcall, partial)
                    })*
                    $((Self::$name(index), _) => {
                        index.handle_miss(owner, upcall, Default::default())
                    })*
                }
            }

            /// Returns the number of entries that the index has room for.
            pub(super) fn capacity(&self) -> IndexCapacity {
                match self {
                    $(Self::$name(index) => index.capacity(),)*
                }
            }

            /// Finds the entries of each selected packet; returns a bit for each hit.
            pub(super) fn find_burst(
                &mut self,
                owner: &Owner,
                burst: &IngressBurst<'_>,
                selected: PositionSet,
                hits: &mut [HitSlots; BURST],
            ) -> u32 {
                match self {
                    $(Self::$name(index) => index.find_burst(owner, burst, selected, hits),)*
                }
            }

            /// Returns whether lookups use the hashes of the packets.
            pub(super) fn uses_hashes(&self) -> bool {
                match self {
                    $(Self::$name(index) => index.uses_hashes(),)*
                }
            }

            /// Subtracts a hit of the last burst.
            pub(super) fn uncount_hit(&mut self, position: usize, hit: &HitSlots) {
                match self {
                    $(Self::$name(index) => index.uncount_hit(position, hit),)*
                }
            }

            /// Removes an entry from the index.
            pub(super) fn remove(&mut self, entry: EntryRef) {
                match self {
                    $(Self::$name(index) => index.remove(entry),)*
                }
            }

            /// Translates an evicted entry again, and installs the result.
            pub(super) fn repair(
                &mut self,
                owner: &mut Owner,
                pipeline: &Pipeline,
                old: &Reclaimed,
            ) -> (RepairOutcome, u64) {
                match self {
                    $(Self::$name(index) => index.repair(owner, pipeline, old),)*
                }
            }

            /// Installs entries for a forecast.
            pub(super) fn preload(
                &mut self,
                owner: &mut Owner,
                forecast: &ForecastUpcall<'_>,
            ) -> Preload {
                match self {
                    $(Self::$name(index) => index.preload(owner, forecast),)*
                }
            }

            /// Returns whether more than one entry in `divisor` is free.
            pub(super) fn has_room(&self, divisor: usize) -> bool {
                match self {
                    $(Self::$name(index) => index.has_room(divisor),)*
                }
            }

            /// Does a bounded amount of deferred work; returns whether there was any.
            pub(super) fn maintain(&mut self) -> bool {
                match self {
                    $(Self::$name(index) => index.maintain(),)*
                }
            }

            /// Returns the number of masks in use.
            pub(super) fn masks(&self) -> usize {
                match self {
                    $(Self::$name(index) => index.masks(),)*
                }
            }

            /// Publishes the counts of the index.
            pub(super) fn publish(&self, counters: &ThreadCounters) {
                match self {
                    $(Self::$name(index) => index.publish(counters),)*
                }
            }

            /// Returns the hits of a burst to observe.
            pub(super) fn sample_burst(&mut self, hits: &[HitSlots]) -> PositionSet {
                match self {
                    $(Self::$name(index) => index.sample_burst(hits),)*
                }
            }

            /// Observes a sampled packet that hit.
            pub(super) fn observe(&mut self, upcall: Upcall<'_>) {
                match self {
                    $(Self::$name(index) => index.observe(upcall),)*
                }
            }

            /// Returns the position of an LTM entry in the chain.
            pub(super) fn link(&self, entry: EntryRef) -> Option<CoverageLink> {
                match self {
                    $(Self::$name(index) => index.link(entry),)*
                }
            }
        }
    };
}

wildcard_indexes! {
    megaflow: Megaflow(MegaflowIndex), if Wildcard::Megaflow(config) => config;
    flows: Flows(NoIndex), if Wildcard::Flows(_config) => ();
    gigaflow: Gigaflow(GigaflowIndex), if Wildcard::Gigaflow(config) => config;
}
