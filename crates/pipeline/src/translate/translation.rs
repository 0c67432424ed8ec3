//! A translation in progress, and the loop that runs its agenda.
//!
//! A [`Translation`] consists of parts with their own fields: the [`WorkingPacket`], the
//! [`BridgeView`], the [`Agenda`], the action set, the stack, the [`LimitCounters`] and the
//! [`LearnRequests`]. An action that needs one or two of them is a method or a function of these
//! alone. Only an action that changes the agenda is a method of `Translation`.

use std::{ops::ControlFlow, sync::Arc};

use shunt_flow::{FieldId, FlowKey, PortNo, SparseKey, layout::word, rewrite::TtlCopy};

use super::{
    actions::{
        action_set::ActionSet,
        bundle,
        fields::{DESTINATION_PORTS, SOURCE_PORTS},
        fin_timeout, learn,
        output::PacketInRequest,
        stack::Stack,
    },
    agenda::{Agenda, AgendaStep, Saved},
    bridge_view::{BridgeView, TablesAtVersion},
    learn_requests::LearnRequests,
    limits::LimitCounters,
    lookup::{KnownVisits, look_up, skip_known_table},
    partition::partitioner::Partitioner,
    record::recorder::Recorder,
    rule_context::RuleContext,
    working_packet::{HeaderState, WorkingPacket},
};
use crate::{
    action::Action,
    bridges::port::PortInfo,
    continuations::continuation::Continuation,
    groups::group::Bucket,
    id::{BridgeId, TableId},
    tables::rule::{Instructions, Rule},
    traversals::traversal::{GroupHit, Traversal, TraversalError},
    versions::delta::Object,
};

/// A translation in progress.
pub(super) struct Translation<'a> {
    pub(super) tables: TablesAtVersion<'a>,
    pub(super) packet: WorkingPacket,
    /// The bridge that the packet is in.
    pub(super) bridge: BridgeView<'a>,
    /// The rule of the running actions, as packet-ins show it.
    pub(super) context: RuleContext,
    /// The rule itself; behind a recirculation only if the frozen actions name it.
    pub(super) rule: Option<&'a Arc<Rule>>,
    pub(super) agenda: Agenda<'a>,
    pub(super) action_set: ActionSet<'a>,
    pub(super) stack: Stack,
    pub(super) limits: LimitCounters,
    pub(super) group_hits: Vec<GroupHit>,
    pub(super) learn_requests: LearnRequests,
    pub(super) partitioner: Partitioner,
    pub(super) known_visits: KnownVisits<'a>,
}

/// Translates a packet that arrives on its ingress port.
pub(crate) fn packet(tables: TablesAtVersion<'_>, key: &FlowKey) -> Traversal {
    translate(tables, key, Translation::receive)
}

/// Translates the actions of a packet-out.
pub(crate) fn packet_out(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    actions: &[Action],
) -> Traversal {
    translate(tables, key, |translation| {
        // The packet did not arrive on the port that it names: outputs are compared with it here.
        translation.packet.recorder.wrote_word(usize::from(word::IN_PORT), u64::MAX);
        translation.agenda.push(AgendaStep::ActionSet(translation.context));
        translation.agenda.push(AgendaStep::Actions(actions.iter()));
        translation.run()
    })
}

