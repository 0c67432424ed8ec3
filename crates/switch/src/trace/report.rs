//! The result of a trace: plain values that programs read as JSON, and the text that people read.

use serde::Serialize;

use crate::trace::sub_traversals::TraceSubTraversals;

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

impl TraceRule {
    fn to_text(&self) -> String {
        let Self { matching, priority, cookie, .. } = self;
        let comma = if matching.is_empty() { "" } else { ", " };
        format!("{matching}{comma}priority {priority}, cookie {cookie}")
    }
}
