//! Turns the traversal of a missed packet into LTM entries.
//!
//! A fill plans the partition, reuses or builds the entry of each sub-traversal, and puts the new
//! entries into their stages.
//!
//! A fill reuses an entry of the planned stage if the entry is live and covers as many visits as
//! planned. The entry must also have the current tag of the packet, and match the current headers.
//! A reused entry does what the pipeline does, like any entry that a packet matches. So the next
//! sub-traversal begins with the headers and the tag after the reused entry.
//!
//! The entries of all other sub-traversals are built. A new entry is composed from the visits of
//! the whole traversal, or translated once more between its partition points, without table
//! lookups. If the plan is a single sub-traversal, the translation of the whole traversal becomes
//! its entry.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_pipeline::{SubTraversal, Traversal};

use super::{ActivePolicy, FillRequest, Gigaflow, Miss, open_stages::OpenStages};
use crate::{
    adaptive::Granularity,
    convert::rule_of,
    ltm::{
        EntryQuery, LtmEntryRef, LtmRule, NewLtmEntry, Next, PartitionMember, PartitionOrigin,
        PutResult, RewrittenHeaders, Store, Tag, first_table_of,
    },
    outline::{StateId, SubTraversalId},
    partition::{EmptyStages, PartitionPolicy as _, Placement, StageView as _},
    tag::{TagName, TagsFull},
};

/// The working memory of a fill, empty between fills, with its capacity kept.
#[derive(Debug, Default)]
pub(super) struct FillScratch {
    /// The partition: the sub-traversals with their stages.
    plan: Vec<Placement>,
    /// The entry of each planned sub-traversal.
    entries: Vec<PlannedEntry>,
    /// The first tag of each planned sub-traversal, which the fill holds.
    tags: Vec<Tag>,
    /// Entries that the fill must not evict.
    kept: Vec<LtmEntryRef>,
    headers: RewrittenHeaders,
}

/// The entry of a planned sub-traversal.
#[derive(Debug)]
enum PlannedEntry {
    /// The planned stage holds the entry already.
    Existing(LtmEntryRef),
    /// The entry is built and not yet in its stage.
    New { traversal: Arc<Traversal>, rule: LtmRule, id: SubTraversalId },
}

/// The reason why a plan cannot become entries.
enum FillError {
    TagsFull,
    /// A sub-traversal spends more than its share of a translation bound.
    NearBounds,
    /// The store does not admit one of the entries.
    /// Without this entry, the other entries of the plan are useless.
    Refused,
}

impl From<TagsFull> for FillError {
    fn from(_: TagsFull) -> Self {
        Self::TagsFull
    }
}

/// An id that no sub-traversal has.
const NO_ID: SubTraversalId = SubTraversalId { identity: 0, begin: StateId::END };

impl Gigaflow {
    /// Installs entries for a traversal, and returns whether the stages had room.
    ///
    /// The rest of a traversal with a partial hit is not cached if it would evict a recently used
    /// entry, or if more stages would give a finer partition. The packet then starts over, and
    /// another partition may find room.
    pub(super) fn fill(&mut self, store: &mut impl Store, request: &FillRequest<'_>) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.plan(store, request, &mut scratch.plan);
        let is_planned = !scratch.plan.is_empty();
        if is_planned {
            self.execute_plan(store, request, &mut scratch);
        } else {
            // A partial hit is not counted: it starts over, and may find room then.
            self.counts.without_room += u64::from(request.matched.is_empty());
        }
        self.scratch = scratch;
        is_planned
    }

    /// Builds and installs the planned entries.
    fn execute_plan(
        &mut self,
        store: &mut impl Store,
        request: &FillRequest<'_>,
        scratch: &mut FillScratch,
    ) {
        scratch.kept.clear();
        scratch.kept.extend(self.ltm.names(request.matched));
        if let Err(error) = self.build_entries(store, request, scratch) {
            match error {
                FillError::TagsFull => self.counts.without_tags += 1,
                FillError::NearBounds => self.counts.near_bounds += 1,
                FillError::Refused => {}
            }
            self.release_plan(scratch);
            if let [first, _, ..] = &scratch.plan[..] {
                let megaflow =
                    Placement { steps: 0..self.outline.steps_count(), stage: first.stage };
                scratch.plan.clear();
                scratch.plan.push(megaflow);
                // Without a first tag, the traversal is not cached.
                if self.build_entries(store, request, scratch).is_err() {
                    scratch.entries.clear();
                }
            }
        }
        self.put_entries(store, request, scratch);
        self.release_plan(scratch);
    }

