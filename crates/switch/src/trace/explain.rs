//! The trace of one packet: the rules that decided, their masks, and the actions.
//!
//! After a recirculation, the trace continues with the packet as it is parsed again. If the length
//! of the packet decides, and no frame is given, the trace follows both branches.

use std::{collections::VecDeque, sync::Arc};

use shunt_datapath::DropReason;
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    extract::VlanLimit,
    text::{PortNames, format_key, format_match},
};
use shunt_foresight::Forecast;
use shunt_pipeline::{
    BridgeId, Continuation, Explanation, GroupHit, Learning, Meter, Pipeline, Rule, TableSelector,
    TranslationNote, Traversal, Visit,
    text::{format_actions, format_meter},
};

use crate::{
    config::CacheOptions,
    nic::NicFront,
    ports::{bridges::Bridges, names::BridgeNames, registry::BridgeRegistry},
    trace::{
        actions::{Actions, TraceContinuation},
        decisions::decisions_of,
        error::{TRIES, TablesChanged, TraceError},
        flow::read_flow,
        missing_ports::{missing_ingress, missing_ports},
        packet::TracedPacket,
        preload::{AnnouncedTime, Announcement},
        report::{Trace, TraceConjunction, TraceGroup, TraceRecirculation, TraceRule, TraceVisit},
        sub_traversals::{SubTraversalCache, TraceSubTraversals},
    },
};

/// The warning that a frame has no ingress port.
const NO_INGRESS: &str = "the frame has no ingress port, so rules with in_port do not match: write \
                          in_port=PORT before the frame";

/// Maximum number of recirculated packets in a trace.
const RESUMED_MAX: usize = 64;

/// A tracer of packets and traversals through the tables.
pub(crate) struct Tracer<'a> {
    pipeline: &'a Pipeline,
    bridges: &'a Bridges,
    /// Maximum number of VLAN tags that are parsed.
    vlan_limit: VlanLimit,
}

/// The caches for which a trace describes sub-traversals.
#[derive(Clone, Copy)]
pub(crate) struct TracedCaches<'a> {
    /// The cache options of the packet threads.
    pub(crate) threads: &'a CacheOptions,
    /// The NIC, if the bridge has one.
    pub(crate) nic: Option<&'a NicFront>,
}

impl<'a> Tracer<'a> {
    /// Returns a tracer that translates in the newest version of the pipeline.
    pub(crate) const fn new(
        pipeline: &'a Pipeline,
        bridges: &'a Bridges,
        vlan_limit: VlanLimit,
    ) -> Self {
        Self { pipeline, bridges, vlan_limit }
    }

    /// Traces a packet.
    ///
    /// `flow` is a match in the syntax of `ovs-ofctl`, a frame in hexadecimal, or both. With both,
    /// With both, the match may only contain the ingress port.
    pub(crate) fn trace(
        &self,
        bridge: &str,
        flow: &str,
        caches: TracedCaches<'_>,
    ) -> Result<Trace, TraceError> {
        let id = self.bridges.id(bridge)?;
        let names = BridgeNames::new(self.pipeline, id);
        let flow = read_flow(flow, &names).map_err(|error| error.of_bridge(bridge, &names))?;
        if let Some((field, _)) = flow.unknown.first() {
            return Err(TraceError::Masked { field: field.name() });
        }
        let warning = match flow.in_port {
            Some(port) => missing_ingress(port, &names),
            None => flow.frame.is_some().then(|| NO_INGRESS.to_owned()),
        };
        let packet = flow.packet(id, self.vlan_limit);
        let tries = (0..TRIES).find_map(|_| self.trace_packet(packet.clone(), id, caches).ok());
        let mut trace = tries.ok_or(TraceError::TablesChanged)?;
        trace.warnings.extend(warning);
        Ok(trace)
    }

