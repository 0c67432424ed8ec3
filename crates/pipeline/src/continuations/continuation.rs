//! Continuations: the rest of a translation after a recirculation or a partition point.
//!
//! Some properties of a packet are not in its key: the headers that a pop uncovered, the length of
//! its frame. Where a translation needs one of these properties, its traversal and its cache entry
//! end with a [`Recirculate`](crate::DatapathAction::Recirculate) or a
//! [`CheckLength`](crate::DatapathAction::CheckLength). The datapath parses the packet again, and
//! looks the packet up with a `recirc_id` that names the continuation. A cache miss continues with
//! [`Pipeline::resume`](crate::Pipeline::resume).
//!
//! A continuation holds all hidden state and the remaining steps. The traversal that ends there has
//! consulted each bit of that state. Everything is stored *by value*, without a reference to a rule
//! or a group. So the change of a rule evicts the entry that ends at the continuation. The entries
//! of later traversals do not depend on the rule. If the remaining actions name their rule
//! (`learn`, `fin_timeout`), the rule's number and revision are stored ([`NamedRule`]).
//!
//! Continuations are interned: equal continuations share one number while any traversal names them.
//! So packets of different entries share the entries that follow.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hash, Hasher},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use shunt_flow::{FieldId, FlowKey, Match, PortNo, layout::HEADER_START, rewrite::TtlCopy};

use crate::{
    action::Action,
    bridges::output_counter::OutputHit,
    id::{BridgeId, RuleId, TableId},
    tables::rule::{Instructions, Rule},
    translate::{LimitCounters, RuleContext, Stack},
};

/// The remaining steps of a translation, equal to any with the same content.
pub struct Continuation {
    /// The number of the continuation, while a traversal names it.
    id: u32,
    /// The hash of the content, for predictions.
    name: u64,
    /// The state from which the translation continues.
    frozen: FrozenState,
}

/// The state of a translation, by value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrozenState {
    /// The bridge that the packet is in.
    pub(crate) bridge: BridgeId,
    /// The ingress port, if actions have changed it.
    pub(crate) in_port: Option<PortNo>,
    /// The bits of hidden state that are set, or all live bits of hidden state.
    pub(crate) hidden: Match,
    /// True if `hidden` contains all live bits, and no others.
    pub(crate) is_live_only: bool,
    /// The TTL copy that is done in the frame before it is parsed again.
    pub(crate) ttl_copy: Option<TtlCopy>,
    /// The remaining steps, the next one last.
    pub(crate) steps: Vec<FrozenStep>,
    /// The actions that are executed after the last table.
    pub(crate) action_set: Vec<Action>,
    /// The values of `push` actions.
    pub(crate) stack: Stack,
    /// The information on the running rule that packet-ins report.
    pub(crate) context: RuleContext,
    /// The rule of the remaining actions, if they name it.
    pub(crate) rule: Option<NamedRule>,
    /// The depth, lookups and recirculations so far.
    pub(crate) limits: LimitCounters,
    /// The mirrors of the bridge that have already copied the packet.
    pub(crate) mirrored: Vec<OutputHit>,
}

/// One remaining step: see `translate::agenda`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FrozenStep {
    Actions(Vec<Action>),
    Set(Vec<Action>),
    /// Instructions without those that were executed already.
    Instructions(Instructions),
    ActionSet(RuleContext),
    Walk,
    LookUp {
        table: TableId,
        /// The port that replaces the ingress port in the lookup.
        port: Option<PortNo>,
    },
    EndVisit,
    Return {
        context: RuleContext,
        /// The rule to return to; `None` if no rule was running.
        rule: Option<NamedRule>,
        /// The depth of nested lookups to return to.
        depth: u16,
    },
}

/// A rule, identified by number and revision.
#[derive(Clone, Debug)]
pub(crate) struct NamedRule(pub(crate) Arc<Rule>);

impl NamedRule {
    /// Returns the id and the revision of the rule.
    fn name(&self) -> (RuleId, u32) {
        (self.0.id, self.0.revision)
    }
}