    /// Finds or builds the entries of the plan.
    fn build_entries(
        &mut self,
        store: &mut impl Store,
        request: &FillRequest<'_>,
        scratch: &mut FillScratch,
    ) -> Result<(), FillError> {
        let (miss, before) = (request.miss, self.counts.visits);
        scratch.headers.begin();
        scratch.tags.push(self.ltm.hold(&TagName::of_start(miss.key, miss.start))?);
        let built: Result<(), FillError> = (0..scratch.plan.len()).try_for_each(|number| {
            let entry = self.build_entry(store, request, scratch, number)?;
            self.advance(miss.key, &entry, scratch);
            scratch.entries.push(entry);
            Ok(())
        });
        self.counts.translations += u64::from(self.counts.visits > before);
        built?;
        let rule = |entry| match entry {
            &PlannedEntry::Existing(entry) => self.ltm.rule(entry.slot),
            PlannedEntry::New { rule, .. } => Some(rule),
        };
        let admits = scratch.entries.iter().filter_map(rule).all(|rule| store.admits(rule));
        if admits { Ok(()) } else { Err(FillError::Refused) }
    }

    /// Finds or builds the entry of one planned sub-traversal.
    fn build_entry(
        &mut self,
        store: &mut impl Store,
        request: &FillRequest<'_>,
        scratch: &FillScratch,
        number: usize,
    ) -> Result<PlannedEntry, FillError> {
        let Miss { pipeline, key, start, now, .. } = request.miss;
        let (placement, is_last) = (&scratch.plan[number], number + 1 == scratch.plan.len());
        let (headers, tag) = (scratch.headers.of(key), scratch.tags[number]);
        let id = self.outline.id(&placement.steps).unwrap_or(NO_ID);
        let query = EntryQuery {
            identity: id.identity,
            stage: placement.stage,
            tag,
            key: headers,
            visits_count: placement.steps.end - placement.steps.start,
            is_last,
        };
        if let Some(existing) = self.ltm.reuse(store, &query, now) {
            return Ok(PlannedEntry::Existing(existing));
        }
        let whole = request.whole;
        if scratch.plan.len() == 1 {
            let traversal = &whole.traversal;
            let rule = rule_of(traversal, self.no_rewrite.clone(), tag, Next::End, &mut self.masks);
            return Ok(PlannedEntry::New { traversal: Arc::clone(traversal), rule, id });
        }
        let visits = placement.steps.start.into()..placement.steps.end.into();
        let built = match self.ltm.tags().name(tag) {
            Some(TagName::Continuation(start)) if number > 0 => {
                pipeline.translate_sub_traversal(headers, Some(start), whole, visits)
            }
            _ => pipeline.translate_sub_traversal(key, start, whole, visits),
        };
        let SubTraversal { traversal, rewrite, limit_use } = built;
        self.counts.visits += traversal.visits.len() as u64;
        debug_assert_eq!(
            traversal.next.is_none(),
            is_last,
            "the sub-traversal ends at its partition point"
        );
        let fits = limit_use.fits(self.ltm.capacity().stages_count.into());
        if !fits || traversal.error.is_some() || traversal.next.is_none() != is_last {
            return Err(FillError::NearBounds);
        }
        let next = match &traversal.next {
            Some(next) => Next::Tag(self.ltm.hold(&TagName::Continuation(Arc::clone(next)))?),
            None => Next::End,
        };
        let rule = rule_of(&traversal, rewrite, tag, next, &mut self.masks);
        Ok(PlannedEntry::New { traversal: Arc::new(traversal), rule, id })
    }

    /// Applies the rewrite of an entry to the packet, and notes the next tag.
    fn advance(&mut self, ingress: &FlowKey, entry: &PlannedEntry, scratch: &mut FillScratch) {
        let rule = match entry {
            PlannedEntry::Existing(entry) => self.ltm.rule(entry.slot),
            PlannedEntry::New { rule, .. } => Some(rule),
        };
        let Some(LtmRule { rewrite, next, .. }) = rule else { return };
        scratch.headers.rewrite(ingress, rewrite);
        let &Next::Tag(next) = next else { return };
        scratch.tags.push(next);
        if let PlannedEntry::Existing(_) = entry {
            self.ltm.hold_again(next);
        }
    }

