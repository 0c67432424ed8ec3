//! The fate of one packet, explained: which rules decided, under which mask, with what result.

use serde::Serialize;
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    extract::{VlanLimit, extract},
    field::Access,
    text::{PortNames, format_key, format_match, format_value, parse_match},
};
use shunt_pipeline::{
    BridgeId, DatapathAction, DatapathPort, Traversal, Visit, text::format_actions,
};

use crate::{SwitchError, bridges::Bridges, control::Control, names::BridgeNames};

/// A packet's way, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// The packet's fields at ingress.
    pub flow: String,
    /// The version of the tables that decided.
    pub version: u64,
    /// Lookups, in order.
    pub visits: Vec<TraceVisit>,
    /// The mask under which every packet fares alike, as a match.
    pub megaflow: String,
    /// What happens to the packet; empty: it is dropped.
    pub actions: Vec<String>,
    /// Why the switch itself dropped it, if it did.
    pub error: Option<String>,
}

/// One lookup.
#[derive(Clone, Debug, Serialize)]
pub struct TraceVisit {
    /// The bridge.
    pub bridge: String,
    /// The table.
    pub table: u8,
    /// The rule that matched; `None`: a table miss.
    pub rule: Option<TraceRule>,
    /// The bits of the packet, as it entered this table, that the lookup and the actions consulted.
    pub consulted: String,
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
    Flow(#[from] shunt_flow::text::MatchError),
    /// The text is not a packet.
    #[error("a packet is an even number of hexadecimal digits, at least 28")]
    Packet,
}

impl Control {
    /// Traces a packet through a bridge: `flow` is a match as `ovs-ofctl` spells it, or a frame in
    /// hexadecimal, or both (the match then says where the frame comes in).
    pub(crate) fn trace(&self, bridge: &str, flow: &str) -> Result<Trace, TraceError> {
        let id = self.bridges.lock().find(bridge)?.id;
        let names = BridgeNames::new(&self.plane.pipeline, id);
        let key = read_flow(flow, &names, id, self.plane.vlan_limit)?;
        let traversal = self.plane.pipeline.translate_newest(&key);
        Ok(self.explain(&traversal, id))
    }

    fn explain(&self, traversal: &Traversal, id: BridgeId) -> Trace {
        let names = BridgeNames::new(&self.plane.pipeline, id);
        let bridges = self.bridges.lock();
        let visits = traversal.lookups().map(|visit| self.explain_visit(&bridges, visit));
        let actions = traversal.actions.iter().map(|action| explain_action(&bridges, action));
        Trace {
            flow: format_key(&traversal.key, &names),
            version: traversal.version.number(),
            visits: visits.collect(),
            megaflow: format_match(&Match::new(&traversal.key, &without_bridge(traversal)), &names),
            actions: actions.collect(),
            error: traversal.error.map(|error| error.to_string()),
        }
    }

    fn explain_visit(&self, bridges: &Bridges, visit: &Visit) -> TraceVisit {
        let names = BridgeNames::new(&self.plane.pipeline, visit.bridge);
        let bridge = bridges.by_id(visit.bridge).map(|own| own.settings.name.clone());
        let rule = visit.rule.as_ref().map(|rule| TraceRule {
            matching: format_match(&rule.matching, &names),
            priority: rule.priority.number(),
            cookie: rule.cookie.to_string(),
            actions: format_actions(&rule.instructions, &names),
        });
        TraceVisit {
            bridge: bridge.unwrap_or_default(),
            table: visit.table.number(),
            rule,
            consulted: format_match(&Match::new(&visit.key, &visit.mask), &names),
        }
    }
}

impl Trace {
    /// The trace as `ovs-appctl ofproto/trace` shows one.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("Flow: {}\n", self.flow);
        let mut bridge = "";
        for visit in &self.visits {
            if visit.bridge != bridge {
                bridge = &visit.bridge;
                let title = format!("bridge(\"{bridge}\")");
                text += &format!("\n{title}\n{}\n", "-".repeat(title.len()));
            }
            let table = visit.table;
            text += &match &visit.rule {
                Some(TraceRule { matching, priority, cookie, actions }) => {
                    let comma = if matching.is_empty() { "" } else { ", " };
                    format!(
                        "{table:>2}. {matching}{comma}priority {priority}, cookie {cookie}\n    {actions}\n"
                    )
                }
                None => format!("{table:>2}. No match.\n    drop\n"),
            };
        }
        let actions = if self.actions.is_empty() { "drop".into() } else { self.actions.join(",") };
        text += &format!("\nMegaflow: {}\nDatapath actions: {actions}\n", self.megaflow);
        if let Some(error) = &self.error {
            text += &format!("Dropped: {error}\n");
        }
        text
    }
}

