//! The rules of a real switch, as `ovs-ofctl dump-flows` prints them.
//!
//! A dump is a pipeline as well: its tables are those that have rules, its ways those that actions
//! lead.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use shunt_flow::{FieldId, FlowMask, Match, SparseMask, prerequisite, text::NoPortNames};
use shunt_pipeline::{Action, FlowMod, FlowModCommand, TableSelector, text::parse_rule};

use crate::DumpError;

/// Rules that a switch had.
#[derive(Clone, Debug)]
pub struct Dump {
    rules: Vec<FlowMod>,
    /// The text of each, without what the switch has counted.
    texts: Vec<String>,
    left_out: Vec<DumpError>,
}

/// What a dump has in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpTable {
    /// Its number.
    pub id: u8,
    /// How many rules it has.
    pub rules: usize,
    /// Different masks among them.
    pub masks: usize,
    /// The fields that some rule matches.
    pub fields: BTreeSet<FieldId>,
    /// The tables that some rule leads to.
    pub next: BTreeSet<u8>,
}

impl Dump {
    /// Reads a dump; its headings and comments are left out, and so are rules of which the switch knows
    /// more than this crate does.
    ///
    /// # Errors
    ///
    /// A line that is no rule, with its place; or that no rule can be read, with the place of the first.
    pub fn read(text: &str) -> Result<Self, DumpError> {
        let (mut rules, mut texts, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        let mut offset = 0;
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            if !is_heading(line.trim()) {
                match read_rule(line, number, offset) {
                    Ok(rule) => {
                        rules.push(rule);
                        texts.push(uncounted(line));
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

    /// Why which rules were left out.
    #[must_use]
    pub fn left_out(&self) -> &[DumpError] {
        &self.left_out
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[FlowMod] {
        &self.rules
    }

    /// The rules as text that `ovs-ofctl add-flows` reads, each with its table.
    pub fn lines(&self) -> impl Iterator<Item = (u8, String)> {
        let tables = self.rules.iter().map(table_of);
        tables.zip(self.texts.iter().cloned())
    }

    /// The rules of the table that packets enter by: text and match of each.
    pub fn first_table(&self) -> impl Iterator<Item = (&str, &Match)> {
        let rules = self.rules.iter().zip(&self.texts);
        rules
            .filter(|(rule, _)| table_of(rule) == 0)
            .map(|(rule, text)| (text.as_str(), &rule.matching))
    }

    /// The tables, ascending.
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
    fn of(id: u8, rules: &[&FlowMod]) -> Self {
        let mut masks: Vec<&SparseMask> = rules.iter().map(|rule| rule.matching.mask()).collect();
        masks.sort_unstable_by_key(|mask| mask.iter().collect::<Vec<_>>());
        masks.dedup();
        let mut fields = BTreeSet::new();
        for rule in rules {
            let (key, mask) = (rule.matching.key(), FlowMask::from(rule.matching.mask()));
            // Fields of other protocols may be the same bits.
            let is_asked = |field: &FieldId| {
                mask.field(*field) != 0 && prerequisite::is_met(*field, &key, &mask)
            };
            fields.extend(FieldId::all().filter(is_asked));
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

/// Adds the tables that actions lead to; how deep they nest is bounded where they are read.
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

fn table_of(rule: &FlowMod) -> u8 {
    match rule.table {
        TableSelector::One(table) => table.number(),
        TableSelector::All => 0,
    }
}

/// A rule as it stands, without what the switch has counted.
fn uncounted(line: &str) -> String {
    let line = line.trim();
    let (asked, actions) = match line.find("actions=") {
        Some(place) => line.split_at(place),
        None => (line, ""),
    };
    let is_count = |item: &&str| COUNTS.iter().any(|count| item.starts_with(count));
    let items = asked.split([',', ' ']).filter(|item| !item.is_empty() && !is_count(item));
    let asked: Vec<&str> = items.collect();
    format!("{} {actions}", asked.join(",")).trim().to_owned()
}

/// What a switch has counted of a rule.
const COUNTS: [&str; 5] = ["duration=", "n_packets=", "n_bytes=", "idle_age=", "hard_age="];

/// Whether a line has no rule: it is blank, a comment, or says what was asked.
fn is_heading(line: &str) -> bool {
    line.is_empty()
        || line.starts_with('#')
        || line.starts_with("NXST_FLOW reply")
        || line.starts_with("OFPST_FLOW reply")
}

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

impl fmt::Display for Dump {
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

    const DUMP: &str = "NXST_FLOW reply (xid=0x4):\n\
        \x20cookie=0x1, duration=1.5s, table=0, n_packets=0, n_bytes=0, priority=100,in_port=1 actions=resubmit(,8)\n\
        \x20cookie=0x1, table=0, priority=90,in_port=2 actions=clone(resubmit(,9)),output:3\n\
        \x20cookie=0x2, table=8, priority=50,ip,nw_dst=10.0.0.0/8 actions=goto_table:20\n";

    #[test]
    fn a_dump_tells_its_tables() {
        let dump = Dump::read(DUMP).unwrap();
        let tables = dump.tables();
        let short: Vec<_> =
            tables.iter().map(|table| (table.id, table.rules, table.masks)).collect();
        assert_eq!(short, [(0, 2, 1), (8, 1, 1)]);
        assert_eq!(tables[0].next, BTreeSet::from([8, 9]));
        assert_eq!(tables[1].next, BTreeSet::from([20]));
        assert_eq!(tables[1].fields, BTreeSet::from([FieldId::EthType, FieldId::Ipv4Dst]));
    }

    #[test]
    fn rules_stand_as_they_are_but_for_what_was_counted() {
        let dump = Dump::read(DUMP).unwrap();
        let lines: Vec<(u8, String)> = dump.lines().collect();
        let expected = "cookie=0x1,table=0,priority=100,in_port=1 actions=resubmit(,8)";
        assert_eq!((lines.len(), &lines[0]), (3, &(0, expected.to_owned())));
        assert_eq!(dump.first_table().count(), 2);
    }

    #[test]
    fn the_place_of_a_bad_rule_is_that_of_its_wrong_word() {
        let text = DUMP.replace("goto_table:20", "gto_table:20");
        let told = Dump::read(&text).map(|dump| dump.rules);
        let Err(DumpError::Rule { line: 4, offset, length, .. }) = told else { panic!("{told:?}") };
        assert!(text[offset..offset + length].starts_with("gto_table"));
    }

    #[test]
    fn a_text_without_a_rule_is_no_dump() {
        assert!(matches!(Dump::read("# nothing\n"), Err(DumpError::Empty)));
        assert!(matches!(Dump::read("nothing\n"), Err(DumpError::Rule { line: 1, .. })));
    }

    const RULE: &str = "table=0,priority=7,in_port=1 actions=resubmit(,1)\n";

    #[test]
    fn a_line_that_is_no_rule_is_refused_with_its_place() {
        for (line, column) in [
            ("table=1,ip,nw_dsst=10.0.0.0/8 actions=drop", 12),
            ("table=1,priority=high,ip actions=drop", 18),
            ("table=1,tcp,tp_dst=99999 actions=drop", 20),
            ("table=1,ip actions=ouptut:1", 20),
            ("table=1,ip actions=resubmit(,2", 20),
            ("table=1,ip", 11),
        ] {
            let told = Dump::read(&format!("{RULE}{line}\n")).map(|dump| dump.left_out);
            let Err(DumpError::Rule { line: 2, column: found, .. }) = told else {
                panic!("{line}: {told:?}")
            };
            assert_eq!(found, column, "{line}");
        }
    }

    #[test]
    fn what_another_switch_knows_is_left_out_and_told() {
        for line in [
            "table=1,ip actions=set_field:1->tun_metadata0",
            "table=1,ip actions=teleport(7)",
            "table=1,ip,quark_spin=3 actions=drop",
        ] {
            let dump = Dump::read(&format!("{RULE}{line}\n")).unwrap();
            assert_eq!((dump.rules.len(), dump.left_out.len()), (1, 1), "{line}");
        }
    }
}