impl PartialEq for NamedRule {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for NamedRule {}

impl Hash for NamedRule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// The interned continuations: those that a traversal names.
pub(crate) struct Continuations {
    /// The hasher of names, with a fixed seed.
    hasher: foldhash::fast::FixedState,
    interned: Mutex<InternedContinuations>,
}

/// The continuations by id, and the ids by content.
#[derive(Default)]
struct InternedContinuations {
    /// The continuations, by their ids.
    by_id: BTreeMap<u32, Weak<Continuation>>,
    /// Ids by hash of the content, possibly of continuations that are gone.
    by_content: BTreeMap<u64, Vec<u32>>,
    /// The last id that was given.
    last: u32,
    /// Number of ids at which the ids of dropped continuations are removed.
    sweep_at: usize,
}

/// The least value of [`InternedContinuations::sweep_at`].
const SWEEP_MIN: usize = 64;

impl Continuation {
    /// Returns the number of the continuation; unique while the continuation exists.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Returns a hash of the content, which is the same if the content is interned
    /// again.
    ///
    /// For a continuation at a partition point, the hash is the name of the
    /// [`PartitionPoint`](crate::PartitionPoint). Only predictions use the hash, because two
    /// contents may have equal hashes.
    #[must_use]
    pub const fn name(&self) -> u64 {
        self.name
    }

    /// Returns the TTL copy that is done in the frame before it is parsed again.
    #[must_use]
    pub const fn ttl_copy(&self) -> Option<TtlCopy> {
        self.frozen.ttl_copy
    }

    /// Completes the key of a packet that was parsed again for its lookup.
    ///
    /// On entry, `key` has the ingress port of the packet before its recirculation.
    pub fn enter(&self, key: &mut FlowKey) {
        key.set_bridge(u64::from(self.frozen.bridge.number()));
        key.set_field(FieldId::RecircId, u128::from(self.id));
        if let Some(port) = self.frozen.in_port {
            key.set_in_port(port);
        }
    }

    /// Returns the lookup key of a packet with these headers after a partition point.
    #[must_use]
    pub fn entering(&self, headers: &FlowKey) -> FlowKey {
        let mut key = headers.clone();
        key.words_mut()[..HEADER_START].fill(0);
        self.enter(&mut key);
        key
    }

    /// Returns the stored state of the translation that the packet resumes.
    pub(crate) const fn frozen(&self) -> &FrozenState {
        &self.frozen
    }
}

impl PartialEq for Continuation {
    fn eq(&self, other: &Self) -> bool {
        self.frozen == other.frozen
    }
}

impl Eq for Continuation {}

impl std::fmt::Debug for Continuation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Continuation")
            .field("id", &self.id)
            .field("steps", &self.frozen.steps)
            .finish_non_exhaustive()
    }
}

impl Continuations {
    /// Returns an empty store that hashes its entries with `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { hasher: foldhash::fast::FixedState::with_seed(seed), interned: Mutex::default() }
    }

    /// Returns the continuation with this content, which may get a known name.
    pub(crate) fn intern(&self, frozen: FrozenState, name: Option<u64>) -> Arc<Continuation> {
        let hash = self.hasher.hash_one(&frozen);
        let mut interned = self.interned.lock();
        if let Some(found) = interned.find(hash, &frozen) {
            return found;
        }
        if interned.by_id.len() >= interned.sweep_at {
            interned.sweep();
        }
        let id = interned.next_id();
        let continuation = Arc::new(Continuation { id, name: name.unwrap_or(hash), frozen });
        interned.by_id.insert(id, Arc::downgrade(&continuation));
        interned.by_content.entry(hash).or_default().push(id);
        continuation
    }
}

impl InternedContinuations {
    /// Returns the continuation with this state, if one is alive.
    fn find(&self, hash: u64, frozen: &FrozenState) -> Option<Arc<Continuation>> {
        let ids = self.by_content.get(&hash)?;
        let mut alive = ids.iter().filter_map(|id| self.by_id.get(id)?.upgrade());
        alive.find(|continuation| continuation.frozen == *frozen)
    }

