//! A translation in progress, and the loop that runs its agenda.
//!
//! A [`Translation`] consists of structs with fields of their own: [`WorkingPacket`],
//! [`ActionState`], [`Agenda`], [`LimitCounters`], [`LearnRequests`] and [`Partitioner`]. An action
//! is a method of one of these structs, or a function of those that it needs. Only an action that
//! ends or resumes the translation as a whole is a method of [`Translation`].

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, PortNo, layout::word, rewrite::TtlCopy};

use super::{
    action_state::ActionState,
    actions::{
        bundle::bundle,
        fin_timeout::fin_timeout,
        group::{self, meter},
        learn::learn,
        mirror::{mirror_copies, mirror_flood, mirror_received},
        multicast::multicast_outputs,
        multipath::multipath,
        normal::{fail_open, normal_flood},
        output::Egress,
        packet_in::{self, PacketInRequest},
        packet_length::check_length,
        protocols::goes_to_protocol,
        sample::sample,
        ttl::{dec_mpls_ttl, dec_ttl},
    },
    agenda::{Agenda, AgendaStep},
    bridge_view::{BridgeView, TablesAtVersion},
    decide::TranslationBuffers,
    learn_requests::LearnRequests,
    limits::LimitCounters,
    lookup::{KnownVisits, look_up, skip_known_table},
    nesting::Nesting,
    partition::{
        live_state::{LookupState, freeze_live},
        partitioner::{Partitioner, SubTraversalEnd},
    },
    recirculation::{freeze, thawed_steps},
    record::recorder::Recorder,
    rule_context::{ActionOrigin, RuleContext},
    translated_packet::{HitRecorder, TranslatedPacket},
    working_packet::{
        WorkingPacket,
        fields::{DESTINATION_PORTS, SOURCE_PORTS},
    },
};
use crate::{
    action::{Action, Subfield},
    bridges::port::PortInfo,
    continuations::continuation::{Continuation, FrozenState},
    id::{BridgeId, GroupId, QueueId, TableId},
    tables::rule::{Instructions, Rule},
    traversals::{
        datapath_action::DatapathAction,
        drop_cause::NotedDecision,
        sub_traversal::LimitUse,
        traversal::{GroupHit, TraversalError},
    },
    versions::delta::Object,
};

/// A translation in progress.
pub(super) struct Translation<'a> {
    tables: TablesAtVersion<'a>,
    packet: WorkingPacket,
    state: ActionState<'a>,
    agenda: Agenda<'a>,
    limits: LimitCounters,
    group_hits: Vec<GroupHit>,
    learn_requests: LearnRequests,
    partitioner: Partitioner,
    known_visits: KnownVisits<'a>,
    /// Counts the hits of rules, for a packet that gets no cache entry.
    hits: Option<HitRecorder<'a>>,
}

impl<'a> Translation<'a> {
    /// Runs a translation of a packet that is in this bridge, and returns its results.
    ///
    /// The translation is created and taken apart in this function, so that its large fields are
    /// not moved.
    pub(super) fn run_in(
        tables: TablesAtVersion<'a>,
        key: &FlowKey,
        bridge: BridgeView<'a>,
        recorder: Recorder,
        run: impl FnOnce(&mut Self) -> Result<(), TraversalError>,
    ) -> (Result<(), TraversalError>, TranslatedPacket) {
        let mut translation = Self {
            tables,
            packet: WorkingPacket::new(key.clone(), recorder),
            state: ActionState::new(bridge),
            agenda: Agenda::default(),
            limits: LimitCounters::default(),
            group_hits: Vec::new(),
            learn_requests: LearnRequests::default(),
            partitioner: Partitioner::Off,
            known_visits: KnownVisits::default(),
            hits: None,
        };
        let result = run(&mut translation);
        let Self { packet, learn_requests, group_hits, .. } = translation;
        let translated = TranslatedPacket::of(packet, &result, learn_requests, group_hits);
        (result, translated)
    }

