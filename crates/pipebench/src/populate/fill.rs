//! Fills the tables of a pipeline from a rule-set.
//!
//! Each base rule goes to a traversal drawn at random, and its fields are projected into each table
//! of it: one rule there for what that table looks at. So tables that look at few fields have few
//! rules, shared by many base rules, and sub-traversals recur.
//!
//! Two things that the original leaves open are decided here. A table that leads to several others
//! by fields that do not tell them apart could not choose: its rules ask for the port as well, and each
//! traversal has a port of its own. And where two traversals would want the same match in a table to
//! lead to different tables, the later base rule tries the other traversals.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use shunt_flow::{FieldId, text::NoPortNames};
use shunt_pipeline::{
    FlowMod, FlowModCommand,
    text::{RuleTextError, parse_rule},
};

use super::{
    base::{BaseRule, base_rules},
    carried::{Carried, Registers},
    matching::{Beside, StepMatch, step_matches},
};
use crate::{
    PopulateError, Progress, RandomStream, Seed,
    classbench::Filter,
    pipeline_file::{Field, PipelineFile, Step, Terminal, Traversal},
};

/// Which traversals get rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// Those that forward, as in published workloads.
    Forwarding,
    /// All of them; some drop, answer, or ask the controller.
    All,
}

/// How much of a pipeline its rules do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// They match the driven fields and rewrite nothing, as in published workloads.
    #[default]
    Plain,
    /// They write and match registers and marks, and rewrite headers, as the file says. What needs a
    /// connection tracked, a packet parsed again or a rule learned is left out.
    Real,
}

/// A rule in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulatedRule {
    /// The table, numbered from 0 in the order of the pipeline's.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// What it asks of packets, as OpenFlow text; empty if nothing.
    pub matching: String,
    /// What it does, as OpenFlow text.
    pub actions: String,
}

impl fmt::Display for PopulatedRule {
    /// The line that `ovs-ofctl add-flows` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, priority, matching, actions } = self;
        let comma = if matching.is_empty() { "" } else { "," };
        write!(f, "table={table},priority={priority},{matching}{comma}actions={actions}")
    }
}

/// A traversal that has rules.
#[derive(Clone, Debug)]
pub struct PopulatedPath {
    /// The id that the pipeline's file gives it.
    pub id: String,
    /// What becomes of packets.
    pub terminal: Terminal,
    /// The tables that it goes through, by the numbers of its rules.
    pub tables: Vec<u8>,
    /// The port that its packets come in by.
    pub in_port: u16,
    /// The header fields that its rules look at, step by step.
    pub fields: Vec<Vec<FieldId>>,
    /// The base rules that were projected into it, as indices.
    pub base_rules: Vec<usize>,
    /// Where it can be cut so that no field decides before and after, as numbers of steps before.
    pub cuts: Vec<usize>,
}

/// A pipeline with rules.
#[derive(Clone, Debug)]
pub struct Population {
    pub(super) rules: Vec<PopulatedRule>,
    pub(super) paths: Vec<PopulatedPath>,
    /// The number that each table has in the file, by that of its rules.
    pub(super) tables: BTreeMap<u8, u8>,
    pub(super) base: Vec<BaseRule>,
    /// For each base rule that has a place: its path, and one rule for each step.
    pub(super) chains: Vec<(usize, Vec<usize>)>,
    pub(super) rejected: usize,
}

impl Population {
    /// The port that forwarded packets leave by.
    pub const OUTPUT_PORT: u16 = 2;

    /// The rules, table by table, as they were made.
    #[must_use]
    pub fn rules(&self) -> &[PopulatedRule] {
        &self.rules
    }

    /// The traversals.
    #[must_use]
    pub fn paths(&self) -> &[PopulatedPath] {
        &self.paths
    }

    /// The number that each table has in the pipeline's file, by the number that its rules have.
    #[must_use]
    pub const fn tables(&self) -> &BTreeMap<u8, u8> {
        &self.tables
    }

    /// The filters with Ethernet addresses that the rules were made from.
    #[must_use]
    pub fn base(&self) -> &[BaseRule] {
        &self.base
    }

