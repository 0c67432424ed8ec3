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
//! `goto` ends the visit and begins the next in its place. `resubmit` puts `Return`, `EndVisit` and
//! the found rule on top. `clone` puts `Restore` under its actions and under an execution of its
//! copy of the action set. A patch port puts `Leave` under a walk of its own.
//! `exit` throws away everything down to the nearest `Leave`.

use std::{slice, sync::Arc, vec};

use shunt_classifier::Version;
use shunt_flow::{FieldId, FlowKey, PortNo, layout::word};

use super::{
    action_set::ActionSet,
    actions::Rest,
    commit::{Uncommitted, Wire},
    output::{Asked, Flood},
    recorder::{Entering, Foreign, IN_PORT_BITS, PORTS_BITS, Recorder, Written},
};
use crate::{
    Action, BridgeId, Instructions, Object, PortInfo, Rule, TableId, Traversal, TraversalError,
    bridge::{Bridge, Bridges},
    port_table::PortTable,
};

/// How deep resubmits to the same or a lower table, and patch ports, may nest.
const DEPTH_MAX: u16 = 64;
/// The bit of `nw_frag` that fragments have.
const ANY_FRAGMENT: u128 = 1;
/// How many lookups a translation may make after its first.
const RESUBMITS_MAX: u16 = 4096;

/// A translation that is not finished.
pub(super) struct Translation<'a> {
    bridges: &'a Bridges,
    version: Version,
    /// The packet as it is now.
    pub(super) key: FlowKey,
    pub(super) here: Place<'a>,
    pub(super) scope: Scope<'a>,
    pub(super) recorder: Recorder,
    pub(super) wire: Wire,
    pub(super) agenda: Vec<Step<'a>>,
    action_set: ActionSet<'a>,
    depth: u16,
    resubmits: u16,
}

/// The bridge that the packet is in.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) id: BridgeId,
    bridge: &'a Bridge,
    pub(super) ports: &'a PortTable,
}