    /// Returns the forecasts of flows that are announced for `valid`.
    ///
    /// Each flow has the syntax of [`Self::trace`], with an ingress port.
    pub(crate) fn announced(
        &self,
        bridge: &str,
        flows: &[&str],
        announced: AnnouncedTime,
    ) -> Result<Vec<Forecast>, TraceError> {
        let id = self.bridges.id(bridge)?;
        let names = BridgeNames::new(self.pipeline, id);
        let vlan_limit = self.vlan_limit;
        let announcement = Announcement { bridge, id, names: &names, vlan_limit, announced };
        let forecast = |(number, flow): (usize, &&str)| {
            let wrong = |error| TraceError::AnnouncedFlow {
                number,
                flow: (*flow).to_owned(),
                error: Box::new(error),
            };
            announcement.forecast(flow).map_err(wrong)
        };
        (1..).zip(flows).map(forecast).collect()
    }

    /// Traces a packet through the tables.
    fn trace_packet(
        &self,
        packet: TracedPacket,
        id: BridgeId,
        caches: TracedCaches<'_>,
    ) -> Result<Trace, TablesChanged> {
        let Explanation { traversal, notes, last } =
            self.pipeline.explain_at_newest_version(&packet.key, None);
        let mut ahead = VecDeque::new();
        let cache = SubTraversalCache::of_threads(caches.threads);
        let sub_traversals = self.explain_in(cache.as_ref(), &packet.key, None, &traversal)?;
        let nic = caches.nic.and_then(|nic| SubTraversalCache::of_nic(nic, &packet.key));
        let nic_sub_traversals = self.explain_in(nic.as_ref(), &packet.key, None, &traversal)?;
        let final_flow = self.final_flow(&packet.key, &last, id);
        let own = self.explain(&traversal, &notes, packet, id, &mut ahead);
        let mut trace = Trace { final_flow, sub_traversals, nic_sub_traversals, ..own };
        while trace.resumed.len() < RESUMED_MAX
            && let Some(TraceContinuation { packet, continuation, reason }) = ahead.pop_front()
        {
            let packet = packet.entering(&continuation);
            let bridge = u16::try_from(packet.key.bridge()).map_or(id, BridgeId::new);
            let Explanation { traversal, notes, last } =
                self.pipeline.explain_at_newest_version(&packet.key, Some(&continuation));
            let recirculation = Some(TraceRecirculation { id: continuation.id(), reason });
            let sub_traversals =
                self.explain_in(cache.as_ref(), &packet.key, Some(&continuation), &traversal)?;
            let final_flow = self.final_flow(&packet.key, &last, bridge);
            let resumed = self.explain(&traversal, &notes, packet, bridge, &mut ahead);
            trace.resumed.push(Trace { recirculation, final_flow, sub_traversals, ..resumed });
        }
        Ok(trace)
    }

    /// Describes the sub-traversals of a packet in a cache, if the cache exists.
    fn explain_in(
        &self,
        cache: Option<&SubTraversalCache>,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        traversal: &Traversal,
    ) -> Result<Option<TraceSubTraversals>, TablesChanged> {
        let explain = |cache: &SubTraversalCache| {
            cache.explain(key, start, traversal.version, self.pipeline, self.bridges)
        };
        cache.map(explain).transpose()
    }

    /// Describes a traversal, but not its recirculated packets and decisions.
    pub(crate) fn explain_alone(&self, traversal: &Traversal, id: BridgeId) -> Trace {
        let packet = TracedPacket::new((&traversal.key).into(), None, self.vlan_limit);
        self.explain(traversal, &[], packet, id, &mut VecDeque::new())
    }

    /// Describes a traversal that is still valid, with its decisions.
    ///
    /// The decisions are read from a new translation of its first packet, which has the same
    /// result.
    pub(crate) fn explain_valid(&self, traversal: &Traversal, id: BridgeId) -> Trace {
        let key = (&traversal.key).into();
        let mut notes =
            self.pipeline.explain_at_newest_version(&key, traversal.continuation.as_ref()).notes;
        // The visits of a sub-traversal end before the later visits of the translation.
        notes.retain(|note| note.visit.is_none_or(|visit| visit < traversal.visits.len()));
        let packet = TracedPacket::new(key, None, self.vlan_limit);
        self.explain(traversal, &notes, packet, id, &mut VecDeque::new())
    }

