//! The fate of one packet, explained: which rules decided, under which mask, with what result.
//!
//! Where a translation is cut, the trace goes on with the packet as it is parsed again there; a packet
//! of which no frame is given goes on both ways where its length decides.

use std::collections::VecDeque;

use serde::Serialize;
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    extract::VlanLimit,
    text::{MatchError, PortNames, format_key, format_match, parse_match},
};
use shunt_pipeline::{
    BridgeId, GroupHit, Learning, Meter, Rule, TableSelector, Traversal, Visit,
    text::{format_actions, format_meter},
};

use crate::{
    SwitchError,
    bridges::Bridges,
    control::Control,
    names::BridgeNames,
    trace_actions::{Actions, Resumed},
    trace_notes::{missing_ingress, missing_ports},
    trace_pieces::TraceSubTraversals,
    traced::TracedPacket,
};

/// A packet's way, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// Why the packet was parsed again, and where it goes on; `None`: it came in.
    pub recirculation: Option<TraceRecirculation>,
    /// The packet's fields at ingress, or as it was parsed again.
    pub flow: String,
    /// What is odd about the packet.
    pub warnings: Vec<String>,
    /// The version of the tables that decided.
    pub version: u64,
    /// Lookups, in order.
    pub visits: Vec<TraceVisit>,
    /// Groups that chose buckets, in order.
    pub groups: Vec<TraceGroup>,
    /// Meters that the packet has to pass, in order, as `ovs-ofctl dump-meters` prints them.
    pub meters: Vec<String>,
    /// What the packet would teach the switch: rules to add, and where MAC addresses are.
    pub learnings: Vec<String>,
    /// The mask under which every packet fares alike, as a match.
    pub megaflow: String,
    /// How a chain of stages keeps its way, where that is what knows packets.
    pub pieces: Option<TraceSubTraversals>,
    /// How the NIC keeps its way that it comes in by, if it does.
    pub nic_pieces: Option<TraceSubTraversals>,
    /// What happens to the packet; empty: it is dropped.
    pub actions: Vec<String>,
    /// Why the switch itself dropped it, if it did.
    pub error: Option<String>,
    /// How it goes on, each time that it is parsed again; only in the trace of a packet that came in.
    pub resumed: Vec<Self>,
}

/// A packet that is parsed again.
#[derive(Clone, Debug, Serialize)]
pub struct TraceRecirculation {
    /// The number behind `recirc` in the actions before.
    pub id: u32,
    /// Why it is parsed again.
    pub why: String,
}

/// A group that chose buckets.
#[derive(Clone, Debug, Serialize)]
pub struct TraceGroup {
    /// The bridge.
    pub bridge: String,
    /// The group.
    pub group: u32,
    /// The bucket that it chose; `None`: all of them.
    pub bucket: Option<u32>,
    /// What is odd about it.
    pub notes: Vec<String>,
}

/// One lookup.
#[derive(Clone, Debug, Serialize)]
pub struct TraceVisit {
    /// The bridge.
    pub bridge: String,
    /// The table.
    pub table: u8,
    /// Conjunctions that the packet met on the way to the rule, in the order in which they were
    /// tried; all but the last came to nothing.
    pub conjunctions: Vec<TraceConjunction>,
    /// The rule that matched; `None`: a table miss.
    pub rule: Option<TraceRule>,
    /// The bits of the packet, as it entered this table, that the lookup and the actions consulted.
    pub consulted: String,
    /// What is odd about the rule.
    pub notes: Vec<String>,
}

/// A conjunction that a packet met.
#[derive(Clone, Debug, Serialize)]
pub struct TraceConjunction {
    /// The `conj_id` that the packet was looked up with.
    pub conj_id: u128,
    /// The rules that are its clauses for this packet.
    pub clauses: Vec<TraceRule>,
}

/// The rule of a lookup.
#[derive(Clone, Debug, Serialize)]
pub struct TraceRule {
    /// Its match.
    #[serde(rename = "match")]
    pub matching: String,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: String,
    /// Its actions.
    pub actions: String,
}

/// Why a packet cannot be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is no such bridge.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The text is not a flow.
    #[error("{0}")]
    Flow(#[from] MatchError),
    /// The packet is to come in by a port that the bridge does not have.
    #[error("bridge {bridge} has no port {port}; there are: {known}")]
    NoSuchPort {
        /// The bridge.
        bridge: String,
        /// The port, as it was written.
        port: String,
        /// The ports that there are.
        known: String,
    },
    /// The text is not a packet.
    #[error("`{0}` is no frame: a frame has at least 14 bytes, of two hexadecimal digits each")]
    Packet(String),
    /// The tables were changed all the time while it was looked at how the packet is kept.
    #[error("the tables changed {TRIES} times while the packet was traced; trace it again")]
    Overtaken,
}

