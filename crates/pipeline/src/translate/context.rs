//! The agenda: what a translation has still to do.
//!
//! Rules choose how deep resubmits, clones and patch ports nest, so nothing here calls itself: what
//! is to be done after a nested part lies on the agenda, a stack of [`Step`]s, and one loop takes
//! the topmost. A walk through tables from the first one is, from bottom to top:
//!
//! ```text
//! EndVisit       closes the visit that is last in the walk
//! ActionSet      executes the action set
//! Instructions   what follows the actions of the rule: the action set, metadata, goto
//! Actions        the rest of the actions of the rule
//! ```
//!
//! Where headers are needed that were not parsed, what is on the agenda is frozen: see `cut`.
//!
//! `goto` ends the visit and begins the next in its place. `resubmit` puts `Return`, `EndVisit` and
//! the found rule on top. `clone` puts `Restore` under its actions and under an execution of its
//! copy of the action set. A patch port puts `Leave` under a walk of its own, a group under the
//! actions of a bucket.
//! `exit` throws away everything down to the nearest `Leave`; too many labels, to that of a bucket.

use std::{slice, sync::Arc, vec};

use shunt_classifier::Version;
use shunt_flow::{FieldId, FlowKey, PortNo, SparseKey, SparseMask, layout::word, rewrite::TtlCopy};

use super::{
    action_set::ActionSet,
    actions::{Rest, SOURCE_PORTS, TARGET_PORTS},
    commit::{Uncommitted, Wire},
    cut::{Headers, Spent},
    normal::NormalFlood,
    output::{Asked, Flood},
    piece::Cutter,
    recorder::{Recorder, Written},
    scope::Scope,
    stack::Stack,
};
use crate::{
    action::Action,
    bridges::{
        bridge::{Bridge, Bridges},
        port::PortInfo,
        port_table::PortTable,
    },
    continuations::continuation::{Continuation, Continuations},
    groups::group::{Bucket, Group},
    id::{BridgeId, GroupId, MeterId, TableId},
    learn::learning::Learning,
    meters::meter::Meter,
    tables::rule::{Instructions, Rule},
    traversals::traversal::{GroupHit, Refresh, Traversal, TraversalError, Visit},
    versions::delta::Object,
};

/// How deep resubmits to the same or a lower table, and patch ports, may nest.
const DEPTH_MAX: u16 = 64;
/// How many lookups a translation may make after its first.
pub(super) const RESUBMITS_MAX: u16 = 4096;

/// What a translation goes by.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) bridges: &'a Bridges,
    pub(crate) continuations: &'a Continuations,
    pub(crate) version: Version,
}

/// A translation that is not finished.
pub(super) struct Translation<'a> {
    bridges: &'a Bridges,
    pub(super) continuations: &'a Continuations,
    pub(super) version: Version,
    /// The packet as it is now.
    pub(super) key: FlowKey,
    pub(super) headers: Headers,
    pub(super) here: Place<'a>,
    pub(super) scope: Scope,
    /// The rule itself; after a cut only if what is left of its actions names it.
    pub(super) rule: Option<&'a Arc<Rule>>,
    pub(super) recorder: Recorder,
    pub(super) wire: Wire,
    pub(super) agenda: Vec<Step<'a>>,
    pub(super) action_set: ActionSet<'a>,
    pub(super) stack: Stack,
    pub(super) spent: Spent,
    pub(super) group_hits: Vec<GroupHit>,
    pub(super) learnings: Vec<Learning>,
    pub(super) refreshes: Vec<Refresh>,
    pub(super) cutter: Cutter,
    pub(super) known: Known<'a>,
}

/// What the lookups of a translation find, as far as it is known.
#[derive(Clone, Copy, Default)]
pub(super) struct Known<'a> {
    /// The visits from the first one on.
    pub(super) visits: &'a [Visit],
    /// What the lookup of each depends on.
    pub(super) lookups: &'a [Option<SparseMask>],
}

/// The bridge that the packet is in.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) id: BridgeId,
    pub(super) bridge: &'a Bridge,
    pub(super) ports: &'a PortTable,
}