/// Continues with a packet that was parsed again.
pub(crate) fn resume(
    tables: TablesAtVersion<'_>,
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
    tables: TablesAtVersion<'a>,
    key: &FlowKey,
    run: impl FnOnce(&mut Translation<'a>) -> Result<(), TraversalError>,
) -> Traversal {
    let ingress = SparseKey::from(key);
    let mut recorder = Recorder::new(ingress.clone());
    recorder.consult_word(usize::from(word::BRIDGE), u64::MAX);
    recorder.consult(FieldId::RecircId, u128::MAX);
    let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
    let bridge = bridge.and_then(|id| BridgeView::find(tables, id, &mut recorder));
    let (result, recorder, group_hits) = match bridge {
        Some(bridge) => {
            let mut translation = Translation::new(tables, key, bridge, recorder);
            let result = run(&mut translation);
            let Translation { packet, learn_requests, group_hits, .. } = translation;
            let WorkingPacket { builder, recorder, .. } = packet;
            (result.map(|()| (builder.finish(), learn_requests.finish())), recorder, group_hits)
        }
        None => (Err(TraversalError::NoSuchPort), recorder, Vec::new()),
    };
    let (mask, visits, reads) = recorder.finish();
    let error = result.as_ref().err().copied();
    // A packet that is dropped for an error does nothing and learns nothing.
    let (actions, (learnings, refreshes)) = result.unwrap_or_default();
    Traversal {
        version: tables.version,
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
    fn new(
        tables: TablesAtVersion<'a>,
        key: &FlowKey,
        bridge: BridgeView<'a>,
        recorder: Recorder,
    ) -> Self {
        Self {
            tables,
            packet: WorkingPacket::new(key.clone(), recorder),
            bridge,
            context: RuleContext::PACKET_OUT,
            rule: None,
            agenda: Agenda::default(),
            action_set: ActionSet::default(),
            stack: Stack::default(),
            limits: LimitCounters::default(),
            group_hits: Vec::new(),
            learn_requests: LearnRequests::default(),
            partitioner: Partitioner::Off,
            known_visits: KnownVisits::default(),
        }
    }

    /// Receives the packet on its ingress port.
    pub(super) fn receive(&mut self) -> Result<(), TraversalError> {
        self.packet.recorder.read(Object::PortFilters(self.bridge.id));
        if self.bridge.ports.filters_ingress {
            let ingress = self.packet.in_port();
            let ingress = self.find_port(ingress);
            if ingress.is_some_and(|port| !port.may_receive()) {
                return Ok(());
            }
        }
        self.agenda.push(AgendaStep::Walk);
        self.run()
    }

    /// Returns a port of the bridge.
    pub(super) fn find_port(&mut self, number: PortNo) -> Option<&'a PortInfo> {
        self.bridge.find_port(number, &mut self.packet.recorder)
    }

    /// Runs the steps of the agenda until none is left.
    pub(super) fn run(&mut self) -> Result<(), TraversalError> {
        while let Some(step) = self.agenda.pop() {
            match self.run_step(step) {
                // As in Open vSwitch, the steps behind the bucket are run.
                Err(TraversalError::TooManyMplsLabels(_)) if self.agenda.is_in_bucket() => {
                    self.unwind(|saved| saved.is_bucket)?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    fn run_step(&mut self, step: AgendaStep<'a>) -> Result<(), TraversalError> {
        if self.packet.headers == HeaderState::Uncovered && step.needs_headers() {
            return self.recirculate_before(step);
        }
        match step {
            AgendaStep::Actions(mut rest) => {
                if let Some(action) = rest.next() {
                    self.agenda.push(AgendaStep::Actions(rest));
                    self.execute(action)?;
                }
            }
            AgendaStep::Set(mut rest) => {
                if let Some(action) = rest.next() {
                    self.agenda.push(AgendaStep::Set(rest));
                    self.execute(action)?;
                }
            }
            AgendaStep::Instructions(instructions) => self.finish_rule(instructions)?,
            AgendaStep::ActionSet(context) => {
                self.context = RuleContext { in_set: true, ..context };
                self.agenda.push(AgendaStep::Set(self.action_set.take().into_iter()));
            }
            AgendaStep::Buckets(rest) => self.run_buckets(rest)?,
            AgendaStep::Flood(flood) => self.flood(flood)?,
            AgendaStep::NormalFlood(flood) => self.normal_flood(flood)?,
            AgendaStep::Walk => self.walk()?,
            AgendaStep::LookUp { table, port } => self.enter_table(table, port)?,
            AgendaStep::EndVisit => self.packet.recorder.end_visit(),
            AgendaStep::Return { context, rule, depth } => {
                self.context = context;
                self.rule = rule;
                self.limits.depth = depth;
            }
            AgendaStep::Restore(saved) | AgendaStep::Leave(saved) => self.restore(*saved)?,
        }
        Ok(())
    }

    fn execute(&mut self, action: &'a Action) -> Result<(), TraversalError> {
        let packet = &mut self.packet;
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len)?,
            Action::OutputField { source, max_len } => self.output_field(*source, *max_len)?,
            Action::OutputTruncated { port, max_len } => self.output_truncated(*port, *max_len)?,
            Action::Controller(action) => self.punt(PacketInRequest::by(action))?,
            Action::SetField { field, value, mask } => packet.set_field(*field, *value, *mask),
            Action::Load { target, value } => {
                let value = u128::from(*value) << target.offset;
                packet.set_field(target.field, value, target.bits());
            }
            Action::Move { source, target } => packet.move_bits(*source, *target),
            Action::PushVlan { ethertype } => packet.push_vlan(*ethertype),
            Action::PopVlan => packet.pop_vlan(),
            Action::DecTtl { controllers } => self.dec_ttl(controllers)?,
            Action::Resubmit { port, table } => self.resubmit(*port, *table)?,
            Action::SetQueue(queue) => packet.set_queue(*queue),
            Action::PopQueue => packet.set_queue(0),
            Action::Clone(actions) => self.run_clone(actions),
            Action::Note(_) => {}
            // Up to the nearest patch port or bucket.
            Action::Exit => self.unwind(|_| true)?,
            Action::SetNwTtl(ttl) => packet.set_field(FieldId::NwTtl, u128::from(*ttl), u128::MAX),
            Action::SetTpSrc(port) => packet.set_port(SOURCE_PORTS, *port),
            Action::SetTpDst(port) => packet.set_port(DESTINATION_PORTS, *port),
            // A clause decides lookups and does nothing to packets.
            Action::Conjunction { .. } => {}
            Action::Group(id) => self.run_group(*id)?,
            Action::Meter(id) => self.meter(*id)?,
            Action::CopyTtlOut => self.copy_ttl(TtlCopy::Out)?,
            Action::CopyTtlIn => self.copy_ttl(TtlCopy::In)?,
            Action::PushMpls { ethertype } => packet.push_mpls(*ethertype)?,
            Action::PopMpls { ethertype } => packet.pop_mpls(*ethertype)?,
            Action::SetMplsTtl(ttl) => {
                packet.set_field(FieldId::MplsTtl, u128::from(*ttl), u128::MAX);
            }
            Action::DecMplsTtl => self.dec_mpls_ttl()?,
            Action::Push(source) => self.stack.push_bits(packet, *source)?,
            Action::Pop(target) => self.stack.pop_bits(packet, *target),
            Action::Learn(action) => {
                learn::learn(packet, &mut self.learn_requests, self.bridge, self.rule, action)?;
            }
            Action::Multipath(action) => packet.multipath(action),
            Action::Bundle(action) => {
                if let Some(port) = bundle::bundle(packet, self.bridge, action) {
                    self.output(port, 0)?;
                }
            }
            Action::FinTimeout { idle, hard } => {
                fin_timeout::fin_timeout(
                    packet,
                    &mut self.learn_requests,
                    self.rule,
                    *idle,
                    *hard,
                )?;
            }
            Action::CheckPktLarger { length, target } => self.check_length(*length, *target)?,
            // Rules with these are refused.
            Action::Ct(_) | Action::CtClear | Action::Nat(_) | Action::Sample(_) => {}
        }
        Ok(())
    }

    /// `dec_ttl`: with a TTL that is used up, notifies controllers and drops the rest
    /// of the list.
    fn dec_ttl(&mut self, controllers: &[u16]) -> Result<(), TraversalError> {
        let flow = self.packet.dec_ttl();
        if flow.is_break() {
            for controller in controllers {
                self.punt(PacketInRequest::invalid_ttl(*controller))?;
            }
        }
        self.agenda.apply_flow(flow);
        Ok(())
    }

    /// `dec_mpls_ttl`: as `dec_ttl`, for the outermost label.
    ///
    /// Without a label the rest of the list is dropped too, as in Open vSwitch.
    fn dec_mpls_ttl(&mut self) -> Result<(), TraversalError> {
        if self.packet.has_field(FieldId::MplsTtl) {
            if self.packet.dec_mpls_ttl().is_continue() {
                return Ok(());
            }
            self.punt(PacketInRequest::invalid_ttl(0))?;
        }
        self.agenda.apply_flow(ControlFlow::Break(()));
        Ok(())
    }

    /// `copy_ttl_in` and `copy_ttl_out`: only the frame shows the TTL behind the last
    /// label.
    fn copy_ttl(&mut self, copy: TtlCopy) -> Result<(), TraversalError> {
        if self.packet.copy_ttl(copy) { Ok(()) } else { self.recirculate_after(copy) }
    }

    /// Looks up in a table, with `port` in place of the ingress port.
    ///
    /// The matched rule becomes the rule of the actions.
    pub(super) fn look_up(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
        let (packet, limits) = (&mut self.packet, &mut self.limits);
        let rule = look_up(packet, self.bridge, self.known_visits, limits, table, port)?;
        self.context = self.context.found(table, rule);
        self.rule = rule;
        Ok(rule)
    }

    /// Skips a table if a known visit matches a rule that only leads to another.
    ///
    /// Returns that table.
    pub(super) fn skip_known_table(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<TableId>, TraversalError> {
        let (packet, known_visits) = (&mut self.packet, self.known_visits);
        let skipped = skip_known_table(packet, self.bridge, known_visits, table, port);
        let Some((rule, next)) = skipped else { return Ok(None) };
        self.context = self.context.found(table, Some(rule));
        self.rule = Some(rule);
        self.limits.count_lookup(false)?;
        Ok(Some(next))
    }

    /// Begins a walk through the tables of a bridge.
    fn walk(&mut self) -> Result<(), TraversalError> {
        self.agenda.push(AgendaStep::EndVisit);
        self.context.in_set = false;
        let rule = self.look_up(TableId::FIRST, None)?;
        self.agenda.push(AgendaStep::ActionSet(self.context));
        self.enter(rule)
    }

    /// Looks up in another table, and returns.
    pub(super) fn resubmit(
        &mut self,
        port: Option<PortNo>,
        table: Option<TableId>,
    ) -> Result<(), TraversalError> {
        let table = table.unwrap_or(self.context.table);
        let (context, rule, depth) = (self.context, self.rule, self.limits.depth);
        let outer = AgendaStep::Return { context, rule, depth };
        self.limits.count_lookup(table <= self.context.table)?;
        self.agenda.push(outer);
        self.agenda.push(AgendaStep::EndVisit);
        let port = port.filter(|port| *port != PortNo::IN_PORT);
        self.agenda.push(AgendaStep::LookUp { table, port });
        Ok(())
    }

    /// Sends the packet through a patch port; it is put back behind the peer bridge.
    pub(super) fn enter_peer_bridge(
        &mut self,
        bridge: BridgeId,
        port: PortNo,
    ) -> Result<(), TraversalError> {
        let recorder = &mut self.packet.recorder;
        let Some(peer) = BridgeView::find(self.tables, bridge, recorder) else { return Ok(()) };
        recorder.read(Object::Port(bridge, port));
        if !peer.ports.find(port).is_some_and(PortInfo::may_receive) {
            return Ok(());
        }
        let saved = self.save();
        self.limits.count_lookup(true)?;
        self.agenda.push(AgendaStep::Leave(Box::new(saved)));
        self.bridge = peer;
        self.action_set.clear();
        self.stack = Stack::default();
        let packet = &mut self.packet;
        (word::TUN_METADATA..word::PKT_MARK).for_each(|word| packet.write_hidden(word, 0));
        packet.write_hidden(word::ACTSET_OUTPUT, 0);
        packet.write_hidden(word::BRIDGE, u64::from(bridge.number()));
        packet.write(FieldId::InPort, u128::from(port.number()), u128::MAX);
        self.agenda.push(AgendaStep::Walk);
        Ok(())
    }

    /// Runs a bucket, on a copy of the packet.
    pub(super) fn run_bucket(&mut self, bucket: &'a Bucket) -> Result<(), TraversalError> {
        let saved = Saved { is_bucket: true, ..self.save() };
        self.limits.count_lookup(true)?;
        self.agenda.push(AgendaStep::Leave(Box::new(saved)));
        let mut set = ActionSet::default();
        set.write(&bucket.actions)?;
        self.context.in_bucket = true;
        self.agenda.push(AgendaStep::Set(set.take().into_iter()));
        Ok(())
    }

    /// Runs actions and the action set on a copy of the packet, and drops the copy.
    fn run_clone(&mut self, actions: &'a [Action]) {
        self.restore_later();
        self.agenda.push(AgendaStep::ActionSet(self.context));
        self.agenda.push(AgendaStep::Actions(actions.iter()));
    }

    /// Drops all steps up to the nearest patch port or bucket that `ends` accepts.
    fn unwind(&mut self, ends: fn(&Saved<'_>) -> bool) -> Result<(), TraversalError> {
        while let Some(step) = self.agenda.pop() {
            match step {
                AgendaStep::EndVisit => self.packet.recorder.end_visit(),
                AgendaStep::Restore(saved) => self.restore(*saved)?,
                AgendaStep::Leave(saved) => {
                    let is_end = ends(&saved);
                    self.restore(*saved)?;
                    if is_end {
                        break;
                    }
                }
                AgendaStep::Actions(_)
                | AgendaStep::Set(_)
                | AgendaStep::Instructions(_)
                | AgendaStep::ActionSet(_)
                | AgendaStep::Buckets(_)
                | AgendaStep::Flood(_)
                | AgendaStep::NormalFlood(_)
                | AgendaStep::Walk
                | AgendaStep::LookUp { .. }
                | AgendaStep::Return { .. } => {}
            }
        }
        Ok(())
    }

    /// Runs the instructions that follow the actions of a rule.
    fn finish_rule(&mut self, instructions: &'a Instructions) -> Result<(), TraversalError> {
        if instructions.clear {
            self.action_set.clear();
        }
        self.action_set.write(&instructions.write)?;
        if let Some((value, mask)) = instructions.metadata {
            self.packet.write(FieldId::Metadata, u128::from(value), u128::from(mask));
        }
        if let Some(table) = instructions.goto {
            self.limits.count_lookup(false)?;
            self.packet.recorder.end_visit();
            self.agenda.push(AgendaStep::LookUp { table, port: None });
        }
        Ok(())
    }

    /// Puts the actions and instructions of a matched rule on the agenda.
    pub(super) fn enter(&mut self, rule: Option<&'a Arc<Rule>>) -> Result<(), TraversalError> {
        let Some(rule) = rule else { return Ok(()) };
        let instructions = &rule.instructions;
        self.agenda.push(AgendaStep::Instructions(instructions));
        self.agenda.push(AgendaStep::Actions(instructions.apply.iter()));
        instructions.meter.map_or(Ok(()), |meter| self.meter(meter))
    }

    /// Puts the packet back as it is now, behind the steps that are pushed next.
    pub(super) fn restore_later(&mut self) {
        let saved = self.save();
        self.agenda.push(AgendaStep::Restore(Box::new(saved)));
    }

    fn save(&mut self) -> Saved<'a> {
        Saved {
            packet: self.packet.save(),
            action_set: self.action_set.clone(),
            stack: self.stack.clone(),
            bridge: self.bridge,
            context: self.context,
            rule: self.rule,
            depth: self.limits.depth,
            is_bucket: false,
        }
    }

    fn restore(&mut self, saved: Saved<'a>) -> Result<(), TraversalError> {
        self.action_set = saved.action_set;
        self.stack = saved.stack;
        self.bridge = saved.bridge;
        self.context = saved.context;
        self.limits.depth = saved.depth;
        self.rule = saved.rule;
        self.packet.restore(saved.packet)
    }
}