/// How often a trace that changes of the tables overtake is begun.
const TRIES: usize = 16;

/// What a trace looked at has been forgotten meanwhile.
pub(crate) struct Overtaken;

/// How often a trace goes on with packets that are parsed again.
const RESUMED_MAX: usize = 64;

impl Control {
    /// Traces a packet through a bridge: `flow` is a match as `ovs-ofctl` spells it, or a frame in
    /// hexadecimal, or both (the match then says where the frame comes in).
    pub(crate) fn trace(&self, bridge: &str, flow: &str) -> Result<Trace, TraceError> {
        let id = self.bridges.lock().find(bridge)?.id;
        let pipeline = &self.plane.pipeline;
        let names = BridgeNames::new(pipeline, id);
        let flow = read_flow(flow, &names).map_err(|error| error.of_bridge(bridge, &names))?;
        let warning = flow.in_port.and_then(|port| missing_ingress(port, &names));
        let packet = flow.packet(id, self.plane.vlan_limit);
        let tries = (0..TRIES).find_map(|_| self.trace_packet(packet.clone(), id).ok());
        let mut trace = tries.ok_or(TraceError::Overtaken)?;
        trace.warnings.extend(warning);
        Ok(trace)
    }

    fn trace_packet(&self, packet: TracedPacket, id: BridgeId) -> Result<Trace, Overtaken> {
        let pipeline = &self.plane.pipeline;
        let traversal = pipeline.translate_newest(&packet.key);
        let mut ahead = VecDeque::new();
        let pieces = self.explain_pieces((&packet.key, None), &traversal)?;
        let nic_pieces = self.explain_nic_pieces(&packet.key, &traversal)?;
        let own = self.explain(&traversal, packet, id, &mut ahead);
        let mut trace = Trace { pieces, nic_pieces, ..own };
        while trace.resumed.len() < RESUMED_MAX
            && let Some(Resumed { packet, continuation, why }) = ahead.pop_front()
        {
            let packet = packet.entering(&continuation);
            let bridge = u16::try_from(packet.key.bridge()).map_or(id, BridgeId::new);
            let traversal = pipeline.resume_newest(&packet.key, &continuation);
            let recirculation = Some(TraceRecirculation { id: continuation.id(), why });
            let pieces = self.explain_pieces((&packet.key, Some(&continuation)), &traversal)?;
            let resumed = self.explain(&traversal, packet, bridge, &mut ahead);
            trace.resumed.push(Trace { recirculation, pieces, ..resumed });
        }
        Ok(trace)
    }

    /// Describes a traversal by itself, without what comes behind its cuts.
    pub(crate) fn explain_alone(&self, traversal: &Traversal, id: BridgeId) -> Trace {
        let packet = TracedPacket::new((&traversal.key).into(), None, self.plane.vlan_limit);
        self.explain(traversal, packet, id, &mut VecDeque::new())
    }

    fn explain(
        &self,
        traversal: &Traversal,
        packet: TracedPacket,
        id: BridgeId,
        ahead: &mut VecDeque<Resumed>,
    ) -> Trace {
        let names = BridgeNames::new(&self.plane.pipeline, id);
        let bridges = self.bridges.lock();
        let mut actions = Actions::new(&bridges, ahead);
        let described = actions.describe(&traversal.actions, packet);
        let meters = actions.meters();
        Trace {
            recirculation: None,
            flow: format_key(&(&traversal.key).into(), &names),
            warnings: Vec::new(),
            version: traversal.version.number(),
            visits: self.explain_visits(&bridges, traversal),
            groups: self.explain_groups(&bridges, traversal),
            meters: meters.iter().map(|meter| explain_meter(meter)).collect(),
            learnings: traversal.learnings.iter().map(|own| self.explain_learning(own)).collect(),
            megaflow: describe(&(&traversal.key).into(), without_bridge(traversal), &names),
            pieces: None,
            nic_pieces: None,
            actions: described,
            error: traversal.error.map(|error| error.to_string()),
            resumed: Vec::new(),
        }
    }