    /// Returns an unused id, never 0: packets without recirculation have 0.
    fn next_id(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            let holder = self.by_id.get(&self.last);
            if self.last != 0 && holder.is_none_or(|holder| holder.strong_count() == 0) {
                return self.last;
            }
        }
    }

    /// Forgets the continuations that no traversal has any more.
    fn sweep(&mut self) {
        let by_id = &mut self.by_id;
        by_id.retain(|_, holder| holder.strong_count() > 0);
        self.by_content.retain(|_, ids| {
            ids.retain(|id| by_id.contains_key(id));
            !ids.is_empty()
        });
        self.sweep_at = (2 * by_id.len()).max(SWEEP_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::flow_mod::FlowModCommand;

    /// Returns the state of a packet in a bridge.
    fn frozen(bridge: u16) -> FrozenState {
        FrozenState {
            bridge: BridgeId::new(bridge),
            in_port: None,
            hidden: Match::any(),
            is_live_only: false,
            ttl_copy: None,
            steps: Vec::new(),
            action_set: Vec::new(),
            stack: Stack::default(),
            context: RuleContext::PACKET_OUT,
            rule: None,
            limits: LimitCounters::default(),
            mirrored: Vec::new(),
        }
    }

    #[test]
    fn equal_continuations_share_an_id_while_used() {
        let continuations = Continuations::new(1);
        let one = continuations.intern(frozen(1), None);
        let two = continuations.intern(frozen(2), None);
        assert_eq!((one.id(), two.id()), (1, 2));
        assert!(Arc::ptr_eq(&one, &continuations.intern(frozen(1), None)));
        drop(one);
        assert_eq!(
            continuations.intern(frozen(1), None).id(),
            3,
            "a freed number is not used again at once"
        );
    }

    #[test]
    fn a_replaced_rule_has_a_new_id() {
        let (bridge, pipeline) = (BridgeId::new(1), crate::Pipeline::new(1));
        pipeline.add_bridge(bridge, crate::BridgeSettings::default());
        let rule_after = |command| {
            let ports = &shunt_flow::text::NoPortNames;
            let request = crate::text::parse_rule(command, "actions=output:2", ports).unwrap();
            pipeline.apply(bridge, &[request], crate::Time::ZERO).unwrap();
            NamedRule(pipeline.rules(bridge, &crate::RuleFilter::all()).remove(0))
        };
        let first = rule_after(FlowModCommand::Add);
        let changed = rule_after(FlowModCommand::Modify);
        let replaced = rule_after(FlowModCommand::Add);
        assert!(first == first.clone() && first != changed && first != replaced);
    }

    #[test]
    fn a_number_in_use_is_not_reused() {
        let continuations = Continuations::new(1);
        let one = continuations.intern(frozen(1), None);
        continuations.interned.lock().last = u32::MAX;
        let two = continuations.intern(frozen(2), None);
        assert_eq!((one.id(), two.id()), (1, 2));
    }

    #[test]
    fn a_resumed_packet_has_only_its_saved_state() {
        let port = PortNo::new(3);
        let next =
            Continuations::new(1).intern(FrozenState { in_port: Some(port), ..frozen(7) }, None);
        let enter = |value| {
            let mut key = Match::any().key();
            key.set_field(FieldId::Reg0, value);
            key.set_field(FieldId::EthSrc, 9);
            next.entering(&key)
        };
        let key = enter(5);
        assert_eq!(key, enter(6));
        assert_eq!((key.in_port(), key.bridge()), (port, 7));
        assert_eq!(key.field(FieldId::EthSrc), 9);
        assert_eq!(key.field(FieldId::RecircId), u128::from(next.id()));
    }

    #[test]
    fn unused_continuations_are_freed() {
        let continuations = Continuations::new(1);
        let kept = continuations.intern(frozen(0), None);
        for bridge in 1..1000 {
            continuations.intern(frozen(bridge), None);
        }
        let interned = continuations.interned.lock();
        assert!(interned.by_id.len() <= SWEEP_MIN && interned.by_content.len() <= SWEEP_MIN);
        drop(interned);
        assert!(Arc::ptr_eq(&kept, &continuations.intern(frozen(0), None)));
    }
}
