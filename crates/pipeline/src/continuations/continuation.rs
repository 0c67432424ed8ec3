//! Continuations: what is left of a translation where it was cut.
//!
//! Some things about a packet are not in its key: the headers that a pop uncovered, the length of
//! its frame. Where a translation needs one of them, its traversal, and so its cache entry, ends
//! with a [`Recirculate`](crate::DatapathAction::Recirculate) or a
//! [`CheckLength`](crate::DatapathAction::CheckLength). The datapath parses the packet again and
//! looks it up with a `recirc_id` that names the continuation; what no cache knows goes on by
//! [`Pipeline::resume`](crate::Pipeline::resume).
//!
//! A continuation holds all hidden state, each bit of which the traversal before it consulted, and
//! what is left to do: everything *by value*, never a reference to a rule or a group. So a rule
//! that changes meanwhile takes the entry that ends here with it, and the entries behind it do not
//! depend on it. Where what is left says which rule it is of (`learn`, `fin_timeout`), that is a
//! value too: the rule's number and revision ([`NamedRule`]). Continuations are interned: equal ones are one and have one number while any
//! traversal names them, so that packets which come by different entries share what follows.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hash, Hasher},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use shunt_flow::{FieldId, FlowKey, Match, PortNo, layout::HEADER_START, rewrite::TtlCopy};

use crate::{
    action::Action,
    id::{BridgeId, RuleId, TableId},
    tables::rule::{Instructions, Rule},
    translate::{Scope, Spent, Stack},
};

/// What is left of a translation where it was cut; equal to any other of the same content.
pub struct Continuation {
    id: u32,
    name: u64,
    frozen: Frozen,
}

/// The state of a translation, by value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frozen {
    /// The bridge that the packet is in.
    pub(crate) bridge: BridgeId,
    /// The ingress port, if it is not any more the one that the packet came in by.
    pub(crate) in_port: Option<PortNo>,
    /// The bits of the hidden words that are set; or those that are live, set or not.
    pub(crate) hidden: Match,
    /// Whether what is not live is left out of `hidden`.
    pub(crate) is_live_only: bool,
    /// What is done to the frame before it is parsed again.
    pub(crate) ttl_copy: Option<TtlCopy>,
    /// What is still to do, the last first.
    pub(crate) steps: Vec<FrozenStep>,
    pub(crate) action_set: Vec<Action>,
    pub(crate) stack: Stack,
    pub(crate) scope: Scope,
    /// The rule whose actions are left, if they name it.
    pub(crate) rule: Option<NamedRule>,
    pub(crate) spent: Spent,
}

/// Something still to do: see the agenda of `translate::context`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FrozenStep {
    Actions(Vec<Action>),
    Set(Vec<Action>),
    /// Instructions whose actions to apply are done.
    Instructions(Instructions),
    ActionSet(Scope),
    Walk,
    LookUp {
        table: TableId,
        port: Option<PortNo>,
    },
    EndVisit,
    Return {
        scope: Scope,
        rule: Option<NamedRule>,
        depth: u16,
    },
}

/// A rule of a number and a revision, which are what it is told apart by.
#[derive(Clone, Debug)]
pub(crate) struct NamedRule(pub(crate) Arc<Rule>);

impl NamedRule {
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

/// The continuations that traversals name.
pub(crate) struct Continuations {
    hasher: foldhash::fast::FixedState,
    interned: Mutex<Interned>,
}

#[derive(Default)]
struct Interned {
    by_id: BTreeMap<u32, Weak<Continuation>>,
    /// Ids by hash of the content; some may have been freed.
    by_content: BTreeMap<u64, Vec<u32>>,
    last: u32,
    /// Number of ids at which those that were freed are swept out.
    sweep_at: usize,
}

/// The least number of ids at which a sweep is worth it.
const SWEEP_MIN: usize = 64;

impl Continuation {
    /// The number that names it, which no other continuation has while this one is alive.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// A hash of its content, which stays the same when it is freed and comes back under another number.
    ///
    /// Where a packet was not parsed again, it is the name of the [`PartitionPoint`](crate::PartitionPoint) there.
    /// For guesses, never for decisions.
    #[must_use]
    pub const fn name(&self) -> u64 {
        self.name
    }