    /// The visits that end a lookup, each with the conjunctions that were met before it.
    fn explain_visits(&self, bridges: &Bridges, traversal: &Traversal) -> Vec<TraceVisit> {
        let (mut visits, mut conjunctions) = (Vec::new(), Vec::new());
        let mut all = traversal.visits.iter().peekable();
        while let Some(visit) = all.next() {
            if visit.clauses.is_empty() {
                let conjunctions = std::mem::take(&mut conjunctions);
                visits.push(self.explain_visit(bridges, visit, conjunctions));
                continue;
            }
            let names = BridgeNames::new(&self.plane.pipeline, visit.bridge);
            let second = all.peek().map(|second| second.key.field(FieldId::ConjId));
            conjunctions.push(TraceConjunction {
                conj_id: second.unwrap_or_default(),
                clauses: visit.clauses.iter().map(|rule| explain_rule(rule, &names)).collect(),
            });
            // A second lookup that finds nothing is not the end of it.
            all.next_if(|second| second.rule.is_none());
        }
        visits
    }

    fn explain_visit(
        &self,
        bridges: &Bridges,
        visit: &Visit,
        conjunctions: Vec<TraceConjunction>,
    ) -> TraceVisit {
        let names = BridgeNames::new(&self.plane.pipeline, visit.bridge);
        TraceVisit {
            bridge: bridge_name(bridges, visit.bridge),
            table: visit.table.number(),
            conjunctions,
            rule: visit.rule.as_ref().map(|rule| explain_rule(rule, &names)),
            consulted: describe(&(&visit.key).into(), (&visit.mask).into(), &names),
            notes: visit.rule.as_ref().map_or_else(Vec::new, |rule| {
                missing_ports(
                    rule.instructions.apply.iter().chain(&rule.instructions.write),
                    &names,
                )
            }),
        }
    }

    fn explain_groups(&self, bridges: &Bridges, traversal: &Traversal) -> Vec<TraceGroup> {
        let explain = |hit: &GroupHit| {
            let names = BridgeNames::new(&self.plane.pipeline, hit.group.bridge);
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

    fn explain_learning(&self, learning: &Learning) -> String {
        let names = |bridge| BridgeNames::new(&self.plane.pipeline, bridge);
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
            Learning::Mac(sighting) => {
                let mac = sighting.mac.map(|byte| format!("{byte:02x}")).join(":");
                let name = names(sighting.bridge).name(sighting.port);
                let port = name.unwrap_or_else(|| sighting.port.to_string());
                format!("{mac} is at port {port} in VLAN {}", sighting.vlan)
            }
        }
    }
}

impl Trace {
    /// The trace as `ovs-appctl ofproto/trace` shows one.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = self.own_text();
        for resumed in &self.resumed {
            let line = "=".repeat(72);
            let title = resumed.recirculation.as_ref();
            let title = title.map(|own| format!("recirc({:#x}) - {}", own.id, own.why));
            text += &format!("\n{line}\n{}\n{line}\n", title.unwrap_or_default());
            text += &resumed.own_text();
        }
        text
    }

    fn own_text(&self) -> String {
        let mut text = format!("Flow: {}\n", self.flow);
        text.extend(self.warnings.iter().map(|warning| format!("Warning: {warning}\n")));
        let mut bridge = "";
        for visit in &self.visits {
            if visit.bridge != bridge {
                bridge = &visit.bridge;
                let title = format!("bridge(\"{bridge}\")");
                text += &format!("\n{title}\n{}\n", "-".repeat(title.len()));
            }
            text += &visit.to_text();
        }
        text += "\n";
        for TraceGroup { bridge, group, bucket, notes } in &self.groups {
            let bucket = bucket.map_or("all buckets".to_owned(), |own| format!("bucket {own}"));
            text += &format!("Group {group} of {bridge}: {bucket}\n");
            text += &noted(notes);
        }
        text.extend(self.meters.iter().map(|meter| format!("Passes: {meter}\n")));
        text.extend(self.learnings.iter().map(|learning| format!("Learns: {learning}\n")));
        let actions = if self.actions.is_empty() { "drop".into() } else { self.actions.join(",") };
        text += &format!("Megaflow: {}\n", self.megaflow);
        for (title, pieces) in [("Pieces", &self.pieces), ("Pieces of the NIC", &self.nic_pieces)] {
            text.extend(pieces.as_ref().map(|pieces| pieces.to_text(title)));
        }
        text += &format!("Datapath actions: {actions}\n");
        if let Some(error) = &self.error {
            text += &format!("Dropped: {error}\n");
        }
        text
    }
}

impl TraceVisit {
    fn to_text(&self) -> String {
        let mut text = format!("{:>2}. ", self.table);
        for TraceConjunction { conj_id, clauses } in &self.conjunctions {
            text += &format!("conj_id {conj_id} is met by\n");
            text.extend(clauses.iter().map(|clause| format!("        {}\n", clause.to_text())));
            text += "    ";
        }
        text += &match &self.rule {
            Some(rule) => format!("{}\n    {}\n", rule.to_text(), rule.actions),
            None => "No match.\n    drop\n".to_owned(),
        };
        text + &noted(&self.notes)
    }
}

