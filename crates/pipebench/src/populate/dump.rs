//! Reads the rules of a real switch from the output of `ovs-ofctl dump-flows`.
//!
//! A dump also describes a pipeline: the tables with rules, and edges given by the actions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use shunt_flow::{FieldId, FlowMask, Match, SparseMask, prerequisite, text::NoPortNames};
use shunt_pipeline::{Action, FlowMod, FlowModCommand, TableSelector, text::parse_rule};

use crate::DumpError;

/// The rules of a dump of a switch.
#[derive(Clone, Debug)]
pub struct SwitchDump {
    rules: Vec<FlowMod>,
    /// The text of each rule, without counters.
    texts: Vec<String>,
    left_out: Vec<DumpError>,
}

/// The properties of the rules of one table in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpTable {
    /// Number of the table.
    pub id: u8,
    /// Number of rules of the table.
    pub rules: usize,
    /// Number of distinct masks.
    pub masks: usize,
    /// The fields that a rule matches.
    pub fields: BTreeSet<FieldId>,
    /// The tables to which a rule continues.
    pub next: BTreeSet<u8>,
}

impl SwitchDump {
    /// Parses a dump.
    ///
    /// Skips headings, comments, and rules with unsupported features.
    ///
    /// # Errors
    ///
    /// If a line is not a rule, or no rule can be parsed. The error has the position of the line or
    /// of the first rule.
    pub fn read(text: &str) -> Result<Self, DumpError> {
        let (mut rules, mut texts, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        let mut offset = 0;
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            if !is_heading(line.trim()) {
                match read_rule(line, number, offset) {
                    Ok(rule) => {
                        rules.push(rule);
                        texts.push(without_counters(line));
                    }
                    Err(error) if error.is_foreign() => left_out.push(error),
                    Err(error) => return Err(error),
                }
            }
            offset = offset.saturating_add(line.len());
        }
        if rules.is_empty() {
            return Err(left_out.into_iter().next().unwrap_or(DumpError::Empty));
        }
        Ok(Self { rules, texts, left_out })
    }

    /// Returns the errors of the rules that were left out.
    #[must_use]
    pub fn left_out(&self) -> &[DumpError] {
        &self.left_out
    }

    /// Returns the parsed rules of the dump.
    #[must_use]
    pub fn rules(&self) -> &[FlowMod] {
        &self.rules
    }

    /// Returns the rules as text for `ovs-ofctl add-flows`, each with its table.
    pub fn lines(&self) -> impl Iterator<Item = (u8, String)> {
        let tables = self.rules.iter().map(table_of);
        tables.zip(self.texts.iter().cloned())
    }

    /// Returns text and match of the rules in the first table.
    pub fn first_table(&self) -> impl Iterator<Item = (&str, &Match)> {
        let rules = self.rules.iter().zip(&self.texts);
        rules
            .filter(|(rule, _)| table_of(rule) == 0)
            .map(|(rule, text)| (text.as_str(), &rule.matching))
    }

    /// Returns the tables in ascending order.
    #[must_use]
    pub fn tables(&self) -> Vec<DumpTable> {
        let mut by_table: BTreeMap<u8, Vec<&FlowMod>> = BTreeMap::new();
        for rule in &self.rules {
            by_table.entry(table_of(rule)).or_default().push(rule);
        }
        by_table.into_iter().map(|(id, rules)| DumpTable::of(id, &rules)).collect()
    }
}

impl DumpTable {
    /// Describes a table by its rules: the fields, masks and next tables.
    fn of(id: u8, rules: &[&FlowMod]) -> Self {
        let mut masks: Vec<&SparseMask> = rules.iter().map(|rule| rule.matching.mask()).collect();
        masks.sort_unstable_by_key(|mask| mask.iter().collect::<Vec<_>>());
        masks.dedup();
        let mut fields = BTreeSet::new();
        for rule in rules {
            let (key, mask) = (rule.matching.key(), FlowMask::from(rule.matching.mask()));
            // Fields of different protocols may share bits of the flow key.
            let is_matched_field = |field: &FieldId| {
                mask.field(*field) != 0 && prerequisite::is_met(*field, &key, &mask)
            };
            fields.extend(FieldId::all().filter(is_matched_field));
        }
        let mut next = BTreeSet::new();
        for rule in rules {
            next.extend(rule.instructions.goto.map(|table| table.number()));
            let lists = [&rule.instructions.apply, &rule.instructions.write];
            lists.into_iter().for_each(|actions| add_next(actions, id, &mut next));
        }
        Self { id, rules: rules.len(), masks: masks.len(), fields, next }
    }
}

/// Adds the tables to which actions lead; the parser limits their nesting.
fn add_next(actions: &[Action], here: u8, next: &mut BTreeSet<u8>) {
    for action in actions {
        match action {
            Action::Resubmit { table, .. } => {
                next.insert(table.map_or(here, |table| table.number()));
            }
            Action::Clone(actions) => add_next(actions, here, next),
            Action::Ct(ct) => next.extend(ct.table.map(|table| table.number())),
            _ => {}
        }
    }
}

/// Returns the table of a rule.
fn table_of(rule: &FlowMod) -> u8 {
    match rule.table {
        TableSelector::One(table) => table.number(),
        TableSelector::All => 0,
    }
}

/// Returns a rule without its counters.
fn without_counters(line: &str) -> String {
    let line = line.trim();
    let (matches, actions) = match line.find("actions=") {
        Some(place) => line.split_at(place),
        None => (line, ""),
    };
    let is_count = |item: &&str| COUNTS.iter().any(|count| item.starts_with(count));
    let items = matches.split([',', ' ']).filter(|item| !item.is_empty() && !is_count(item));
    let kept: Vec<&str> = items.collect();
    format!("{} {actions}", kept.join(",")).trim().to_owned()
}