/// Something still to do.
pub(super) enum Step<'a> {
    /// The rest of a list of actions.
    Actions(slice::Iter<'a, Action>),
    /// The rest of an action set in execution.
    Set(vec::IntoIter<&'a Action>),
    /// What follows the actions of a rule.
    Instructions(&'a Instructions),
    /// Execute the action set, as this rule.
    ActionSet(Scope),
    /// The rest of the buckets of a group.
    Buckets(slice::Iter<'a, Bucket>),
    /// The rest of a flood.
    Flood(Flood<'a>),
    /// The rest of a flood by NORMAL.
    NormalFlood(NormalFlood<'a>),
    /// Go through the tables from the first one.
    Walk,
    /// Look up in a table, as if the packet had come in by this port, and run what is found.
    LookUp { table: TableId, port: Option<PortNo> },
    /// The innermost visit is over.
    EndVisit,
    /// A resubmit is over.
    Return {
        /// The rule that it stood in.
        scope: Scope,
        /// The rule itself, as in [`Translation`].
        rule: Option<&'a Arc<Rule>>,
        /// How deep it stood.
        depth: u16,
    },
    /// A clone is over.
    Restore(Box<Saved<'a>>),
    /// The packet has been through the peer bridge, or through a bucket.
    Leave(Box<Saved<'a>>),
}

/// What a clone or a patch port puts back.
pub(super) struct Saved<'a> {
    key: FlowKey,
    written: Written,
    uncommitted: Uncommitted,
    headers: Headers,
    action_set: ActionSet<'a>,
    stack: Stack,
    here: Place<'a>,
    scope: Scope,
    rule: Option<&'a Arc<Rule>>,
    depth: u16,
    /// It is put back behind a bucket.
    is_bucket: bool,
}

/// Translates a packet that came in.
pub(crate) fn packet(tables: Tables<'_>, key: &FlowKey) -> Traversal {
    translate(tables, key, Translation::come_in)
}

/// Translates the actions of a packet-out.
pub(crate) fn packet_out(tables: Tables<'_>, key: &FlowKey, actions: &[Action]) -> Traversal {
    translate(tables, key, |translation| {
        // The port that it names is no port that it came in by: outputs are compared with it here.
        translation.recorder.wrote_word(usize::from(word::IN_PORT), u64::MAX);
        translation.agenda.push(Step::ActionSet(translation.scope));
        translation.agenda.push(Step::Actions(actions.iter()));
        translation.run()
    })
}

/// Goes on with a packet that was parsed again.
pub(crate) fn resume(
    tables: Tables<'_>,
    key: &FlowKey,
    continuation: &Arc<Continuation>,
) -> Traversal {
    let traversal = translate(tables, key, |translation| {
        translation.thaw(continuation);
        translation.run()
    });
    Traversal { continuation: Some(Arc::clone(continuation)), ..traversal }
}

pub(super) fn translate<'a>(
    tables: Tables<'a>,
    key: &FlowKey,
    run: impl FnOnce(&mut Translation<'a>) -> Result<(), TraversalError>,
) -> Traversal {
    let Tables { bridges, version, .. } = tables;
    let ingress = SparseKey::from(key);
    let mut recorder = Recorder::new(ingress.clone());
    recorder.consult_word(usize::from(word::BRIDGE), u64::MAX);
    recorder.consult(FieldId::RecircId, u128::MAX);
    let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
    let here = bridge.and_then(|id| Place::find(bridges, id, version, &mut recorder));
    let (result, recorder, group_hits) = match here {
        Some(here) => {
            let mut translation = Translation::new(tables, key, here, recorder);
            let result = run(&mut translation);
            let Translation { wire, learnings, refreshes, recorder, group_hits, .. } = translation;
            (result.map(|()| (wire.finish(), learnings, refreshes)), recorder, group_hits)
        }
        None => (Err(TraversalError::NoSuchPort), recorder, Vec::new()),
    };
    let (mask, visits, reads) = recorder.finish();
    let error = result.as_ref().err().copied();
    // A packet that is dropped for an error does nothing, and teaches nothing.
    let (actions, learnings, refreshes) = result.unwrap_or_default();
    Traversal {
        version,
        key: ingress,
        continuation: None,
        next: None,
        mask,
        visits,
        reads,
        group_hits: group_hits.into(),
        learnings,
        refreshes: refreshes.into(),
        actions: actions.into(),
        error,
    }
}

impl<'a> Translation<'a> {
    fn new(tables: Tables<'a>, key: &FlowKey, here: Place<'a>, recorder: Recorder) -> Self {
        Self {
            bridges: tables.bridges,
            continuations: tables.continuations,
            version: tables.version,
            key: key.clone(),
            headers: Headers::Parsed,
            here,
            scope: Scope::PACKET_OUT,
            rule: None,
            recorder,
            wire: Wire::default(),
            agenda: Vec::new(),
            action_set: ActionSet::default(),
            stack: Stack::default(),
            spent: Spent::default(),
            group_hits: Vec::new(),
            learnings: Vec::new(),
            refreshes: Vec::new(),
            cutter: Cutter::Off,
            known: Known::default(),
        }
    }

    /// The packet comes in by its port.
    pub(super) fn come_in(&mut self) -> Result<(), TraversalError> {
        self.recorder.read(Object::PortFilters(self.here.id));
        if self.here.ports.filters_ingress {
            let ingress = self.in_port();
            let ingress = self.find_port(ingress);
            if ingress.is_some_and(|port| !port.may_receive()) {
                return Ok(());
            }
        }
        self.agenda.push(Step::Walk);
        self.run()
    }

    /// A port of the bridge.
    pub(super) fn find_port(&mut self, number: PortNo) -> Option<&'a PortInfo> {
        self.recorder.read(Object::Port(self.here.id, number));
        self.here.ports.find(number)
    }

    /// All ports of the bridge, in the order of their numbers.
    pub(super) fn all_ports(&mut self) -> &'a [PortInfo] {
        self.recorder.read(Object::Ports(self.here.id));
        self.here.ports.ports()
    }

    /// Does what is on the agenda until nothing is left.
    pub(super) fn run(&mut self) -> Result<(), TraversalError> {
        while let Some(step) = self.agenda.pop() {
            match self.take(step) {
                // As in Open vSwitch, what comes behind the bucket does not suffer.
                Err(TraversalError::TooManyMplsLabels(_)) if self.is_in_bucket() => {
                    self.unwind(|saved| saved.is_bucket)?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Does the topmost of the agenda.
    fn take(&mut self, step: Step<'a>) -> Result<(), TraversalError> {
        if self.headers == Headers::Uncovered && step.needs_headers() {
            return self.cut_before(step);
        }
        match step {
            Step::Actions(mut rest) => {
                if let Some(action) = rest.next() {
                    self.agenda.push(Step::Actions(rest));
                    self.execute(action)?;
                }
            }
            Step::Set(mut rest) => {
                if let Some(action) = rest.next() {
                    self.agenda.push(Step::Set(rest));
                    self.execute(action)?;
                }
            }
            Step::Instructions(instructions) => self.finish_rule(instructions)?,
            Step::ActionSet(scope) => {
                self.scope = Scope { in_set: true, ..scope };
                self.agenda.push(Step::Set(self.action_set.take().into_iter()));
            }
            Step::Buckets(rest) => self.run_buckets(rest)?,
            Step::Flood(flood) => self.flood(flood)?,
            Step::NormalFlood(flood) => self.normal_flood(flood)?,
            Step::Walk => self.walk()?,
            Step::LookUp { table, port } => self.enter_table(table, port)?,
            Step::EndVisit => self.recorder.end_visit(),
            Step::Return { scope, rule, depth } => {
                self.scope = scope;
                self.rule = rule;
                self.spent.depth = depth;
            }
            Step::Restore(saved) | Step::Leave(saved) => self.restore(*saved)?,
        }
        Ok(())
    }

    fn execute(&mut self, action: &'a Action) -> Result<(), TraversalError> {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len)?,
            Action::OutputField { source, max_len } => self.output_field(*source, *max_len)?,
            Action::OutputTruncated { port, max_len } => self.output_truncated(*port, *max_len)?,
            Action::Controller(action) => self.punt(Asked::by(action))?,
            Action::SetField { field, value, mask } => self.set_field(*field, *value, *mask),
            Action::Load { target, value } => {
                let value = u128::from(*value) << target.offset;
                self.set_field(target.field, value, target.bits());
            }
            Action::Move { source, target } => self.move_bits(*source, *target),
            Action::PushVlan { ethertype } => self.push_vlan(*ethertype),
            Action::PopVlan => self.pop_vlan(),
            Action::DecTtl { controllers } => {
                let rest = self.dec_ttl(controllers)?;
                self.go_on(rest);
            }
            Action::Resubmit { port, table } => self.resubmit(*port, *table)?,
            Action::SetQueue(queue) => self.set_queue(*queue),
            Action::PopQueue => self.set_queue(0),
            Action::Clone(actions) => self.run_clone(actions),
            Action::Note(_) => {}
            // Up to the nearest patch port or bucket.
            Action::Exit => self.unwind(|_| true)?,
            Action::SetNwTtl(ttl) => self.set_field(FieldId::NwTtl, u128::from(*ttl), u128::MAX),
            Action::SetTpSrc(port) => self.set_port(SOURCE_PORTS, *port),
            Action::SetTpDst(port) => self.set_port(TARGET_PORTS, *port),
            // Its rules decide lookups, not what happens to packets.
            Action::Conjunction { .. } => {}
            Action::Group(id) => self.run_group(*id)?,
            Action::Meter(id) => self.meter(*id)?,
            Action::CopyTtlOut => self.copy_ttl(TtlCopy::Out)?,
            Action::CopyTtlIn => self.copy_ttl(TtlCopy::In)?,
            Action::PushMpls { ethertype } => self.push_mpls(*ethertype)?,
            Action::PopMpls { ethertype } => self.pop_mpls(*ethertype)?,
            Action::SetMplsTtl(ttl) => {
                self.set_field(FieldId::MplsTtl, u128::from(*ttl), u128::MAX);
            }
            Action::DecMplsTtl => {
                let rest = self.dec_mpls_ttl()?;
                self.go_on(rest);
            }
            Action::Push(source) => self.push(*source)?,
            Action::Pop(target) => self.pop(*target),
            Action::Learn(action) => self.learn(action)?,
            Action::Multipath(action) => self.multipath(action),
            Action::Bundle(action) => self.bundle(action)?,
            Action::FinTimeout { idle, hard } => self.fin_timeout(*idle, *hard)?,
            Action::CheckPktLarger { length, target } => self.check_length(*length, *target)?,
            // Rules with these are refused.
            Action::Ct(_) | Action::CtClear | Action::Nat(_) | Action::Sample(_) => {}
        }
        Ok(())
    }

    /// Begins a walk through the tables of a bridge.
    fn walk(&mut self) -> Result<(), TraversalError> {
        self.agenda.push(Step::EndVisit);
        self.scope.in_set = false;
        let rule = self.look_up(TableId::FIRST, None)?;
        self.agenda.push(Step::ActionSet(self.scope));
        self.enter(rule)
    }

    /// Looks up in another table, and comes back.
    pub(super) fn resubmit(
        &mut self,
        port: Option<PortNo>,
        table: Option<TableId>,
    ) -> Result<(), TraversalError> {
        let table = table.unwrap_or(self.scope.table);
        let (scope, rule, depth) = (self.scope, self.rule, self.spent.depth);
        let outer = Step::Return { scope, rule, depth };
        self.spend_lookup(table <= self.scope.table)?;
        self.agenda.push(outer);
        self.agenda.push(Step::EndVisit);
        let port = port.filter(|port| *port != PortNo::IN_PORT);
        self.agenda.push(Step::LookUp { table, port });
        Ok(())
    }

    /// Goes through a patch: the packet comes in at the peer bridge, and is put back afterwards.
    pub(super) fn cross(&mut self, bridge: BridgeId, port: PortNo) -> Result<(), TraversalError> {
        let found = Place::find(self.bridges, bridge, self.version, &mut self.recorder);
        let Some(peer) = found else { return Ok(()) };
        self.recorder.read(Object::Port(bridge, port));
        if !peer.ports.find(port).is_some_and(PortInfo::may_receive) {
            return Ok(());
        }
        let saved = self.save();
        self.spend_lookup(true)?;
        self.agenda.push(Step::Leave(Box::new(saved)));
        self.here = peer;
        self.action_set.clear();
        self.stack = Stack::default();
        (word::TUN_METADATA..word::PKT_MARK).for_each(|word| self.write_hidden(word, 0));
        self.write_hidden(word::ACTSET_OUTPUT, 0);
        self.write_hidden(word::BRIDGE, u64::from(bridge.number()));
        self.write(FieldId::InPort, u128::from(port.number()), u128::MAX);
        self.agenda.push(Step::Walk);
        Ok(())
    }

    /// Runs a bucket, on a copy of the packet.
    pub(super) fn run_bucket(&mut self, bucket: &'a Bucket) -> Result<(), TraversalError> {
        let saved = Saved { is_bucket: true, ..self.save() };
        self.spend_lookup(true)?;
        self.agenda.push(Step::Leave(Box::new(saved)));
        let mut set = ActionSet::default();
        set.write(&bucket.actions)?;
        self.scope.in_bucket = true;
        self.agenda.push(Step::Set(set.take().into_iter()));
        Ok(())
    }

    /// Runs actions on a copy of the packet: its action set is executed too, and it is forgotten.
    fn run_clone(&mut self, actions: &'a [Action]) {
        self.put_back_later();
        self.agenda.push(Step::ActionSet(self.scope));
        self.agenda.push(Step::Actions(actions.iter()));
    }

    /// Whether a bucket is under way.
    fn is_in_bucket(&self) -> bool {
        let is_bucket = |step: &Step<'_>| matches!(step, Step::Leave(saved) if saved.is_bucket);
        self.agenda.iter().any(is_bucket)
    }

    /// Ends everything, up to the nearest patch port or bucket that `ends` says.
    fn unwind(&mut self, ends: fn(&Saved<'_>) -> bool) -> Result<(), TraversalError> {
        while let Some(step) = self.agenda.pop() {
            match step {
                Step::EndVisit => self.recorder.end_visit(),
                Step::Restore(saved) => self.restore(*saved)?,
                Step::Leave(saved) => {
                    let is_end = ends(&saved);
                    self.restore(*saved)?;
                    if is_end {
                        break;
                    }
                }
                Step::Actions(_)
                | Step::Set(_)
                | Step::Instructions(_)
                | Step::ActionSet(_)
                | Step::Buckets(_)
                | Step::Flood(_)
                | Step::NormalFlood(_)
                | Step::Walk
                | Step::LookUp { .. }
                | Step::Return { .. } => {}
            }
        }
        Ok(())
    }

    /// Leaves the rest of the current list, and the instructions that follow it, if it is to be
    /// left.
    fn go_on(&mut self, rest: Rest) {
        if let Rest::Runs = rest {
            return;
        }
        self.agenda.pop();
        if let Some(Step::Instructions(_)) = self.agenda.last() {
            self.agenda.pop();
        }
    }

    /// What follows the actions of a rule.
    fn finish_rule(&mut self, instructions: &'a Instructions) -> Result<(), TraversalError> {
        if instructions.clear {
            self.action_set.clear();
        }
        self.action_set.write(&instructions.write)?;
        if let Some((value, mask)) = instructions.metadata {
            self.write(FieldId::Metadata, u128::from(value), u128::from(mask));
        }
        if let Some(table) = instructions.goto {
            self.spend_lookup(false)?;
            self.recorder.end_visit();
            self.agenda.push(Step::LookUp { table, port: None });
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, rule: Option<&'a Arc<Rule>>) -> Result<(), TraversalError> {
        let Some(rule) = rule else { return Ok(()) };
        let instructions = &rule.instructions;
        self.agenda.push(Step::Instructions(instructions));
        self.agenda.push(Step::Actions(instructions.apply.iter()));
        instructions.meter.map_or(Ok(()), |meter| self.meter(meter))
    }

    /// Makes sure that one more lookup is within the bounds.
    pub(super) const fn spend_lookup(&mut self, deepens: bool) -> Result<(), TraversalError> {
        if self.spent.depth >= DEPTH_MAX {
            return Err(TraversalError::TooDeep(DEPTH_MAX));
        }
        if self.spent.resubmits >= RESUBMITS_MAX {
            return Err(TraversalError::TooManyResubmits(RESUBMITS_MAX));
        }
        self.spent.resubmits += 1;
        self.spent.depth += deepens as u16;
        Ok(())
    }

    /// The packet is put back as it is now after what is put on the agenda from here on.
    pub(super) fn put_back_later(&mut self) {
        let saved = self.save();
        self.agenda.push(Step::Restore(Box::new(saved)));
    }

    fn save(&mut self) -> Saved<'a> {
        Saved {
            key: self.key.clone(),
            written: self.recorder.save(),
            uncommitted: self.wire.save(),
            headers: self.headers,
            action_set: self.action_set.clone(),
            stack: self.stack.clone(),
            here: self.here,
            scope: self.scope,
            rule: self.rule,
            depth: self.spent.depth,
            is_bucket: false,
        }
    }

    fn restore(&mut self, saved: Saved<'a>) -> Result<(), TraversalError> {
        self.key = saved.key;
        self.recorder.restore(saved.written);
        self.action_set = saved.action_set;
        self.stack = saved.stack;
        self.here = saved.here;
        self.scope = saved.scope;
        self.headers = saved.headers;
        self.spent.depth = saved.depth;
        self.rule = saved.rule;
        self.wire.restore(saved.uncommitted)
    }
}

impl<'a> Place<'a> {
    /// A group of the bridge.
    pub(super) fn group(self, id: GroupId, version: Version) -> Option<&'a Arc<Group>> {
        self.bridge.groups.find(id, version)
    }

    /// A meter of the bridge.
    pub(super) fn meter(self, id: MeterId, version: Version) -> Option<&'a Arc<Meter>> {
        self.bridge.meters.find(id, version)
    }

    /// The bridge of a number, if `version` sees one.
    fn find(
        bridges: &'a Bridges,
        id: BridgeId,
        version: Version,
        recorder: &mut Recorder,
    ) -> Option<Self> {
        recorder.read(Object::Bridge(id));
        let bridge = bridges.get(&id)?;
        let ports = bridge.ports(version)?;
        Some(Self { id, bridge, ports })
    }
}
