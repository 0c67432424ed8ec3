//! The result of a trace: plain values for programs (as JSON), and the text for operators.

use serde::Serialize;

use crate::trace::sub_traversals::TraceSubTraversals;

/// The trace of a packet.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// Recirculation that led to this trace; `None` for the ingress packet.
    pub recirculation: Option<TraceRecirculation>,
    /// Fields of the packet at the ingress, or after the recirculation.
    pub flow: String,
    /// Warnings about the packet.
    pub warnings: Vec<String>,
    /// Decisions before the first lookup, such as those of the ingress port.
    pub decisions: Vec<String>,
    /// Version of the tables that was traced.
    pub version: u64,
    /// Table lookups, in order.
    pub visits: Vec<TraceVisit>,
    /// Groups that chose buckets, in order.
    pub groups: Vec<TraceGroup>,
    /// Meters of the packet, in order, in the syntax of `ovs-ofctl dump-meters`.
    pub meters: Vec<String>,
    /// Rules and MAC addresses that the switch would learn from the packet.
    pub learnings: Vec<String>,
    /// Fields of the packet after all rules, or `unchanged`, as in Open vSwitch.
    ///
    /// `None` for a cache entry.
    pub final_flow: Option<String>,
    /// Megaflow: the match of all packets that take the same traversal.
    pub megaflow: String,
    /// Sub-traversals of the packet, if the packet threads have Gigaflow caches.
    pub sub_traversals: Option<TraceSubTraversals>,
    /// Sub-traversals of the packet in the NIC, if the NIC has the ingress port.
    pub nic_sub_traversals: Option<TraceSubTraversals>,
    /// Datapath actions; empty if the packet is dropped.
    pub actions: Vec<String>,
    /// Outputs that their port would drop, for example because of its MTU.
    pub undelivered: Vec<String>,
    /// Drop reason, as `shuntctl drops` counts it, if the packet is dropped.
    pub drop_reason: Option<&'static str>,
    /// Error that ended the translation, if any.
    pub error: Option<String>,
    /// Traces after each recirculation; empty in the traces themselves.
    pub resumed: Vec<Self>,
}

/// A recirculation of the traced packet.
#[derive(Clone, Debug, Serialize)]
pub struct TraceRecirculation {
    /// Recirculation id, as in `recirc` of the previous actions.
    pub id: u32,
    /// Reason for the recirculation.
    pub reason: String,
}

/// A group that chose buckets.
#[derive(Clone, Debug, Serialize)]
pub struct TraceGroup {
    /// Name of the bridge of the group.
    pub bridge: String,
    /// OpenFlow number of the group.
    pub group: u32,
    /// Id of the chosen bucket; `None`: all buckets.
    pub bucket: Option<u32>,
    /// Warnings about the choice of the group.
    pub notes: Vec<String>,
}

/// A lookup of the traced packet in a table.
#[derive(Clone, Debug, Serialize)]
pub struct TraceVisit {
    /// Name of the bridge.
    pub bridge: String,
    /// Number of the table that was looked up.
    pub table: u8,
    /// Conjunctions with all clauses matched, in the order in which they were tried.
    ///
    /// Only the last conjunction can lead to the rule that matched.
    pub conjunctions: Vec<TraceConjunction>,
    /// Rule that matched; `None` for a table miss.
    pub rule: Option<TraceRule>,
    /// Packet bits that the lookup and the actions of its rule consulted.
    ///
    /// The bits have the values that the packet had at the lookup.
    pub consulted: String,
    /// Warnings about the rule that matched.
    pub notes: Vec<String>,
    /// Decisions of the actions that the rule does not show, such as those of `NORMAL`.
    pub decisions: Vec<String>,
}

/// A conjunction of which all clauses matched the packet.
#[derive(Clone, Debug, Serialize)]
pub struct TraceConjunction {
    /// Value of `conj_id` in the second lookup of the table.
    pub conj_id: u128,
    /// The rule that matched the packet, for each clause.
    pub clauses: Vec<TraceRule>,
}

