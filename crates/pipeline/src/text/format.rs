//! Rules as `ovs-ofctl dump-flows` prints them.

use std::fmt::Write;

use shunt_classifier::Priority;
use shunt_flow::text::{PortNames, format_match, hex};

use super::action::{format_each, format_list};
use crate::{
    tables::rule::{FlowFlags, Instructions, Rule},
    time::Time,
};

/// Options for printing a rule.
#[derive(Clone, Copy)]
pub struct RuleFormat<'a> {
    /// Names of ports; [`NoPortNames`](shunt_flow::text::NoPortNames) prints numbers.
    pub ports: &'a dyn PortNames,
    /// The time at which the age of the rule is computed.
    /// `None` omits age and counters (`--no-stats`).
    pub stats_at: Option<Time>,
}

impl std::fmt::Debug for RuleFormat<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleFormat").field("stats_at", &self.stats_at).finish_non_exhaustive()
    }
}

/// Prints a rule as `ovs-ofctl dump-flows` does.
#[must_use]
pub fn format_rule(rule: &Rule, format: RuleFormat<'_>) -> String {
    let mut items = Vec::new();
    let stats = format.stats_at;
    if stats.is_some() || rule.cookie.number() != 0 {
        items.push(format!("cookie=0x{:x}", rule.cookie.number()));
    }
    if let Some(now) = stats {
        items.push(format!("duration={}", duration(now.since(rule.created))));
    }
    if stats.is_some() || rule.table.number() != 0 {
        items.push(format!("table={}", rule.table));
    }
    if stats.is_some() {
        let totals = rule.stats.totals();
        items.push(format!("n_packets={}, n_bytes={}", totals.packets, totals.bytes));
    }
    if !rule.idle_timeout_now().is_zero() {
        items.push(format!("idle_timeout={}", rule.idle_timeout_now().as_secs()));
    }
    if !rule.hard_timeout_now().is_zero() {
        items.push(format!("hard_timeout={}", rule.hard_timeout_now().as_secs()));
    }
    let mut text = items.iter().fold(String::new(), |text, item| text + item + ", ");
    push_flags(&mut text, rule.flags);
    if rule.importance != 0 {
        let _ = write!(text, "importance={}, ", rule.importance);
    }
    text += &format_priority_and_match(rule, format.ports);
    text + "actions=" + &format_actions(&rule.instructions, format.ports)
}

/// Prints the text after `actions=`.
#[must_use]
pub fn format_actions(instructions: &Instructions, ports: &dyn PortNames) -> String {
    let mut items = Vec::new();
    items.extend(instructions.meter.map(|meter| format!("meter:{meter}")));
    items.extend(format_each(&instructions.apply, ports));
    if instructions.clear {
        items.push("clear_actions".to_owned());
    }
    if !instructions.write.is_empty() {
        items.push(format!("write_actions({})", format_list(&instructions.write, ports)));
    }
    match instructions.metadata {
        Some((value, u64::MAX)) => items.push(format!("write_metadata:{}", hex(value.into()))),
        Some((value, mask)) => {
            items.push(format!("write_metadata:{}/{}", hex(value.into()), hex(mask.into())));
        }
        None => {}
    }
    if let Some(table) = instructions.goto {
        items.push(format!("goto_table:{table}"));
    }
    if items.is_empty() { "drop".to_owned() } else { items.join(",") }
}

/// Prints priority and match, followed by a space unless both are omitted.
fn format_priority_and_match(rule: &Rule, ports: &dyn PortNames) -> String {
    let priority =
        (rule.priority != Priority::DEFAULT).then(|| format!("priority={}", rule.priority));
    let matching = Some(format_match(&rule.matching, ports)).filter(|text| !text.is_empty());
    let items: Vec<String> = priority.into_iter().chain(matching).collect();
    if items.is_empty() { String::new() } else { items.join(",") + " " }
}

/// Appends the flags of a rule.
fn push_flags(text: &mut String, flags: FlowFlags) {
    let names = [
        (flags.send_flow_removed, "send_flow_rem "),
        (flags.check_overlap, "check_overlap "),
        (flags.reset_counts, "reset_counts "),
        (flags.no_packet_counts, "no_packet_counts "),
        (flags.no_byte_counts, "no_byte_counts "),
    ];
    text.extend(names.into_iter().filter(|(set, _)| *set).map(|(_, name)| name));
}

/// Prints a duration in seconds, with three decimals.
/// A duration that is not a multiple of a millisecond has nine decimals.
fn duration(duration: std::time::Duration) -> String {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    match nanoseconds {
        0 => format!("{seconds}s"),
        _ if nanoseconds % 1_000_000 == 0 => format!("{seconds}.{:03}s", nanoseconds / 1_000_000),
        _ => format!("{seconds}.{nanoseconds:09}s"),
    }
}