    /// The rules as requests to a pipeline.
    ///
    /// # Errors
    ///
    /// None: the text of each rule is one that the pipeline reads.
    pub fn flow_mods(&self) -> Result<Vec<FlowMod>, RuleTextError> {
        let read =
            |rule: &PopulatedRule| parse_rule(FlowModCommand::Add, &rule.to_string(), &NoPortNames);
        self.rules.iter().map(read).collect()
    }
}

/// Fills a pipeline with rules made from a rule-set.
///
/// # Errors
///
/// No filter, no traversal of the kind asked for, or more tables than OpenFlow has.
pub fn populate(
    pipeline: &PipelineFile,
    filters: &[Filter],
    (filling, form): (Filling, Form),
    seed: Seed,
    progress: &Progress,
) -> Result<Population, PopulateError> {
    if filters.is_empty() {
        return Err(PopulateError::NoFilter);
    }
    let wanted = |traversal: &&Traversal| filling == Filling::All || traversal.terminal.forwards();
    let traversals: Vec<&Traversal> = pipeline.traversals.iter().filter(wanted).collect();
    if traversals.is_empty() {
        return Err(PopulateError::NothingForwards);
    }
    let mut fill = Fill::new(pipeline, &traversals, form)?;
    let mut stream = seed.stream("traversals");
    let base = base_rules(filters, seed)?;
    progress.expect(filters.len() as u64);
    for index in 0..base.len() {
        fill.place(&base, index, &mut stream);
        if index % PROGRESS_STEP == PROGRESS_STEP - 1 {
            progress.advance(PROGRESS_STEP as u64);
        }
    }
    Ok(fill.finish(base))
}

/// Filters after which progress is told.
const PROGRESS_STEP: usize = 1000;

/// The lowest priority; what a match asks for is added.
const PRIORITY: u16 = 100;

/// A table being filled: for each match the rule, its weight and its actions.
type Filled = BTreeMap<String, (usize, u16, String)>;

struct Fill<'a> {
    pipeline: &'a PipelineFile,
    /// Of the real form.
    registers: Option<Registers>,
    traversals: &'a [&'a Traversal],
    /// New numbers of tables, the first one 0.
    numbers: BTreeMap<u8, u8>,
    /// Tables whose rules ask for the port.
    by_port: BTreeSet<u8>,
    /// Tables whose rules ask for the type.
    typed: BTreeSet<u8>,
    tables: BTreeMap<u8, Filled>,
    rules: usize,
    paths: Vec<PopulatedPath>,
    chains: Vec<(usize, Vec<usize>)>,
    rejected: usize,
}