    /// Runs a translation that records only its hits, and returns its results.
    pub(super) fn run_unrecorded(
        tables: TablesAtVersion<'a>,
        key: &FlowKey,
        bridge: BridgeView<'a>,
        start: Option<&'a Arc<Continuation>>,
        hits: HitRecorder<'a>,
        buffers: &mut TranslationBuffers,
        actions: Vec<DatapathAction>,
    ) -> (Result<(), TraversalError>, TranslatedPacket) {
        let mut translation = Self {
            tables,
            packet: WorkingPacket::new(key.clone(), Recorder::off()),
            state: ActionState::new(bridge),
            agenda: Agenda::reusing(std::mem::take(&mut buffers.steps)),
            limits: LimitCounters::default(),
            group_hits: Vec::new(),
            learn_requests: LearnRequests::with(std::mem::take(&mut buffers.refreshes)),
            partitioner: Partitioner::Off,
            known_visits: KnownVisits::default(),
            hits: Some(hits),
        };
        translation.packet.collect_in(actions);
        let result = translation.begin(start);
        let Self { packet, agenda, learn_requests, group_hits, .. } = translation;
        buffers.steps = agenda.into_memory();
        let translated = TranslatedPacket::of(packet, &result, learn_requests, group_hits);
        (result, translated)
    }

    /// Sets the behaviour at partition points, and the visits that are known already.
    pub(super) fn partition(&mut self, partitioner: Partitioner, known_visits: KnownVisits<'a>) {
        self.partitioner = partitioner;
        self.known_visits = known_visits;
    }

    /// Runs the translation from the ingress port, or from a continuation.
    pub(super) fn begin(
        &mut self,
        start: Option<&'a Arc<Continuation>>,
    ) -> Result<(), TraversalError> {
        let Some(continuation) = start else { return self.receive() };
        self.thaw(continuation);
        self.run()
    }

    /// Runs the actions of a packet-out.
    pub(super) fn run_packet_out(&mut self, actions: &'a [Action]) -> Result<(), TraversalError> {
        // The packet did not arrive on its `in_port`. So the translation compares output ports with
        // `in_port`, instead of the datapath.
        self.packet.recorder.wrote_word(usize::from(word::IN_PORT), u64::MAX);
        if self.arrives_reserved() {
            return Ok(());
        }
        self.agenda.push(AgendaStep::ActionSet(RuleContext::PACKET_OUT));
        self.agenda.push(AgendaStep::Actions(actions.iter()));
        mirror_received(&mut self.egress());
        self.run()
    }

    /// Returns the key of the packet, for an explanation.
    pub(super) const fn key(&self) -> &FlowKey {
        self.packet.key()
    }

    /// Returns the recorder of the packet.
    pub(super) const fn recorder(&mut self) -> &mut Recorder {
        &mut self.packet.recorder
    }

    /// Takes the partitioner, which holds the recorded points or the end.
    pub(super) fn take_partitioner(&mut self) -> Partitioner {
        std::mem::take(&mut self.partitioner)
    }

    /// Returns the amounts that the translation has used of its limits.
    pub(super) fn limit_use(&self) -> LimitUse {
        LimitUse {
            lookups: self.limits.lookups_count(),
            actions: self.packet.actions_count(),
            refreshes: self.learn_requests.refreshes_count(),
        }
    }

    /// Records a decision for the explanation of the translation.
    fn note(&mut self, decision: NotedDecision) {
        self.packet.recorder.note(self.state.bridge.id(), decision);
    }

    /// Receives the packet on its ingress port: copies for mirrors, then the tables.
    fn receive(&mut self) -> Result<(), TraversalError> {
        let bridge = self.state.bridge;
        if bridge.filters_ingress(&mut self.packet.recorder) {
            let ingress = self.packet.in_port();
            let ingress = bridge.find_port(ingress, &mut self.packet.recorder);
            if let Some(port) = ingress.filter(|port| !port.may_receive()) {
                self.note(NotedDecision::IngressPortDisabled(port.number));
                return Ok(());
            }
        }
        let is_taken = bridge.protocols().any() && goes_to_protocol(&mut self.packet, bridge)?;
        if is_taken || self.arrives_reserved() {
            return Ok(());
        }
        self.agenda.push(AgendaStep::Walk);
        mirror_received(&mut self.egress());
        self.run()
    }