/// The rule whose actions are run.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) table: TableId,
    pub(super) rule: Option<&'a Arc<Rule>>,
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
    ActionSet(Scope<'a>),
    /// The rest of a flood.
    Flood(Flood<'a>),
    /// The innermost visit is over.
    EndVisit,
    /// A resubmit is over.
    Return {
        /// The rule that it stood in.
        scope: Scope<'a>,
        /// How deep it stood.
        depth: u16,
    },
    /// A clone is over.
    Restore(Box<Saved<'a>>),
    /// The packet has been through the peer bridge.
    Leave(Box<Saved<'a>>),
}

/// What a clone or a patch port puts back.
pub(super) struct Saved<'a> {
    key: FlowKey,
    written: Written,
    uncommitted: Uncommitted,
    action_set: ActionSet<'a>,
    here: Place<'a>,
    scope: Scope<'a>,
    depth: u16,
}

/// Translates a packet that came in.
pub(crate) fn packet(bridges: &Bridges, key: &FlowKey, version: Version) -> Traversal {
    translate(bridges, key, version, |translation| {
        let ports = translation.here.ports;
        if ports.filters_ingress {
            translation.recorder.consult(FieldId::InPort, u128::MAX);
            let ingress = ports.find(translation.key.in_port());
            if ingress.is_some_and(|port| !port.may_receive()) {
                return Ok(());
            }
        }
        translation.walk();
        translation.run()
    })
}

/// Translates the actions of a packet-out.
pub(crate) fn packet_out(
    bridges: &Bridges,
    key: &FlowKey,
    actions: &[Action],
    version: Version,
) -> Traversal {
    translate(bridges, key, version, |translation| {
        // The port that it names is no port that it came in by: outputs are compared with it here.
        translation.recorder.wrote_word(usize::from(word::IN_PORT), u64::MAX);
        translation.agenda.push(Step::ActionSet(translation.scope));
        translation.agenda.push(Step::Actions(actions.iter()));
        translation.run()
    })
}

fn translate<'a>(
    bridges: &'a Bridges,
    key: &FlowKey,
    version: Version,
    run: impl FnOnce(&mut Translation<'a>) -> Result<(), TraversalError>,
) -> Traversal {
    let mut recorder = Recorder::new();
    recorder.consult_word(usize::from(word::BRIDGE), u64::MAX);
    let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
    let here = bridge.and_then(|id| Place::find(bridges, id, version, &mut recorder));
    let (result, recorder) = match here {
        Some(here) => {
            let mut translation = Translation::new(bridges, key, here, version, recorder);
            let result = run(&mut translation);
            (result.map(|()| translation.wire.finish()), translation.recorder)
        }
        None => (Err(TraversalError::NoSuchPort), recorder),
    };
    let (mask, visits, reads) = recorder.finish();
    let error = result.as_ref().err().copied();
    let actions = result.unwrap_or_default().into();
    let refreshes = Vec::new();
    Traversal { version, key: key.clone(), mask, visits, reads, refreshes, actions, error }
}

impl<'a> Translation<'a> {
    fn new(
        bridges: &'a Bridges,
        key: &FlowKey,
        here: Place<'a>,
        version: Version,
        recorder: Recorder,
    ) -> Self {
        Self {
            bridges,
            version,
            key: key.clone(),
            here,
            scope: Scope { table: TableId::FIRST, rule: None },
            recorder,
            wire: Wire::default(),
            agenda: Vec::new(),
            action_set: ActionSet::default(),
            depth: 0,
            resubmits: 0,
        }
    }

    /// Does what is on the agenda until nothing is left.
    fn run(&mut self) -> Result<(), TraversalError> {
        while let Some(step) = self.agenda.pop() {
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
                    self.scope = scope;
                    self.agenda.push(Step::Set(self.action_set.take().into_iter()));
                }
                Step::Flood(flood) => self.flood(flood)?,
                Step::EndVisit => self.recorder.end_visit(),
                Step::Return { scope, depth } => {
                    self.scope = scope;
                    self.depth = depth;
                }
                Step::Restore(saved) | Step::Leave(saved) => self.restore(*saved),
            }
        }
        Ok(())
    }

    fn execute(&mut self, action: &'a Action) -> Result<(), TraversalError> {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len)?,
            Action::OutputField { source, max_len } => self.output_field(*source, *max_len)?,
            Action::OutputTruncated { port, max_len } => self.output_truncated(*port, *max_len)?,
            Action::Controller(asked) => self.punt(Asked {
                reason: asked.reason,
                controller_id: asked.controller_id,
                max_len: asked.max_len,
                userdata: &asked.userdata,
            })?,
            Action::SetField { field, value, mask } => self.set_field(*field, *value, *mask),
            Action::Load { target, value } => {
                let value = u128::from(*value) << target.offset;
                self.set_field(target.field, value, target.bits());
            }
            Action::Move { source, target } => self.move_bits(*source, *target),
            Action::PushVlan { ethertype } => self.push_vlan(*ethertype),
            Action::PopVlan => self.pop_vlan(),
            Action::DecTtl { controllers } => match self.dec_ttl(controllers)? {
                Rest::Runs => {}
                Rest::IsLeft => self.leave_list(),
            },
            Action::Resubmit { port, table } => self.resubmit(*port, *table)?,
            Action::SetQueue(queue) => self.set_queue(*queue),
            Action::PopQueue => self.set_queue(0),
            Action::Clone(actions) => self.run_clone(actions),
            Action::Note(_) => {}
            Action::Exit => self.exit(),
        }
        Ok(())
    }

    /// Begins a walk through the tables of a bridge.
    fn walk(&mut self) {
        self.agenda.push(Step::EndVisit);
        let rule = self.look_up(TableId::FIRST, None);
        self.agenda.push(Step::ActionSet(self.scope));
        self.enter(rule);
    }

    /// Looks up in another table, and comes back.
    pub(super) fn resubmit(
        &mut self,
        port: Option<PortNo>,
        table: Option<TableId>,
    ) -> Result<(), TraversalError> {
        let table = table.unwrap_or(self.scope.table);
        let outer = Step::Return { scope: self.scope, depth: self.depth };
        self.spend_lookup(table <= self.scope.table)?;
        self.agenda.push(outer);
        self.agenda.push(Step::EndVisit);
        let rule = self.look_up(table, port.filter(|port| *port != PortNo::IN_PORT));
        self.enter(rule);
        Ok(())
    }

    /// Goes through a patch: the packet comes in at the peer bridge, and is put back afterwards.
    pub(super) fn cross(&mut self, bridge: BridgeId, port: PortNo) -> Result<(), TraversalError> {
        let found = Place::find(self.bridges, bridge, self.version, &mut self.recorder);
        let Some(peer) = found else { return Ok(()) };
        if !peer.ports.find(port).is_some_and(PortInfo::may_receive) {
            return Ok(());
        }
        let saved = self.save();
        self.spend_lookup(true)?;
        self.agenda.push(Step::Leave(Box::new(saved)));
        self.here = peer;
        self.action_set.clear();
        (word::TUN_METADATA..word::PKT_MARK).for_each(|word| self.write_hidden(word, 0));
        self.write_hidden(word::ACTSET_OUTPUT, 0);
        self.write_hidden(word::BRIDGE, u64::from(bridge.number()));
        self.write(FieldId::InPort, u128::from(port.number()), u128::MAX);
        self.walk();
        Ok(())
    }

    /// Runs actions on a copy of the packet: its action set is executed too, and it is forgotten.
    fn run_clone(&mut self, actions: &'a [Action]) {
        let saved = self.save();
        self.agenda.push(Step::Restore(Box::new(saved)));
        self.agenda.push(Step::ActionSet(self.scope));
        self.agenda.push(Step::Actions(actions.iter()));
    }

    /// Ends everything, but only up to the nearest patch port.
    fn exit(&mut self) {
        while let Some(step) = self.agenda.pop() {
            match step {
                Step::EndVisit => self.recorder.end_visit(),
                Step::Restore(saved) => self.restore(*saved),
                Step::Leave(saved) => {
                    self.restore(*saved);
                    break;
                }
                Step::Actions(_)
                | Step::Set(_)
                | Step::Instructions(_)
                | Step::ActionSet(_)
                | Step::Flood(_)
                | Step::Return { .. } => {}
            }
        }
    }

    /// Leaves the rest of the current list, and the instructions that follow it.
    fn leave_list(&mut self) {
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
            let rule = self.look_up(table, None);
            self.enter(rule);
        }
        Ok(())
    }

    /// Looks up in a table, as if the packet had come in by `port`; from now on actions are those
    /// of what was found.
    ///
    /// A fragment has no transport ports to look up, the first one neither (`OFPC_FRAG_NORMAL`).
    fn look_up(&mut self, table: TableId, port: Option<PortNo>) -> Option<&'a Arc<Rule>> {
        let mut foreign = Foreign::default();
        let mut key = self.key.clone();
        if let Some(port) = port {
            key.set_in_port(port);
            foreign.in_port = IN_PORT_BITS;
        }
        if key.field(FieldId::NwFrag) & ANY_FRAGMENT != 0 {
            key.words_mut()[usize::from(word::TRANSPORT)] &= !PORTS_BITS;
            foreign.ports = PORTS_BITS;
        }
        let Place { id, bridge, .. } = self.here;
        let entering = Entering { bridge: id, table, key, foreign };
        let rule = self.recorder.visit(entering, |key, mask| {
            let rule = bridge.lookup(table, key, self.version, mask);
            if mask.words()[usize::from(word::TRANSPORT)] & PORTS_BITS != 0 {
                mask.add_bits(FieldId::NwFrag, ANY_FRAGMENT);
            }
            rule
        });
        self.scope = Scope { table, rule };
        rule
    }

    fn enter(&mut self, rule: Option<&'a Arc<Rule>>) {
        if let Some(rule) = rule {
            self.agenda.push(Step::Instructions(&rule.instructions));
            self.agenda.push(Step::Actions(rule.instructions.apply.iter()));
        }
    }

    /// Makes sure that one more lookup is within the bounds.
    const fn spend_lookup(&mut self, deepens: bool) -> Result<(), TraversalError> {
        if self.depth >= DEPTH_MAX {
            return Err(TraversalError::TooDeep(DEPTH_MAX));
        }
        if self.resubmits >= RESUBMITS_MAX {
            return Err(TraversalError::TooManyResubmits(RESUBMITS_MAX));
        }
        self.resubmits += 1;
        self.depth += deepens as u16;
        Ok(())
    }

    fn save(&mut self) -> Saved<'a> {
        Saved {
            key: self.key.clone(),
            written: self.recorder.save(),
            uncommitted: self.wire.save(),
            action_set: self.action_set.clone(),
            here: self.here,
            scope: self.scope,
            depth: self.depth,
        }
    }

    fn restore(&mut self, saved: Saved<'a>) {
        self.key = saved.key;
        self.recorder.restore(saved.written);
        self.wire.restore(saved.uncommitted);
        self.action_set = saved.action_set;
        self.here = saved.here;
        self.scope = saved.scope;
        self.depth = saved.depth;
    }
}

impl<'a> Place<'a> {
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
        recorder.read(Object::Ports(id));
        Some(Self { id, bridge, ports })
    }
}