impl<'a> Fill<'a> {
    fn new(
        pipeline: &'a PipelineFile,
        traversals: &'a [&'a Traversal],
        form: Form,
    ) -> Result<Self, PopulateError> {
        let by_port = undecided(pipeline, traversals);
        let own_ports = !by_port.is_empty();
        let ports = (1..=u16::MAX).filter(|port| *port != Population::OUTPUT_PORT);
        let numbers = numbers(pipeline, traversals)?;
        let way = |traversal: &Traversal| -> Vec<u8> {
            // One rule serves all visits of a table.
            let mut way = Vec::new();
            for table in traversal.path().filter_map(|table| numbers.get(&table)) {
                if !way.contains(table) {
                    way.push(*table);
                }
            }
            way
        };
        let paths = traversals.iter().zip(ports).map(|(traversal, port)| PopulatedPath {
            id: traversal.id.clone(),
            terminal: traversal.terminal,
            tables: way(traversal),
            in_port: if own_ports { port } else { 1 },
            fields: looked_at(pipeline, traversal, form),
            base_rules: Vec::new(),
            cuts: traversal.cuts(&pipeline.fields8),
        });
        let paths = paths.collect();
        Ok(Self {
            pipeline,
            registers: (form == Form::Real).then(|| Registers::of(pipeline)),
            traversals,
            numbers,
            by_port,
            typed: typed(pipeline, traversals),
            tables: BTreeMap::new(),
            rules: 0,
            paths,
            chains: Vec::new(),
            rejected: 0,
        })
    }

    /// Finds a traversal for a base rule and puts its rules there.
    fn place(&mut self, base: &[BaseRule], index: usize, stream: &mut RandomStream) {
        let Some(rule) = base.get(index) else { return };
        let mut order: Vec<usize> = (0..self.traversals.len()).collect();
        stream.shuffle(&mut order);
        for number in order {
            if let Some(steps) = self.project(number, rule) {
                let chain = steps.into_iter().map(|step| self.add(step)).collect();
                self.chains.push((number, chain));
                if let Some(path) = self.paths.get_mut(number) {
                    path.base_rules.push(index);
                }
                return;
            }
        }
        self.rejected = self.rejected.saturating_add(1);
    }

    /// What a traversal's tables need for a base rule, unless one of them does otherwise already.
    fn project(&self, number: usize, rule: &BaseRule) -> Option<Vec<Projected>> {
        let (traversal, path) = (self.traversals.get(number)?, self.paths.get(number)?);
        let mut carried = Carried::new(*rule);
        let mut all = Vec::new();
        for (place, step) in traversal.steps.iter().enumerate() {
            let again =
                traversal.steps.get(..place)?.iter().any(|before| before.table == step.table);
            if again {
                // One rule serves both visits: the second one is part of the first.
                continue;
            }
            let later = traversal.steps.get(place..)?;
            let next = later.iter().map(|after| after.table).find(|table| *table != step.table);
            let fields: Vec<&Field> = step.driven(&self.pipeline.fields8).collect();
            let asks_port = place == 0 || self.by_port.contains(&step.table);
            let mut beside = Beside {
                port: asks_port.then_some(path.in_port),
                is_ip: self.typed.contains(&step.table),
                values: Vec::new(),
            };
            if let Some(registers) = &self.registers {
                beside.is_ip |= Carried::needs_ip(step);
                beside.values = carried.asked(step, registers);
            }
            let matches = step_matches(&fields, &carried.rule, &beside);
            let mut actions = String::new();
            if let (Some(registers), Some(first)) = (&self.registers, matches.first()) {
                actions = carried.write(step, registers, &first.text);
            }
            actions.push_str(&self.actions(step.table, next, traversal.terminal)?);
            let table = *self.numbers.get(&step.table)?;
            let filled = self.tables.get(&table);
            let other = |asked: &StepMatch| {
                filled
                    .and_then(|filled| filled.get(&asked.text))
                    .is_some_and(|rule| rule.2 != actions)
            };
            if matches.iter().any(other) {
                return None;
            }
            all.push(Projected { table, matches, actions });
        }
        Some(all)
    }

    fn actions(&self, table: u8, next: Option<u8>, terminal: Terminal) -> Option<String> {
        let Some(next) = next else {
            return Some(match terminal {
                Terminal::Output | Terminal::Group => format!("output:{}", Population::OUTPUT_PORT),
                Terminal::InPort => "in_port".to_owned(),
                Terminal::Controller => "controller".to_owned(),
                Terminal::Drop => "drop".to_owned(),
            });
        };
        let (here, next) = (self.numbers.get(&table)?, self.numbers.get(&next)?);
        // The standard's way on leads forward only.
        Some(if next > here { format!("goto_table:{next}") } else { format!("resubmit(,{next})") })
    }

    /// Adds what is not there yet; the number of the first rule.
    fn add(&mut self, step: Projected) -> usize {
        let filled = self.tables.entry(step.table).or_default();
        let mut first = None;
        for StepMatch { text, weight } in step.matches {
            let rules = &mut self.rules;
            let rule = filled.entry(text).or_insert_with(|| {
                let number = *rules;
                *rules = rules.saturating_add(1);
                (number, PRIORITY.saturating_add(weight), step.actions.clone())
            });
            first.get_or_insert(rule.0);
        }
        first.unwrap_or(0)
    }

    fn finish(self, base: Vec<BaseRule>) -> Population {
        let mut numbered: Vec<(usize, PopulatedRule)> = Vec::with_capacity(self.rules);
        for (table, filled) in self.tables {
            for (matching, (number, priority, actions)) in filled {
                numbered.push((number, PopulatedRule { table, priority, matching, actions }));
            }
        }
        numbered.sort_unstable_by_key(|(number, _)| *number);
        Population {
            rules: numbered.into_iter().map(|(_, rule)| rule).collect(),
            paths: self.paths,
            tables: self.numbers.into_iter().map(|(from, to)| (to, from)).collect(),
            base,
            chains: self.chains,
            rejected: self.rejected,
        }
    }
}

