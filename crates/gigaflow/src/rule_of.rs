//! From traversals to rules: what a policy sees of a whole one, and what a stage holds of a piece.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match, SparseKey, SparseMask, hash::split_mix, layout::FLOW_WORDS};
use shunt_pipeline::{Continuation, NotedTraversal, Rule, Traversal, Visit};

use crate::{
    ltm::{LtmRule, Next, Tag},
    outline::{FieldSet, StateId, Step, TraversalOutline, fold},
};

/// Shows a traversal to policies. `seed` goes into what they compare.
pub fn outline_of(noted: &NotedTraversal, seed: u64, way: &mut TraversalOutline) {
    let traversal = &noted.traversal;
    way.begin(start_of(traversal.key.bridge(), traversal.continuation.as_ref()));
    let mut points = noted.points.iter().peekable();
    // Visits one after another have mostly the same key.
    let (mut key, mut entered): (_, Option<&SparseKey>) = (FlowKey::ZERO, None);
    for (number, visit) in traversal.visits.iter().enumerate() {
        if let Some(point) = points.next_if(|point| point.visit == number) {
            way.cut(cut(point.name));
        }
        if entered != Some(&visit.key) {
            (key, entered) = (FlowKey::from(&visit.key), Some(&visit.key));
        }
        way.step(step_of(visit, &key, seed));
    }
}

/// The name of where a way begins: in a bridge, or where it goes on, as whoever cut it there calls it.
#[must_use]
pub fn start_of(bridge: u64, start: Option<&Arc<Continuation>>) -> StateId {
    cut(start.map_or_else(|| fold(fold(0, bridge), 0), |start| start.name()))
}

/// The rule of a piece that rewrites headers like this, between these tags.
///
/// Hidden words are no part of its match: those that the piece consulted are constants of its tag. A
/// bit that it consulted after it had written it is not in the mask of the traversal.
#[must_use]
pub fn rule_of(
    traversal: &Traversal,
    rewrite: Match,
    (tag, next): (Tag, Next),
    masks: &mut HeaderMasks,
) -> LtmRule {
    LtmRule {
        tag,
        matching: Match::of(&traversal.key, masks.of(&traversal.mask)),
        length: u16::try_from(traversal.visits.len()).unwrap_or(u16::MAX),
        actions: Arc::clone(&traversal.actions),
        rewrite,
        next,
    }
}

/// Masks without their hidden words, of traversals that came lately. Traversals share masks, and so rules
/// do.
#[derive(Debug)]
pub struct HeaderMasks(Box<[Option<(SparseMask, SparseMask)>]>);

/// Masks that are kept.
const MASKS_KEPT: usize = 256;

impl HeaderMasks {
    /// The mask without its hidden words.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits of a hash")]
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

/// What a visit saw of the headers, which are those of `key`, and of what it found.
fn step_of(visit: &Visit, key: &FlowKey, seed: u64) -> Step {
    let place = u64::from(visit.bridge.number()) << 8 | u64::from(visit.table.number());
    let found =
        |identity, rule: &Arc<Rule>| fold(fold(identity, rule.id.number()), rule.revision.into());
    let identity = visit.rule.iter().chain(&visit.clauses).fold(fold(seed, place), found);
    // Words are mixed each by itself, so that none waits for another, and added up.
    let (mut seen, mut fields) = (0_u64, FieldSet::EMPTY);
    for (index, mask) in visit.mask.headers() {
        fields = fields.union(FieldSet::of_bits(index, mask));
        seen = seen.wrapping_add(mixed(MIXERS[index] ^ seed, mask, key.words()[index] & mask));
    }
    Step { fields, identity: fold(identity, seen) }
}

/// A hash of the mask and the value of a word.
#[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
const fn mixed(mixer: u64, mask: u64, value: u64) -> u64 {
    let product = (mask ^ mixer) as u128 * value.wrapping_add(mixer.rotate_left(32)) as u128;
    (product >> 64) as u64 ^ product as u64
}

/// What tells the words of a key apart.
const MIXERS: [u64; FLOW_WORDS] = {
    let (mut mixers, mut state, mut index) = ([0; FLOW_WORDS], 0, 0);
    while index < FLOW_WORDS {
        mixers[index] = split_mix(&mut state);
        index += 1;
    }
    mixers
};

#[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
const fn cut(name: u64) -> StateId {
    let folded = (name ^ name >> 32) as u32;
    // The last number is that of the end.
    StateId::new(if folded == StateId::END.number() { 0 } else { folded })
}