    /// Puts the new entries into their stages.
    fn put_entries(
        &mut self,
        store: &mut impl Store,
        request: &FillRequest<'_>,
        scratch: &mut FillScratch,
    ) {
        let (origin, now) = (self.origin(request, scratch), request.miss.now);
        let FillScratch { plan, entries, kept, .. } = scratch;
        kept.extend(entries.iter().filter_map(|entry| match entry {
            PlannedEntry::Existing(entry) => Some(*entry),
            PlannedEntry::New { .. } => None,
        }));
        for (entry, placement) in entries.drain(..).zip(plan) {
            let PlannedEntry::New { traversal, rule, id } = entry else {
                self.counts.shared += 1;
                continue;
            };
            let new = NewLtmEntry { rule, traversal, id, stage: placement.stage, origin };
            match self.ltm.put(store, new, kept, now) {
                PutResult::Fresh(entry) => {
                    self.counts.made += 1;
                    kept.push(entry);
                }
                PutResult::Shared(entry) => {
                    self.counts.shared += 1;
                    kept.push(entry);
                }
                PutResult::Full => self.counts.without_room += 1,
                PutResult::Refused => self.counts.refused += 1,
            }
        }
    }

    /// Returns the partition of the traversal, which new entries record.
    ///
    /// The partition has the entries that the packet matched before the miss, then the entries of
    /// the plan. If the plan has no new entry, the default is returned, since no entry would record
    /// the partition.
    fn origin(&self, request: &FillRequest<'_>, scratch: &FillScratch) -> PartitionOrigin {
        if scratch.entries.iter().all(|entry| matches!(entry, PlannedEntry::Existing(_))) {
            return PartitionOrigin::default();
        }
        let matched = request.matched.iter().filter_map(|slot| self.ltm.partition_member(*slot));
        let planned = scratch.entries.iter().zip(&scratch.plan);
        let planned = planned.filter_map(|(entry, placement)| match entry {
            PlannedEntry::Existing(entry) => self.ltm.partition_member(entry.slot),
            PlannedEntry::New { rule, traversal, .. } => Some(PartitionMember {
                first_table: first_table_of(traversal),
                stage: placement.stage,
                rule,
            }),
        });
        PartitionOrigin::of(self.seed, matched.chain(planned))
    }

    /// Releases the tags of a plan.
    fn release_plan(&mut self, scratch: &mut FillScratch) {
        scratch.entries.clear();
        scratch.tags.drain(..).for_each(|tag| self.ltm.release(tag));
    }

    /// Plans the partition of the traversal, and the stage of each sub-traversal.
    ///
    /// The plan stays empty if the stages have no room.
    fn plan(&mut self, store: &impl Store, request: &FillRequest<'_>, plan: &mut Vec<Placement>) {
        plan.clear();
        let stages = OpenStages::new(&mut self.ltm, store, request.open, request.miss.now);
        let contended = stages.contended();
        if self.outline.steps_count() == 0 {
            // The rest of a traversal after a partial hit may have no table lookup.
            let stage = stages.best(request.open);
            plan.extend(stage.map(|stage| Placement { steps: 0..0, stage }));
            return;
        }
        let placements = match (request.granularity, &mut self.policy) {
            (Granularity::Megaflows, _) => self.megaflow.partition(&self.outline, &stages),
            (_, ActivePolicy::Fixed(policy)) => policy.partition(&self.outline, &stages),
            (_, ActivePolicy::SetDuelling(adaptive)) => adaptive.partition(&self.outline, &stages),
        };
        plan.extend_from_slice(placements);
        let presses = |placement: &Placement| {
            let is_held = |identity| self.ltm.holders_of(identity).contains(placement.stage);
            contended.contains(placement.stage)
                && !self.outline.identity(&placement.steps).is_some_and(is_held)
        };
        if !request.matched.is_empty()
            && (plan.iter().any(presses) || self.needs_more_stages(plan.len(), request))
        {
            plan.clear();
        }
    }

    /// Returns whether the policy would make more sub-traversals with all stages open.
    fn needs_more_stages(&mut self, placements_count: usize, request: &FillRequest<'_>) -> bool {
        let most = self.outline.segments_count().min(self.ltm.capacity().stages_count.into());
        if placements_count < request.open.count().into() || placements_count == most {
            return false;
        }
        let all = EmptyStages(self.ltm.capacity().stages_count);
        let wanted = match &mut self.policy {
            ActivePolicy::Fixed(policy) => policy.partition(&self.outline, &all).len(),
            ActivePolicy::SetDuelling(adaptive) => adaptive.partition(&self.outline, &all).len(),
        };
        wanted > placements_count
    }
}