/// The counters of a rule in a dump.
const COUNTS: [&str; 5] = ["duration=", "n_packets=", "n_bytes=", "idle_age=", "hard_age="];

/// Returns whether a line is blank, a comment, or the heading of a reply.
fn is_heading(line: &str) -> bool {
    line.is_empty()
        || line.starts_with('#')
        || line.starts_with("NXST_FLOW reply")
        || line.starts_with("OFPST_FLOW reply")
}

/// Parses a line of a dump of rules.
fn read_rule(line: &str, number: usize, offset: usize) -> Result<FlowMod, DumpError> {
    parse_rule(FlowModCommand::Add, line.trim_end(), &NoPortNames).map_err(|source| {
        let before = line.get(..source.span.start).unwrap_or(line);
        DumpError::Rule {
            line: number,
            column: before.chars().count().saturating_add(1),
            offset: offset.saturating_add(source.span.start),
            length: source.span.len(),
            source: Box::new(source),
        }
    })
}

impl fmt::Display for SwitchDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables();
        writeln!(f, "{} rules in {} tables", self.rules.len(), tables.len())?;
        writeln!(f, "table  rules  masks  leads to, matches")?;
        for DumpTable { id, rules, masks, fields, next } in &tables {
            let next: Vec<String> = next.iter().map(u8::to_string).collect();
            let fields: Vec<&str> = fields.iter().map(|field| field.name()).collect();
            writeln!(f, "{id:>5} {rules:>6} {masks:>6}  to {}", next.join(" "))?;
            writeln!(f, "{:>20} {}", "", fields.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump of rules by `ovs-ofctl`.
    const DUMP: &str = "NXST_FLOW reply (xid=0x4):\n\
        \x20cookie=0x1, duration=1.5s, table=0, n_packets=0, n_bytes=0, priority=100,in_port=1 actions=resubmit(,8)\n\
        \x20cookie=0x1, table=0, priority=90,in_port=2 actions=clone(resubmit(,9)),output:3\n\
        \x20cookie=0x2, table=8, priority=50,ip,nw_dst=10.0.0.0/8 actions=goto_table:20\n";

    #[test]
    fn a_dump_lists_its_tables() {
        let dump = SwitchDump::read(DUMP).unwrap();
        let tables = dump.tables();
        let short: Vec<_> =
            tables.iter().map(|table| (table.id, table.rules, table.masks)).collect();
        assert_eq!(short, [(0, 2, 1), (8, 1, 1)]);
        assert_eq!(tables[0].next, BTreeSet::from([8, 9]));
        assert_eq!(tables[1].next, BTreeSet::from([20]));
        assert_eq!(tables[1].fields, BTreeSet::from([FieldId::EthType, FieldId::Ipv4Dst]));
    }

    #[test]
    fn a_dump_keeps_rules_without_counters() {
        let dump = SwitchDump::read(DUMP).unwrap();
        let lines: Vec<(u8, String)> = dump.lines().collect();
        let expected = "cookie=0x1,table=0,priority=100,in_port=1 actions=resubmit(,8)";
        assert_eq!((lines.len(), &lines[0]), (3, &(0, expected.to_owned())));
        assert_eq!(dump.first_table().count(), 2);
    }

    #[test]
    fn an_error_points_to_the_wrong_word() {
        let text = DUMP.replace("goto_table:20", "gto_table:20");
        let message = SwitchDump::read(&text).map(|dump| dump.rules);
        let Err(DumpError::Rule { line: 4, offset, length, .. }) = message else {
            panic!("{message:?}")
        };
        assert!(text[offset..offset + length].starts_with("gto_table"));
    }

    #[test]
    fn text_without_rule_is_refused_as_dump() {
        assert!(matches!(SwitchDump::read("# nothing\n"), Err(DumpError::Empty)));
        assert!(matches!(SwitchDump::read("nothing\n"), Err(DumpError::Rule { line: 1, .. })));
    }

    /// A line of a dump.
    const RULE: &str = "table=0,priority=7,in_port=1 actions=resubmit(,1)\n";

    #[test]
    fn an_invalid_rule_is_refused_with_position() {
        for (line, column) in [
            ("table=1,ip,nw_dsst=10.0.0.0/8 actions=drop", 12),
            ("table=1,priority=high,ip actions=drop", 18),
            ("table=1,tcp,tp_dst=99999 actions=drop", 20),
            ("table=1,ip actions=ouptut:1", 20),
            ("table=1,ip actions=resubmit(,2", 20),
            ("table=1,ip", 11),
        ] {
            let message = SwitchDump::read(&format!("{RULE}{line}\n")).map(|dump| dump.left_out);
            let Err(DumpError::Rule { line: 2, column: found, .. }) = message else {
                panic!("{line}: {message:?}")
            };
            assert_eq!(found, column, "{line}");
        }
    }

    #[test]
    fn unsupported_rules_are_left_out_and_reported() {
        for line in [
            "table=1,ip actions=set_field:1->tun_metadata0",
            "table=1,ip actions=teleport(7)",
            "table=1,ip,quark_spin=3 actions=drop",
        ] {
            let dump = SwitchDump::read(&format!("{RULE}{line}\n")).unwrap();
            assert_eq!((dump.rules.len(), dump.left_out.len()), (1, 1), "{line}");
        }
    }
}