    /// Returns the trace of a traversal.
    fn explain(
        &self,
        traversal: &Traversal,
        notes: &[TranslationNote],
        packet: TracedPacket,
        id: BridgeId,
        ahead: &mut VecDeque<TraceContinuation>,
    ) -> Trace {
        let names = BridgeNames::new(self.pipeline, id);
        let bridges = self.bridges.lock();
        let mut actions = Actions::new(&bridges, ahead);
        let described = actions.describe(&traversal.actions, packet);
        let (meters, undelivered) = actions.finish();
        Trace {
            recirculation: None,
            flow: format_key(&(&traversal.key).into(), &names),
            warnings: Vec::new(),
            decisions: decisions_of(notes, None, self.pipeline),
            version: traversal.version.number(),
            visits: self.explain_visits(&bridges, traversal, notes),
            groups: self.explain_groups(&bridges, traversal),
            meters: meters.iter().map(|meter| explain_meter(meter)).collect(),
            learnings: traversal.learnings.iter().map(|own| self.explain_learning(own)).collect(),
            final_flow: None,
            megaflow: describe(&(&traversal.key).into(), without_bridge(traversal), &names),
            sub_traversals: None,
            nic_sub_traversals: None,
            actions: described,
            undelivered,
            drop_reason: drop_reason(traversal),
            error: traversal.error.map(|error| error.to_string()),
            resumed: Vec::new(),
        }
    }

    /// Describes the fields of a packet after all rules have been applied.
    fn final_flow(&self, first: &FlowKey, last: &FlowKey, id: BridgeId) -> Option<String> {
        let names = BridgeNames::new(self.pipeline, id);
        Some(if first == last { "unchanged".to_owned() } else { format_key(last, &names) })
    }

    /// Describes the lookups; each includes the conjunctions that were tried before it.
    fn explain_visits(
        &self,
        bridges: &BridgeRegistry,
        traversal: &Traversal,
        notes: &[TranslationNote],
    ) -> Vec<TraceVisit> {
        let (mut visits, mut conjunctions) = (Vec::new(), Vec::new());
        let mut all = traversal.visits.iter().enumerate().peekable();
        while let Some((index, visit)) = all.next() {
            if visit.clauses.is_empty() {
                let conjunctions = std::mem::take(&mut conjunctions);
                let decisions = decisions_of(notes, Some(index), self.pipeline);
                let own = self.explain_visit(bridges, visit, conjunctions);
                visits.push(TraceVisit { decisions, ..own });
                continue;
            }
            let names = BridgeNames::new(self.pipeline, visit.bridge);
            let second = all.peek().map(|(_, second)| second.key.field(FieldId::ConjId));
            conjunctions.push(TraceConjunction {
                conj_id: second.unwrap_or_default(),
                clauses: visit.clauses.iter().map(|rule| explain_rule(rule, &names)).collect(),
            });
            // If the second lookup of a conjunction finds no rule, the search continues.
            all.next_if(|(_, second)| second.rule.is_none());
        }
        visits
    }

    /// Explains a visit: its table, rule and actions.
    fn explain_visit(
        &self,
        bridges: &BridgeRegistry,
        visit: &Visit,
        conjunctions: Vec<TraceConjunction>,
    ) -> TraceVisit {
        let names = BridgeNames::new(self.pipeline, visit.bridge);
        TraceVisit {
            bridge: bridge_name(bridges, visit.bridge),
            table: visit.table.number(),
            conjunctions,
            rule: visit.rule.as_ref().map(|rule| explain_rule(rule, &names)),
            consulted: describe(&(&visit.key).into(), (&visit.mask).into(), &names),
            decisions: Vec::new(),
            notes: visit.rule.as_ref().map_or_else(Vec::new, |rule| {
                missing_ports(
                    rule.instructions.apply.iter().chain(&rule.instructions.write),
                    &names,
                )
            }),
        }
    }

    /// Explains which bucket of each group was chosen.
    fn explain_groups(&self, bridges: &BridgeRegistry, traversal: &Traversal) -> Vec<TraceGroup> {
        let explain = |hit: &GroupHit| {
            let names = BridgeNames::new(self.pipeline, hit.group.bridge);
            let chosen = hit.bucket.and_then(|place| hit.group.buckets.get(place));
            let run = chosen.map_or(&*hit.group.buckets, std::slice::from_ref);
            TraceGroup {
                bridge: bridge_name(bridges, hit.group.bridge),
                group: hit.group.id.number(),
                bucket: chosen.map(|bucket| bucket.id),
                notes: missing_ports(run.iter().flat_map(|bucket| &bucket.actions), &names),
            }
        };
        traversal.group_hits.iter().map(explain).collect()
    }