/// Notes, as lines below what they are about.
fn noted(notes: &[String]) -> String {
    notes.iter().map(|note| format!("     >> {note}\n")).collect()
}

impl TraceError {
    /// This error, with the ports of the bridge where a name is none of them.
    fn of_bridge(self, bridge: &str, names: &BridgeNames) -> Self {
        match self {
            Self::Flow(MatchError::BadValue { name, text, .. })
                if FieldId::InPort.info().names.contains(&name) =>
            {
                Self::NoSuchPort { bridge: bridge.to_owned(), port: text, known: names.list() }
            }
            error => error,
        }
    }
}

impl TraceRule {
    fn to_text(&self) -> String {
        let Self { matching, priority, cookie, .. } = self;
        let comma = if matching.is_empty() { "" } else { ", " };
        format!("{matching}{comma}priority {priority}, cookie {cookie}")
    }
}

fn explain_rule(rule: &Rule, names: &BridgeNames) -> TraceRule {
    TraceRule {
        matching: format_match(&rule.matching, names),
        priority: rule.priority.number(),
        cookie: rule.cookie.to_string(),
        actions: format_actions(&rule.instructions, names),
    }
}

fn explain_meter(meter: &Meter) -> String {
    // A dump has a line for each band.
    format_meter(meter.id, &meter.config).replace("=\n", "=").replace('\n', " ")
}

pub(crate) fn bridge_name(bridges: &Bridges, id: BridgeId) -> String {
    bridges.by_id(id).map(|own| own.settings.name.clone()).unwrap_or_default()
}

/// A packet as a user writes it.
struct WrittenFlow {
    key: FlowKey,
    /// The port by which it comes in, if one is named.
    in_port: Option<PortNo>,
    frame: Option<Vec<u8>>,
}

impl WrittenFlow {
    /// The packet, in a bridge.
    fn packet(mut self, id: BridgeId, limit: VlanLimit) -> TracedPacket {
        self.key.set_bridge(u64::from(id.number()));
        TracedPacket::new(self.key, self.frame, limit)
    }
}

fn read_flow(text: &str, names: &dyn PortNames) -> Result<WrittenFlow, TraceError> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    // No match is written in hexadecimal digits alone.
    let is_frame = |word: &&str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let frame = words.pop_if(|word| is_frame(&&**word)).map(read_frame).transpose()?;
    let matching = parse_match(&words.join(","), names)?;
    let is_named = FlowMask::from(matching.mask()).field(FieldId::InPort) != 0;
    let in_port = is_named.then(|| matching.key().in_port());
    let mut key = matching.key();
    if frame.is_some() {
        key = FlowKey::ZERO;
        key.set_in_port(matching.key().in_port());
    }
    Ok(WrittenFlow { key, in_port, frame })
}

/// The bytes of a frame in hexadecimal.
fn read_frame(word: &str) -> Result<Vec<u8>, TraceError> {
    let bytes =
        (0..word.len()).step_by(2).map(|at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok());
    let bytes = bytes.collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() >= FRAME_LEN_MIN);
    bytes.ok_or_else(|| TraceError::Packet(word.to_owned()))
}

/// Bytes of a frame at least: its Ethernet header.
const FRAME_LEN_MIN: usize = 14;

/// What a traversal consulted, less what no field names.
fn without_bridge(traversal: &Traversal) -> FlowMask {
    let mut mask = FlowMask::from(&traversal.mask);
    mask.words_mut()[usize::from(shunt_flow::layout::word::BRIDGE)] = 0;
    if traversal.continuation.is_none() {
        // That a packet was not parsed again goes without saying.
        mask.remove_bits(FieldId::RecircId, u128::MAX);
        if traversal.next.is_some() {
            // As do registers and the like, of which all are constants of a piece.
            mask.words_mut()[..shunt_flow::layout::HEADER_START].fill(0);
        }
    }
    mask
}

/// The bits of a packet that were consulted, as a match.
pub(crate) fn describe(key: &FlowKey, mut mask: FlowMask, names: &BridgeNames) -> String {
    if mask.field(FieldId::NwFrag) & !key.field(FieldId::NwFrag) & ANY_FRAGMENT != 0 {
        // What is no fragment is no later one: the text has a word for the two bits together.
        mask.add_bits(FieldId::NwFrag, u128::MAX);
    }
    format_match(&Match::new(key, &mask), names)
}

/// The bit of `nw_frag` that fragments have.
const ANY_FRAGMENT: u128 = 1;