/// A rule of a table.
#[derive(Clone, Debug, Serialize)]
pub struct TraceRule {
    /// Match of the rule.
    #[serde(rename = "match")]
    pub matching: String,
    /// Priority of the rule.
    pub priority: u16,
    /// Cookie of the rule.
    pub cookie: String,
    /// Actions of the rule.
    pub actions: String,
}

impl Trace {
    /// Returns the trace in the format of `ovs-appctl ofproto/trace`.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = self.own_text();
        for resumed in &self.resumed {
            let line = "=".repeat(72);
            let title = resumed.recirculation.as_ref();
            let title = title.map(|own| format!("recirc({:#x}) - {}", own.id, own.reason));
            text += &format!("\n{line}\n{}\n{line}\n", title.unwrap_or_default());
            text += &resumed.own_text();
        }
        text
    }

    /// Returns the text of the trace, without its continuations.
    fn own_text(&self) -> String {
        let mut text = format!("Flow: {}\n", self.flow);
        text.extend(self.warnings.iter().map(|warning| format!("Warning: {warning}\n")));
        text += &lines_of_decisions(&self.decisions);
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
            text += &lines_of_notes(notes);
        }
        text.extend(self.meters.iter().map(|meter| format!("Meter: {meter}\n")));
        text.extend(self.learnings.iter().map(|learning| format!("Learns: {learning}\n")));
        let actions = if self.actions.is_empty() { "drop".into() } else { self.actions.join(",") };
        let megaflow = if self.megaflow.is_empty() { "any packet" } else { &self.megaflow };
        text.extend(self.final_flow.as_ref().map(|flow| format!("Final flow: {flow}\n")));
        text += &format!("Megaflow: {megaflow}\n");
        let has = |word: &str| self.actions.iter().any(|action| action.contains(word));
        for (word, carrier) in
            [("userspace(controller(", "a packet-in"), ("recirc(", "a recirculation")]
        {
            if has(word) {
                text +=
                    &format!("     ({carrier} keeps {KEPT_STATE}, so the megaflow matches them)\n");
            }
        }
        for (title, own) in [
            ("Sub-traversals", &self.sub_traversals),
            ("Sub-traversals in the NIC", &self.nic_sub_traversals),
        ] {
            text.extend(own.as_ref().map(|own| own.to_text(title)));
        }
        text += &format!("Datapath actions: {actions}\n");
        text += &lines_of_notes(&self.undelivered);
        text.extend(self.drop_reason.map(|reason| format!("Drop reason: {reason}\n")));
        if let Some(error) = &self.error {
            text += &format!("Dropped: {error}\n");
        }
        text
    }
}

impl TraceVisit {
    /// Returns the lines of a lookup: its rule, actions, decisions and notes.
    fn to_text(&self) -> String {
        let mut text = format!("{:>2}. ", self.table);
        for TraceConjunction { conj_id, clauses } in &self.conjunctions {
            text += &format!("conj_id {conj_id} matches these clauses:\n");
            text.extend(clauses.iter().map(|clause| format!("        {}\n", clause.to_text())));
            text += "    ";
        }
        text += &match &self.rule {
            Some(rule) => format!("{}\n    {}\n", rule.to_text(), rule.actions),
            None => "No match.\n    drop\n".to_owned(),
        };
        text + &lines_of_decisions(&self.decisions) + &lines_of_notes(&self.notes)
    }
}

/// Parts of the packet that packet-ins and recirculations keep,
/// so megaflows depend on them.
const KEPT_STATE: &str = "registers, metadata and tunnel fields of the packet";

/// Returns decisions as text, one line each.
fn lines_of_decisions(decisions: &[String]) -> String {
    decisions.iter().map(|decision| format!("     -> {decision}\n")).collect()
}

/// Returns warnings as text, one line each.
fn lines_of_notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("     >> {note}\n")).collect()
}

impl TraceRule {
    /// Returns the match, priority and cookie of the rule on one line.
    fn to_text(&self) -> String {
        let Self { matching, priority, cookie, .. } = self;
        let comma = if matching.is_empty() { "" } else { ", " };
        format!("{matching}{comma}priority {priority}, cookie {cookie}")
    }
}