fn read_flow(
    text: &str,
    names: &dyn PortNames,
    id: BridgeId,
    limit: VlanLimit,
) -> Result<FlowKey, TraceError> {
    let mut key = FlowKey::ZERO;
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let frame = words.last().and_then(|word| frame_of(word));
    if frame.is_some() {
        words.pop();
    }
    let matching = parse_match(&words.join(","), names)?;
    match frame {
        Some(frame) if frame.len() < 14 => return Err(TraceError::Packet),
        Some(frame) => {
            extract(&frame, limit, &mut key);
            key.set_in_port(matching.key().in_port());
        }
        None => key = matching.key(),
    }
    key.set_bridge(u64::from(id.number()));
    Ok(key)
}

/// A word of hexadecimal digits that is long enough to be nothing but a frame.
fn frame_of(word: &str) -> Option<Vec<u8>> {
    let digits = word.len() >= 28 && word.len().is_multiple_of(2);
    let bytes =
        (0..word.len()).step_by(2).map(|at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>().filter(|_| digits)
}

/// What a traversal consulted, less what no field names.
fn without_bridge(traversal: &Traversal) -> FlowMask {
    let mut mask = traversal.mask.clone();
    mask.words_mut()[usize::from(shunt_flow::layout::word::BRIDGE)] = 0;
    if traversal.continuation.is_none() {
        // That a packet was not parsed again goes without saying.
        mask.remove_bits(FieldId::RecircId, u128::MAX);
    }
    mask
}

fn explain_action(bridges: &Bridges, action: &DatapathAction) -> String {
    let cut = |len: &Option<u32>| len.map_or_else(String::new, |len| format!("trunc({len}),"));
    match action {
        DatapathAction::SetHeader(set) => {
            format!("set({})", explain_set(set))
        }
        DatapathAction::PushVlan { tpid, tci } => {
            let (vid, pcp) = (tci & 0xfff, tci >> 13);
            format!("push_vlan(tpid={tpid:#06x},vid={vid},pcp={pcp})")
        }
        DatapathAction::PopVlan => "pop_vlan".to_owned(),
        DatapathAction::Output { port, unless_ingress, max_len } => {
            let name = port_name(bridges, *port);
            let unless = if *unless_ingress { "" } else { "!" };
            format!("{}{name}{unless}", cut(max_len))
        }
        DatapathAction::Meter(meter) => format!("meter({})", meter.id),
        DatapathAction::Copy(inner) => {
            let inner = inner.iter().map(|action| explain_action(bridges, action));
            format!("clone({})", inner.collect::<Vec<_>>().join(","))
        }
        DatapathAction::OutputIngress { max_len } => format!("{}in_port", cut(max_len)),
        DatapathAction::Punt(punt) => {
            format!("userspace(controller(reason={:?},max_len={}))", punt.reason, punt.max_len)
        }
        DatapathAction::PushMpls { lse, ethertype } => {
            let (label, tc, bos, ttl) = (lse >> 12, lse >> 9 & 7, lse >> 8 & 1, lse & 0xff);
            format!(
                "push_mpls(label={label},tc={tc},ttl={ttl},bos={bos},eth_type={ethertype:#06x})"
            )
        }
        DatapathAction::PopMpls { ethertype } => format!("pop_mpls(eth_type={ethertype:#06x})"),
        DatapathAction::Recirculate(continuation) => format!("recirc({:#x})", continuation.id()),
        DatapathAction::CheckLength { length, larger, other } => {
            let (larger, other) = (larger.id(), other.id());
            format!("check_pkt_len(size={length},gt(recirc({larger:#x})),le(recirc({other:#x})))")
        }
    }
}

/// The fields that a header change writes, whole where no narrower field says it.
fn explain_set(set: &Match) -> String {
    let (key, mut rest) = (set.key(), FlowMask::from(set.mask()));
    let mut parts = Vec::new();
    for field in FieldId::all() {
        let bits = rest.field(field);
        if bits != 0 && field.info().access == Access::ReadWrite {
            rest.remove_bits(field, bits);
            let value = format_value(field, key.field(field) & bits, bits);
            parts.push(format!("{}={value}", field.name()));
        }
    }
    parts.join(",")
}

fn port_name(bridges: &Bridges, datapath: DatapathPort) -> String {
    let ports = bridges.iter().flat_map(|bridge| bridge.ports.values());
    let mut named = ports.filter(|port| port.datapath == Some(datapath));
    named.next().map_or_else(|| datapath.to_string(), |port| port.settings.name.clone())
}