    /// Returns whether the ingress port is reserved for the copies of a mirror.
    #[inline]
    fn arrives_reserved(&mut self) -> bool {
        if self.state.bridge.mirrors().is_none() {
            return false;
        }
        let ingress = self.packet.in_port();
        let is_reserved = self.state.bridge.is_mirror_output(ingress);
        if is_reserved {
            self.note(NotedDecision::MirrorOutputPort(ingress));
        }
        is_reserved
    }

    /// Runs the steps of the agenda until none is left.
    fn run(&mut self) -> Result<(), TraversalError> {
        while let Some(step) = self.agenda.pop() {
            match self.run_step(step) {
                // As in Open vSwitch, the steps after the bucket are run.
                Err(TraversalError::TooManyMplsLabels(_)) if self.agenda.is_in_bucket() => {
                    self.nesting().unwind(|saved| saved.is_bucket)?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    #[inline(always)] // A call for each step costs a traversal 3 % of its instructions.
    fn run_step(&mut self, step: AgendaStep<'a>) -> Result<(), TraversalError> {
        if self.packet.has_uncovered_headers() && step.needs_headers(self.state.bridge) {
            self.agenda.push(step);
            return self.recirculate(None);
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
                self.state.rule.context = RuleContext { in_set: true, ..context };
                self.agenda.push(AgendaStep::Set(self.state.action_set.take().into_iter()));
            }
            AgendaStep::Buckets(mut rest) => {
                if let Some(bucket) = rest.next() {
                    self.agenda.push(AgendaStep::Buckets(rest));
                    self.nesting().run_bucket(bucket)?;
                }
            }
            AgendaStep::Flood(flood) => self.egress().flood(flood)?,
            AgendaStep::NormalFlood(flood) => normal_flood(&mut self.egress(), flood)?,
            AgendaStep::Multicast(outputs) => multicast_outputs(&mut self.egress(), outputs)?,
            AgendaStep::Mirror(copies) => mirror_copies(&mut self.egress(), copies)?,
            AgendaStep::MirrorFlood(flood) => mirror_flood(&mut self.egress(), flood)?,
            AgendaStep::Walk if self.state.bridge.fails_open() => fail_open(&mut self.egress())?,
            AgendaStep::Walk => self.walk()?,
            AgendaStep::LookUp { table, port } => self.enter_table(table, port)?,
            AgendaStep::EndVisit => self.packet.recorder.end_visit(),
            AgendaStep::Return { rule, depth } => {
                self.state.rule = rule;
                self.limits.return_to(depth);
            }
            AgendaStep::EnterPeer { bridge, port } => self.enter_peer_bridge(bridge, port)?,
            AgendaStep::RestorePacket(saved) => self.packet.restore(*saved)?,
            AgendaStep::Restore(own) | AgendaStep::Leave(own) => self.nesting().restore(*own)?,
        }
        Ok(())
    }

    fn execute(&mut self, action: &'a Action) -> Result<(), TraversalError> {
        let (packet, requests) = (&mut self.packet, &mut self.learn_requests);
        let ActionState { bridge, rule, stack, .. } = &mut self.state;
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len)?,
            Action::OutputField { source, max_len } => {
                if let Ok(port) = u32::try_from(packet.read_bits(*source)) {
                    self.output(PortNo::widened(port), *max_len)?;
                }
            }
            Action::OutputTruncated { port, max_len } => {
                self.egress().output_truncated(*port, *max_len)?;
            }
            Action::Controller(action) => self.punt(PacketInRequest::by(action))?,
            Action::SetField { field, value, mask } => packet.set_field(*field, *value, *mask),
            Action::Load { target, value } => {
                let value = u128::from(*value) << target.offset;
                packet.set_field(target.field, value, target.bits());
            }
            Action::Move { source, target } => packet.move_bits(*source, *target),
            Action::PushVlan { ethertype } => packet.push_vlan(*ethertype),
            Action::PopVlan => packet.pop_vlan(),
            Action::DecTtl { controllers } => {
                let flow = dec_ttl(packet, &self.state, controllers)?;
                self.agenda.apply_flow(flow);
            }
            Action::Resubmit { port, table } => self.resubmit(*port, *table)?,
            Action::SetQueue(queue) => packet.set_queue(QueueId::new(*queue)),
            Action::PopQueue { .. } => packet.set_queue(QueueId::DEFAULT),
            Action::Clone(actions) => self.nesting().run_clone(actions),
            // Ends the steps up to the nearest patch port or bucket.
            Action::Exit => self.nesting().unwind(|_| true)?,
            Action::SetNwTtl(ttl) => packet.set_field(FieldId::NwTtl, u128::from(*ttl), u128::MAX),
            Action::SetTpSrc(port) => packet.set_port(SOURCE_PORTS, *port),
            Action::SetTpDst(port) => packet.set_port(DESTINATION_PORTS, *port),
            // A `conjunction` only affects lookups, and does not change packets.
            Action::Note(_) | Action::Conjunction { .. } => {}
            Action::Group(id) => self.run_group(*id),
            Action::Meter(id) => meter(packet, *bridge, *id)?,
            Action::CopyTtlOut => self.copy_ttl(TtlCopy::Out)?,
            Action::CopyTtlIn => self.copy_ttl(TtlCopy::In)?,
            Action::PushMpls { ethertype } => packet.push_mpls(*ethertype)?,
            Action::PopMpls { ethertype } => packet.pop_mpls(*ethertype)?,
            Action::SetMplsTtl(ttl) => {
                packet.set_field(FieldId::MplsTtl, u128::from(*ttl), u128::MAX);
            }
            Action::DecMplsTtl => {
                let flow = dec_mpls_ttl(packet, &self.state)?;
                self.agenda.apply_flow(flow);
            }
            Action::Push(source) => stack.push_bits(packet, *source)?,
            Action::Pop(target) => stack.pop_bits(packet, *target),
            Action::Learn(action) => learn(packet, requests, *bridge, rule.rule, action)?,
            Action::Multipath(action) => multipath(packet, action),
            Action::Bundle(action) => {
                if let Some(port) = bundle(packet, *bridge, action) {
                    self.output(port, 0)?;
                }
            }
            Action::FinTimeout { idle, hard } => {
                fin_timeout(packet, requests, rule.rule, *idle, *hard)?;
            }
            Action::CheckPktLarger { length, target } => self.check_length(*length, *target)?,
            Action::Sample(action) => sample(packet, *bridge, action)?,
            Action::Ct(_) | Action::CtClear | Action::Nat(_) => {
                debug_assert!(false, "{action:?} was accepted, but is not translated");
            }
        }
        Ok(())
    }

    /// `copy_ttl_in` and `copy_ttl_out`.
    /// The datapath copies between the last label and the IP header.
    fn copy_ttl(&mut self, copy: TtlCopy) -> Result<(), TraversalError> {
        if self.packet.copy_ttl(copy) { Ok(()) } else { self.recirculate(Some(copy)) }
    }

    /// Returns references to the fields that nested steps save and restore.
    const fn nesting(&mut self) -> Nesting<'_, 'a> {
        Nesting {
            packet: &mut self.packet,
            state: &mut self.state,
            agenda: &mut self.agenda,
            limits: &mut self.limits,
        }
    }

    /// Returns references to the fields that outputs use.
    fn egress(&mut self) -> Egress<'_, 'a> {
        let (packet, requests) = (&mut self.packet, &mut self.learn_requests);
        Egress::new(packet, &self.state, &mut self.agenda, requests)
    }

    /// `output`; a packet-out may also output to TABLE.
    fn output(&mut self, port: PortNo, max_len: u16) -> Result<(), TraversalError> {
        if port == PortNo::TABLE && self.state.rule.context.origin == ActionOrigin::PacketOut {
            return self.resubmit(None, Some(TableId::FIRST));
        }
        self.egress().output(port, max_len)
    }

    /// Sends the packet to controllers, with the remaining steps if the packet pauses.
    ///
    /// A message resumes the packet, so the counters of lookups restart; the depth stays.
    fn punt(&mut self, request: PacketInRequest<'_>) -> Result<(), TraversalError> {
        let continuation = request.pause.then(|| {
            let frozen = self.freeze(None, self.limits.restarted());
            self.tables.continuations.intern(frozen, None)
        });
        let (packet, context) = (&mut self.packet, self.state.rule.context);
        packet_in::punt(packet, self.state.bridge, context, request, continuation)?;
        if request.pause {
            self.leave_frozen();
        }
        Ok(())
    }

    /// `check_pkt_larger`: ends the cache entry, with a continuation for each result.
    fn check_length(&mut self, length: u16, target: Subfield) -> Result<(), TraversalError> {
        let frozen = self.freeze(None, self.limits.recirculated()?);
        let action = check_length(self.tables.continuations, &frozen, length, target);
        self.end_entry(action)
    }

    /// Ends the cache entry; the datapath may copy a TTL, and parses the packet again.
    fn recirculate(&mut self, ttl_copy: Option<TtlCopy>) -> Result<(), TraversalError> {
        let frozen = self.freeze(ttl_copy, self.limits.recirculated()?);
        self.end_entry(DatapathAction::Recirculate(self.tables.continuations.intern(frozen, None)))
    }

    /// Emits the last action of the cache entry, and continues after the frozen steps.
    fn end_entry(&mut self, action: DatapathAction) -> Result<(), TraversalError> {
        self.packet.emit(action)?;
        self.leave_frozen();
        Ok(())
    }

    /// Takes the frozen steps off the agenda and ends their visits.
    fn leave_frozen(&mut self) {
        for step in self.agenda.drain_frozen() {
            if let AgendaStep::EndVisit = step {
                self.packet.recorder.end_visit();
            }
        }
    }

    /// Returns the state of the steps up to the next restore of the packet.
    fn freeze(&mut self, ttl_copy: Option<TtlCopy>, limits: LimitCounters) -> FrozenState {
        freeze(&mut self.packet, &self.state, self.agenda.freezable(), ttl_copy, limits)
    }

    /// Continues with the state and the steps of a continuation.
    fn thaw(&mut self, continuation: &'a Continuation) {
        let frozen = continuation.frozen();
        if frozen.is_live_only {
            self.packet.recorder.read(Object::Live(frozen.bridge));
        }
        self.packet.thaw(&frozen.hidden, frozen.in_port);
        self.agenda = Agenda::new(thawed_steps(&frozen.steps));
        self.state.thaw(frozen);
        self.limits = frozen.limits;
        self.packet.mirror.done = self.state.bridge.mirrors_done_after(&frozen.mirrored);
    }

    /// Looks up the packet in a table, unless the translation ends before the lookup.
    ///
    /// Known visits that only lead to another table are skipped at once.
    fn enter_table(
        &mut self,
        mut table: TableId,
        mut port: Option<PortNo>,
    ) -> Result<(), TraversalError> {
        loop {
            if self.ends_before(table, port) {
                return Ok(());
            }
            let (packet, known_visits) = (&mut self.packet, self.known_visits);
            let skipped = skip_known_table(packet, self.state.bridge, known_visits, table, port);
            let Some((rule, next)) = skipped else { break };
            self.state.rule = self.state.rule.found(table, Some(rule));
            self.limits.count_lookup(false)?;
            (table, port) = (next, None);
        }
        let rule = self.look_up(table, port)?;
        self.enter(rule)
    }

    /// Ends the translation before this lookup, if the partitioner requires it.
    #[inline]
    fn ends_before(&mut self, table: TableId, port: Option<PortNo>) -> bool {
        if self.partitioner.is_off() {
            return false;
        }
        let (packet, state, agenda) = (&self.packet, &self.state, &self.agenda);
        let here = LookupState { packet, state, agenda, limits: self.limits, table, port };
        let Some(name) = self.partitioner.ends_before(&here) else { return false };
        self.agenda.push(AgendaStep::LookUp { table, port });
        let limits = self.limits.restarted();
        let frozen = freeze_live(&mut self.packet, &self.state, &self.agenda, limits, table);
        self.agenda.clear();
        let continuation = self.tables.continuations.intern(frozen, Some(name));
        let end = SubTraversalEnd::new(continuation, &self.packet);
        self.partitioner = Partitioner::Ended(Box::new(end));
        true
    }

    /// Looks up the packet in a table; `port` replaces the ingress port.
    ///
    /// The matched rule becomes the rule of the actions.
    fn look_up(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
        let (packet, limits) = (&mut self.packet, &mut self.limits);
        let rule = look_up(packet, self.state.bridge, self.known_visits, limits, table, port)?;
        if let Some(hits) = &mut self.hits {
            hits.record_lookup(self.state.bridge.id(), table, rule);
        }
        self.state.rule = self.state.rule.found(table, rule);
        Ok(rule)
    }

    /// Begins a walk through the tables of a bridge.
    fn walk(&mut self) -> Result<(), TraversalError> {
        self.agenda.push(AgendaStep::EndVisit);
        self.state.rule.context.in_set = false;
        let rule = self.look_up(TableId::FIRST, None)?;
        self.agenda.push(AgendaStep::ActionSet(self.state.rule.context));
        packet_in::punt_miss(&mut self.packet, self.state.bridge, self.state.rule.context, rule)?;
        self.enter(rule)
    }

    /// Looks up the packet in another table, and then returns to the current rule.
    fn resubmit(
        &mut self,
        port: Option<PortNo>,
        table: Option<TableId>,
    ) -> Result<(), TraversalError> {
        let (rule, depth) = (self.state.rule, self.limits.depth());
        let table = table.unwrap_or(rule.context.table);
        self.limits.count_lookup(table <= rule.context.table)?;
        self.agenda.push(AgendaStep::Return { rule, depth });
        self.agenda.push(AgendaStep::EndVisit);
        let port = port.filter(|port| *port != PortNo::IN_PORT);
        self.agenda.push(AgendaStep::LookUp { table, port });
        Ok(())
    }

    /// Sends the packet through a patch port, and restores it after the peer bridge.
    fn enter_peer_bridge(&mut self, bridge: BridgeId, port: PortNo) -> Result<(), TraversalError> {
        let recorder = &mut self.packet.recorder;
        let Some(peer) = BridgeView::find(self.tables, bridge, recorder) else { return Ok(()) };
        if !peer.find_port(port, recorder).is_some_and(PortInfo::may_receive) {
            recorder.note(bridge, NotedDecision::IngressPortDisabled(port));
            return Ok(());
        }
        if peer.is_mirror_output(port) {
            recorder.note(bridge, NotedDecision::MirrorOutputPort(port));
            return Ok(());
        }
        self.nesting().enter_bridge(peer, port)?;
        mirror_received(&mut self.egress());
        Ok(())
    }

    /// `group`: runs buckets, each on a copy of the packet.
    fn run_group(&mut self, id: GroupId) {
        match group::choose(&mut self.packet, self.state.bridge, id) {
            Some((hit, buckets)) => {
                self.group_hits.push(hit);
                self.agenda.push(AgendaStep::Buckets(buckets.iter()));
            }
            None => self.note(NotedDecision::NoLiveBucket(id)),
        }
    }

    /// Runs the instructions that follow the actions of a rule.
    fn finish_rule(&mut self, instructions: &'a Instructions) -> Result<(), TraversalError> {
        if instructions.clear {
            self.state.action_set.clear();
        }
        self.state.action_set.write(&instructions.write)?;
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

    /// Pushes the actions and instructions of a matched rule onto the agenda.
    fn enter(&mut self, rule: Option<&'a Arc<Rule>>) -> Result<(), TraversalError> {
        let Some(rule) = rule else { return Ok(()) };
        let instructions = &rule.instructions;
        self.agenda.push(AgendaStep::Instructions(instructions));
        self.agenda.push(AgendaStep::Actions(instructions.apply.iter()));
        let (packet, bridge) = (&mut self.packet, self.state.bridge);
        instructions.meter.map_or(Ok(()), |id| meter(packet, bridge, id))
    }
}
