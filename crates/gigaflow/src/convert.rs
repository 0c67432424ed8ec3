//! Converts traversals to outlines for policies, and to LTM rules for stages.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match, SparseKey, SparseMask, hash::split_mix, layout::FLOW_WORDS};
use shunt_pipeline::{Continuation, NotedTraversal, Rule, Traversal, Visit};

use crate::{
    ltm::{LtmRule, Next, Tag},
    outline::{FieldSet, OutlineStep, StateId, TraversalOutline, fold},
};

/// Writes the outline of a traversal. `seed` is the seed of the hashes of steps.
pub fn outline_of(noted: &NotedTraversal, seed: u64, outline: &mut TraversalOutline) {
    let traversal = &noted.traversal;
    outline.begin(start_of(traversal.key.bridge(), traversal.continuation.as_ref()));
    let mut points = noted.points.iter().peekable();
    // Consecutive visits mostly have the same key.
    let (mut key, mut entered): (_, Option<&SparseKey>) = (FlowKey::ZERO, None);
    for (number, visit) in traversal.visits.iter().enumerate() {
        if let Some(point) = points.next_if(|point| point.visit == number) {
            outline.partition_point(state_id(point.name));
        }
        if entered != Some(&visit.key) {
            (key, entered) = (FlowKey::from(&visit.key), Some(&visit.key));
        }
        outline.step(step_of(visit, &key, seed));
    }
}

/// Returns the first state of a traversal: the bridge, or a continuation.
#[must_use]
pub fn start_of(bridge: u64, start: Option<&Arc<Continuation>>) -> StateId {
    state_id(start.map_or_else(|| fold(fold(0, bridge), 0), |start| start.name()))
}

/// Returns the LTM rule of a sub-traversal with this rewrite and these tags.
///
/// The match of the rule has no hidden words, because all packets with the tag have the same hidden
/// words. The mask omits bits that the sub-traversal wrote before it consulted them.
#[must_use]
pub fn rule_of(
    traversal: &Traversal,
    rewrite: Match,
    tag: Tag,
    next: Next,
    masks: &mut HeaderMasks,
) -> LtmRule {
    let length = u16::try_from(traversal.visits.len());
    debug_assert!(length.is_ok(), "a translation does at most a few thousand lookups");
    LtmRule {
        tag,
        matching: Match::of(&traversal.key, masks.of(&traversal.mask)),
        // Without debug assertions, a longer traversal gets the largest length.
        length: length.unwrap_or(u16::MAX),
        actions: Arc::clone(&traversal.actions),
        rewrite,
        next,
    }
}

/// A cache from the mask of a recent traversal to its bits of headers.
///
/// The words of hidden state are removed. Traversals share masks, so LTM rules share the results.
#[derive(Debug)]
pub struct HeaderMasks(Box<[Option<(SparseMask, SparseMask)>]>);

/// Number of masks in the cache.
const MASKS_KEPT: usize = 256;

impl HeaderMasks {
    /// Returns the mask without the words of hidden state.
    #[expect(clippy::cast_possible_truncation, reason = "only low bits of the hash are used")]
    fn of(&mut self, mask: &SparseMask) -> &SparseMask {
        let place = fold(0, mask.address() as u64) as usize % MASKS_KEPT;
        let kept = &mut self.0[place];
        if kept.as_ref().is_none_or(|(whole, _)| whole.address() != mask.address()) {
            *kept = None;
        }
        &kept.get_or_insert_with(|| (mask.clone(), mask.without_hidden())).1
    }
}

impl Default for HeaderMasks {
    fn default() -> Self {
        Self(vec![None; MASKS_KEPT].into_boxed_slice())
    }
}

/// Returns the step of a visit.
/// A step has the consulted fields, and a hash of table, rules and masked key.
fn step_of(visit: &Visit, key: &FlowKey, seed: u64) -> OutlineStep {
    let place = u64::from(visit.bridge.number()) << 8 | u64::from(visit.table.number());
    let found =
        |identity, rule: &Arc<Rule>| fold(fold(identity, rule.id.number()), rule.revision.into());
    let identity = visit.rule.iter().chain(&visit.clauses).fold(fold(seed, place), found);
    // The hash adds one mixed number per word, so that the processor multiplies in parallel.
    let (mut seen, mut fields) = (0_u64, FieldSet::EMPTY);
    for (index, mask) in visit.mask.headers() {
        fields = fields.union(FieldSet::of_bits(index, mask));
        seen = seen.wrapping_add(mix(MIXERS[index] ^ seed, mask, key.words()[index] & mask));
    }
    OutlineStep { fields, identity: fold(identity, seen) }
}

/// Returns a hash of the mask and the value of a word.
#[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
const fn mix(mixer: u64, mask: u64, value: u64) -> u64 {
    let product = (mask ^ mixer) as u128 * value.wrapping_add(mixer.rotate_left(32)) as u128;
    (product >> 64) as u64 ^ product as u64
}

/// A constant per word of a key, which makes the hashes of words differ.
const MIXERS: [u64; FLOW_WORDS] = {
    let (mut mixers, mut state, mut index) = ([0; FLOW_WORDS], 0, 0);
    while index < FLOW_WORDS {
        mixers[index] = split_mix(&mut state);
        index += 1;
    }
    mixers
};

/// Returns the id of a state with this hash.
#[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
const fn state_id(hash: u64) -> StateId {
    let folded = (hash ^ hash >> 32) as u32;
    // The largest number is reserved for `StateId::END`.
    StateId::new(if folded == StateId::END.number() { 0 } else { folded })
}