    /// Describes a learn request of the packet.
    fn explain_learning(&self, learning: &Learning) -> String {
        let names = |bridge| BridgeNames::new(self.pipeline, bridge);
        match learning {
            Learning::Rule(learned) => {
                let (request, names) = (&learned.request, names(learned.bridge));
                let mut items = Vec::new();
                if let TableSelector::One(table) = request.table {
                    items.push(format!("table={table}"));
                }
                items.push(format!("priority={}", request.priority.number()));
                let timeouts = [("idle", request.idle_timeout), ("hard", request.hard_timeout)];
                let given = timeouts.into_iter().filter(|(_, timeout)| !timeout.is_zero());
                items.extend(given.map(|(name, own)| format!("{name}_timeout={}", own.as_secs())));
                items.push(format_match(&request.matching, &names));
                items.retain(|item| !item.is_empty());
                let actions = format_actions(&request.instructions, &names);
                format!("{} actions={actions}", items.join(","))
            }
            Learning::Mac(observation) => {
                let mac = observation.mac.map(|byte| format!("{byte:02x}")).join(":");
                let name = names(observation.bridge).name(observation.port);
                let port = name.unwrap_or_else(|| observation.port.to_string());
                format!("{mac} is at port {port} in VLAN {}", observation.vlan)
            }
            // A translation makes no multicast learn request.
            Learning::Multicast(observation) => format!("{observation:?}"),
        }
    }
}

/// Returns the drop reason that packets of a traversal are counted under.
///
/// `None` if an action, or a later sub-traversal, may output the packets.
fn drop_reason(traversal: &Traversal) -> Option<&'static str> {
    if !traversal.actions.is_empty() || traversal.next.is_some() {
        return None;
    }
    let cause = DropReason::from(traversal.drop_cause);
    Some(traversal.error.map_or(cause, DropReason::from).name())
}

/// Explains a rule.
fn explain_rule(rule: &Rule, names: &BridgeNames) -> TraceRule {
    TraceRule {
        matching: format_match(&rule.matching, names),
        priority: rule.priority.number(),
        cookie: rule.cookie.to_string(),
        actions: format_actions(&rule.instructions, names),
    }
}

/// Describes a meter.
fn explain_meter(meter: &Meter) -> String {
    // The text of a meter has one line for each band; a trace has all bands in one line.
    format_meter(meter.id, &meter.config).replace("=\n", "=").replace('\n', " ")
}

/// Returns the name of a bridge.
pub(crate) fn bridge_name(bridges: &BridgeRegistry, id: BridgeId) -> String {
    bridges.by_id(id).map(|own| own.settings.name.clone()).unwrap_or_default()
}

/// Returns the consulted bits of a traversal, without the bridge,
/// which is not a match field.
fn without_bridge(traversal: &Traversal) -> FlowMask {
    let mut mask = FlowMask::from(&traversal.mask);
    mask.words_mut()[usize::from(shunt_flow::layout::word::BRIDGE)] = 0;
    if traversal.continuation.is_none() {
        // The entry of a packet that was not recirculated needs no `recirc_id`.
        mask.remove_bits(FieldId::RecircId, u128::MAX);
        if traversal.next.is_some() {
            // Registers and metadata are constants within a sub-traversal.
            mask.words_mut()[..shunt_flow::layout::HEADER_START].fill(0);
        }
    }
    mask
}

/// Returns the consulted bits of a packet as the text of a match.
pub(crate) fn describe(key: &FlowKey, mut mask: FlowMask, names: &BridgeNames) -> String {
    if mask.field(FieldId::NwFrag) & !key.field(FieldId::NwFrag) & ANY_FRAGMENT != 0 {
        // The text of a match has one word for both bits: a packet that is no fragment is also no
        // later fragment.
        mask.add_bits(FieldId::NwFrag, u128::MAX);
    }
    format_match(&Match::new(key, &mask), names)
}

/// Bit of `nw_frag` that every fragment has.
const ANY_FRAGMENT: u128 = 1;