/// The rules of one table for a base rule.
struct Projected {
    table: u8,
    matches: Vec<StepMatch>,
    actions: String,
}

/// Tables that lead on, or end, in several ways, and whose fields do not tell them apart.
///
/// They do where all traversals look at the same Ethernet addresses there: each is of one rule, and that
/// leads one way. Where one traversal looks at fewer fields than another, or at prefixes or ranges that
/// may lie in those of another, packets that are meant for one way match rules of the other.
fn undecided(pipeline: &PipelineFile, traversals: &[&Traversal]) -> BTreeSet<u8> {
    let mut next: BTreeMap<u8, BTreeSet<Result<u8, Terminal>>> = BTreeMap::new();
    let mut asked: BTreeMap<u8, BTreeSet<Vec<&str>>> = BTreeMap::new();
    for traversal in traversals {
        for (place, step) in traversal.steps.iter().enumerate() {
            let later = traversal.steps.iter().skip(place);
            let after = later.map(|after| after.table).find(|table| *table != step.table);
            next.entry(step.table).or_default().insert(after.ok_or(traversal.terminal));
            // The packets of a workload are all of IPv4, so that their type decides nothing.
            let fields = step.driven(&pipeline.fields8).map(Field::name);
            let mut fields: Vec<&str> = fields.filter(|field| *field != TYPE).collect();
            fields.sort_unstable();
            asked.entry(step.table).or_default().insert(fields);
        }
    }
    let tells = |table: &u8| {
        let mut asked = asked.get(table).into_iter().flatten();
        let first = asked.next().map_or(&[][..], Vec::as_slice);
        let is_exact = first.iter().all(|field| EXACT.contains(field));
        asked.next().is_none() && !first.is_empty() && is_exact
    };
    let forks = next.into_iter().filter(|(_, next)| next.len() > 1).map(|(table, _)| table);
    forks.filter(|table| !tells(table)).collect()
}

/// Tables in which some traversal asks for the type: there all do, so that what asks for the same of
/// packets of IPv4 is the same match.
fn typed(pipeline: &PipelineFile, traversals: &[&Traversal]) -> BTreeSet<u8> {
    let steps = traversals.iter().flat_map(|traversal| &traversal.steps);
    let asks = |step: &&Step| step.driven(&pipeline.fields8).any(|field| field.name() == TYPE);
    steps.filter(asks).map(|step| step.table).collect()
}

const TYPE: &str = "eth_type";
/// Fields of which every rule asks for one value.
const EXACT: [&str; 2] = ["eth_src", "eth_dst"];

/// Numbers for the tables that are used: 0 for the first one, the others in their order.
fn numbers(
    pipeline: &PipelineFile,
    traversals: &[&Traversal],
) -> Result<BTreeMap<u8, u8>, PopulateError> {
    let start = pipeline.start();
    let used: BTreeSet<u8> = traversals.iter().flat_map(|traversal| traversal.path()).collect();
    let others = used.iter().copied().filter(|table| Some(*table) != start);
    let numbers = start.into_iter().chain(others).zip(0..TABLES_MAX).collect::<BTreeMap<_, _>>();
    if numbers.len() < used.len() {
        return Err(PopulateError::Tables { tables: used.len(), max: TABLES_MAX.into() });
    }
    Ok(numbers)
}

/// Numbers that OpenFlow has for tables: 255 means all of them, and Open vSwitch hides table 254.
const TABLES_MAX: u8 = 254;

/// The header fields of each step, without those that a step before it has rewritten.
fn looked_at(pipeline: &PipelineFile, traversal: &Traversal, form: Form) -> Vec<Vec<FieldId>> {
    let fields = traversal.steps.iter().enumerate().map(|(place, step)| {
        let is_rewritten = |field: &&Field| {
            let mut before = traversal.steps.iter().take(place);
            form == Form::Real && before.any(|before| Carried::rewrites(before, field))
        };
        let driven = step.driven(&pipeline.fields8).filter(|field| !is_rewritten(field));
        let mut fields: Vec<FieldId> = driven.filter_map(Field::driven).collect();
        if fields.iter().any(|field| [FieldId::TcpSrc, FieldId::TcpDst].contains(field)) {
            fields.push(FieldId::IpProto);
        }
        fields.sort_unstable();
        fields.dedup();
        fields
    });
    fields.collect()
}