    /// The TTL that is copied in the frame before it is parsed again.
    #[must_use]
    pub const fn ttl_copy(&self) -> Option<TtlCopy> {
        self.frozen.ttl_copy
    }

    /// Makes the key of a packet that was parsed again the one that it is looked up by; the key has
    /// the ingress port that it had before.
    pub fn enter(&self, key: &mut FlowKey) {
        key.set_bridge(u64::from(self.frozen.bridge.number()));
        key.set_field(FieldId::RecircId, u128::from(self.id));
        if let Some(port) = self.frozen.in_port {
            key.set_in_port(port);
        }
    }

    /// The key that a packet with these headers is looked up by from here on, where it was cut without
    /// being parsed again.
    #[must_use]
    pub fn entering(&self, headers: &FlowKey) -> FlowKey {
        let mut key = headers.clone();
        key.words_mut()[..HEADER_START].fill(0);
        self.enter(&mut key);
        key
    }

    pub(crate) const fn frozen(&self) -> &Frozen {
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
    pub(crate) fn new(seed: u64) -> Self {
        Self { hasher: foldhash::fast::FixedState::with_seed(seed), interned: Mutex::default() }
    }

    /// The continuation of this content, which may have a name already.
    pub(crate) fn intern(&self, frozen: Frozen, name: Option<u64>) -> Arc<Continuation> {
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

impl Interned {
    fn find(&self, hash: u64, frozen: &Frozen) -> Option<Arc<Continuation>> {
        let ids = self.by_content.get(&hash)?;
        let mut alive = ids.iter().filter_map(|id| self.by_id.get(id)?.upgrade());
        alive.find(|continuation| continuation.frozen == *frozen)
    }

    /// An id that is not alive; zero is that of packets that were never cut.
    fn next_id(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            let holder = self.by_id.get(&self.last);
            if self.last != 0 && holder.is_none_or(|holder| holder.strong_count() == 0) {
                return self.last;
            }
        }
    }

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

    fn frozen(bridge: u16) -> Frozen {
        Frozen {
            bridge: BridgeId::new(bridge),
            in_port: None,
            hidden: Match::any(),
            is_live_only: false,
            ttl_copy: None,
            steps: Vec::new(),
            action_set: Vec::new(),
            stack: Stack::default(),
            scope: Scope::PACKET_OUT,
            rule: None,
            spent: Spent::default(),
        }
    }

    #[test]
    fn equal_contents_have_one_number_while_somebody_names_them() {
        let continuations = Continuations::new(1);
        let one = continuations.intern(frozen(1), None);
        let two = continuations.intern(frozen(2), None);
        assert_eq!((one.id(), two.id()), (1, 2));
        assert!(Arc::ptr_eq(&one, &continuations.intern(frozen(1), None)));
        drop(one);
        assert_eq!(continuations.intern(frozen(1), None).id(), 3, "what was freed is another one");
    }

    #[test]
    fn a_rule_that_was_changed_or_replaced_is_another() {
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
    fn a_number_that_is_alive_is_not_given_again() {
        let continuations = Continuations::new(1);
        let one = continuations.intern(frozen(1), None);
        continuations.interned.lock().last = u32::MAX;
        let two = continuations.intern(frozen(2), None);
        assert_eq!((one.id(), two.id()), (1, 2));
    }

    #[test]
    fn a_packet_goes_on_with_what_was_kept_and_no_other_hidden_state() {
        let port = PortNo::new(3);
        let next = Continuations::new(1).intern(Frozen { in_port: Some(port), ..frozen(7) }, None);
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
    fn what_nobody_names_takes_no_room() {
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
