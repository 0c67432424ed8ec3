//! Fills the tables of a pipeline from a rule set.
//!
//! Each base rule is assigned to a random traversal. In each table of the traversal, it gives one
//! rule with the fields that the table matches. So tables with few fields have few rules, which
//! many base rules share, and sub-traversals recur.
//!
//! The original leaves two details open. First, a table may have several next tables that its
//! fields do not distinguish. The rules of such a table also match the ingress port, and each
//! traversal has its own port. Second, two traversals may need the same match with different next
//! tables. The later base rule then tries the other traversals.

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
    matching::{OtherMatches, StepMatch, step_matches},
    step_state::{Registers, StepState},
};
use crate::{
    PopulateError, Progress, RandomStream, Seed,
    classbench::Filter,
    pipeline_file::{Field, PipelineFile, PipelineTraversal, Terminal, TraversalStep},
};

/// Traversals that get rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraversalSelection {
    /// Traversals that forward, as in published workloads.
    Forwarding,
    /// All traversals, including those that drop, reply, or ask the controller.
    All,
}

/// Actions that the rules use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RuleForm {
    /// Match the fields that traffic varies, and rewrite nothing.
    ///
    /// Published workloads have such rules.
    #[default]
    Plain,
    /// Write and match registers and marks, and rewrite headers, as in the file.
    ///
    /// Connection tracking, recirculation and learning are left out.
    Real,
}

/// A rule in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulatedRule {
    /// The number of the table, from 0 on in the order of the pipeline.
    pub table: u8,
    /// Priority of the rule.
    pub priority: u16,
    /// Match of the rule as OpenFlow text; empty if it matches everything.
    pub matching: String,
    /// Actions of the rule as OpenFlow text.
    pub actions: String,
}

impl fmt::Display for PopulatedRule {
    /// Formats the rule for `ovs-ofctl add-flows`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, priority, matching, actions } = self;
        let comma = if matching.is_empty() { "" } else { "," };
        write!(f, "table={table},priority={priority},{matching}{comma}actions={actions}")
    }
}

/// A traversal that has rules.
#[derive(Clone, Debug)]
pub struct PopulatedPath {
    /// The id in the pipeline file.
    pub id: String,
    /// End of the traversal.
    pub terminal: Terminal,
    /// The numbers of the visited tables, as in the rules.
    pub tables: Vec<u8>,
    /// The ingress port of the traversal's packets.
    pub in_port: u16,
    /// The header fields that the rules match, for each step.
    pub fields: Vec<Vec<FieldId>>,
    /// Indices of the base rules that were assigned to the traversal.
    pub base_rules: Vec<usize>,
    /// Partition points: numbers of steps; no field matters both before and after.
    pub partition_points: Vec<usize>,
}

/// A pipeline with rules.
#[derive(Clone, Debug)]
pub struct Population {
    pub(super) rules: Vec<PopulatedRule>,
    pub(super) paths: Vec<PopulatedPath>,
    /// The number in the file of each table, by the number in the rules.
    pub(super) tables: BTreeMap<u8, u8>,
    pub(super) base: Vec<BaseRule>,
    /// For each placed base rule: its traversal, and one rule for each step.
    pub(super) chains: Vec<(usize, Vec<usize>)>,
    pub(super) rejected: usize,
}

impl Population {
    /// The output port of forwarded packets.
    pub const OUTPUT_PORT: u16 = 2;

    /// Returns the rules, table by table.
    #[must_use]
    pub fn rules(&self) -> &[PopulatedRule] {
        &self.rules
    }

    /// Returns the traversals that have rules.
    #[must_use]
    pub fn paths(&self) -> &[PopulatedPath] {
        &self.paths
    }

    /// Returns the number in the file of each table, by the number in the rules.
    #[must_use]
    pub const fn tables(&self) -> &BTreeMap<u8, u8> {
        &self.tables
    }

    /// Returns the base rules of the population.
    #[must_use]
    pub fn base(&self) -> &[BaseRule] {
        &self.base
    }

    /// Returns the rules as flow-mods.
    ///
    /// # Errors
    ///
    /// Never, because the parser accepts the text of each rule.
    pub fn flow_mods(&self) -> Result<Vec<FlowMod>, RuleTextError> {
        let read =
            |rule: &PopulatedRule| parse_rule(FlowModCommand::Add, &rule.to_string(), &NoPortNames);
        self.rules.iter().map(read).collect()
    }
}

/// Fills a pipeline with rules from a rule set.
///
/// # Errors
///
/// If there is no filter, no traversal of the requested kind, or too many tables.
pub fn populate(
    pipeline: &PipelineFile,
    filters: &[Filter],
    filling: TraversalSelection,
    form: RuleForm,
    seed: Seed,
    progress: &Progress,
) -> Result<Population, PopulateError> {
    if filters.is_empty() {
        return Err(PopulateError::NoFilter);
    }
    let wanted = |traversal: &&PipelineTraversal| {
        filling == TraversalSelection::All || traversal.terminal.forwards()
    };
    let traversals: Vec<&PipelineTraversal> = pipeline.traversals.iter().filter(wanted).collect();
    if traversals.is_empty() {
        return Err(PopulateError::NothingForwards);
    }
    let mut fill = Fill::new(pipeline, &traversals, form)?;
    let mut stream = seed.stream("traversals");
    let base = base_rules(filters, seed)?;
    progress.expect(filters.len() as u64);
    for index in 0..base.len() {
        fill.assign_traversal(&base, index, &mut stream);
        if index % PROGRESS_STEP == PROGRESS_STEP - 1 {
            progress.advance(PROGRESS_STEP as u64);
        }
    }
    Ok(fill.finish(base))
}

/// Number of filters between two progress updates.
const PROGRESS_STEP: usize = 1000;

/// The priority of a rule without matches; others add the weight of their match.
const PRIORITY: u16 = 100;

/// A table while it is filled: by match, the index, weight and actions of the rule.
type FilledTable = BTreeMap<String, (usize, u16, String)>;

/// The state while a pipeline is filled with rules.
struct Fill<'a> {
    pipeline: &'a PipelineFile,
    /// The registers; `None` in the plain form.
    registers: Option<Registers>,
    traversals: &'a [&'a PipelineTraversal],
    /// The new number of each table; the first table has 0.
    numbers: BTreeMap<u8, u8>,
    /// Tables with rules that match the ingress port.
    by_port: BTreeSet<u8>,
    /// Tables with rules that all match the EtherType.
    typed: BTreeSet<u8>,
    tables: BTreeMap<u8, FilledTable>,
    rules: usize,
    paths: Vec<PopulatedPath>,
    chains: Vec<(usize, Vec<usize>)>,
    rejected: usize,
}

impl<'a> Fill<'a> {
    /// Returns a fill without rules. Fails if the tables cannot be numbered.
    fn new(
        pipeline: &'a PipelineFile,
        traversals: &'a [&'a PipelineTraversal],
        form: RuleForm,
    ) -> Result<Self, PopulateError> {
        let by_port = undecided_tables(pipeline, traversals);
        let own_ports = !by_port.is_empty();
        let ports = (1..=u16::MAX).filter(|port| *port != Population::OUTPUT_PORT);
        let numbers = new_numbers(pipeline, traversals)?;
        let table_ids = |traversal: &PipelineTraversal| -> Vec<u8> {
            // A table with several visits occurs once, because one rule serves all visits.
            let mut table_ids = Vec::new();
            for table in traversal.path().filter_map(|table| numbers.get(&table)) {
                if !table_ids.contains(table) {
                    table_ids.push(*table);
                }
            }
            table_ids
        };
        let paths = traversals.iter().zip(ports).map(|(traversal, port)| PopulatedPath {
            id: traversal.id.clone(),
            terminal: traversal.terminal,
            tables: table_ids(traversal),
            in_port: if own_ports { port } else { 1 },
            fields: matched_fields(pipeline, traversal, form),
            base_rules: Vec::new(),
            partition_points: traversal.partition_points(&pipeline.driven_fields),
        });
        let paths = paths.collect();
        Ok(Self {
            pipeline,
            registers: (form == RuleForm::Real).then(|| Registers::of(pipeline)),
            traversals,
            numbers,
            by_port,
            typed: tables_by_type(pipeline, traversals),
            tables: BTreeMap::new(),
            rules: 0,
            paths,
            chains: Vec::new(),
            rejected: 0,
        })
    }

    /// Assigns a traversal to a base rule, and adds the rules of the traversal.
    fn assign_traversal(&mut self, base: &[BaseRule], index: usize, stream: &mut RandomStream) {
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

    /// Returns the rules of a traversal's tables for a base rule.
    ///
    /// Returns `None` if a rule conflicts with an existing rule.
    fn project(&self, number: usize, rule: &BaseRule) -> Option<Vec<Projected>> {
        let (traversal, path) = (self.traversals.get(number)?, self.paths.get(number)?);
        let mut step_state = StepState::new(*rule);
        let mut all = Vec::new();
        for (place, step) in traversal.steps.iter().enumerate() {
            let again =
                traversal.steps.get(..place)?.iter().any(|before| before.table == step.table);
            if again {
                // One rule serves both visits of the table, and the first visit has it.
                continue;
            }
            let later = traversal.steps.get(place..)?;
            let next = later.iter().map(|after| after.table).find(|table| *table != step.table);
            let fields: Vec<&Field> = step.driven(&self.pipeline.driven_fields).collect();
            let asks_port = place == 0 || self.by_port.contains(&step.table);
            let mut beside = OtherMatches {
                port: asks_port.then_some(path.in_port),
                is_ip: self.typed.contains(&step.table),
                values: Vec::new(),
            };
            if let Some(registers) = &self.registers {
                beside.is_ip |= StepState::needs_ip(step);
                beside.values = step_state.match_items(step, registers);
            }
            let matches = step_matches(&fields, &step_state.rule, &beside);
            let mut actions = String::new();
            if let (Some(registers), Some(first)) = (&self.registers, matches.first()) {
                actions = step_state.write(step, registers, &first.text);
            }
            actions.push_str(&self.actions(step.table, next, traversal.terminal)?);
            let table = *self.numbers.get(&step.table)?;
            let filled = self.tables.get(&table);
            let other = |step_match: &StepMatch| {
                filled
                    .and_then(|filled| filled.get(&step_match.text))
                    .is_some_and(|rule| rule.2 != actions)
            };
            if matches.iter().any(other) {
                return None;
            }
            all.push(Projected { table, matches, actions });
        }
        Some(all)
    }

    /// Returns the actions of a rule: the next table or the end.
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
        // In OpenFlow, `goto_table` may lead only to later tables.
        Some(if next > here { format!("goto_table:{next}") } else { format!("resubmit(,{next})") })
    }

    /// Adds the missing rules of a step; returns the number of the first rule.
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

    /// Returns the rules in the order in which they were added.
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

/// The rules that a base rule needs in one table.
struct Projected {
    table: u8,
    matches: Vec<StepMatch>,
    actions: String,
}

/// Returns tables with several continuations that their fields do not distinguish.
///
/// Fields distinguish the continuations if all traversals match the same Ethernet addresses there:
/// each address belongs to one rule, which has one continuation. Otherwise a traversal may match
/// fewer fields than another, or prefixes or ranges within those of another. Packets of one
/// traversal would then match rules of the other.
fn undecided_tables(pipeline: &PipelineFile, traversals: &[&PipelineTraversal]) -> BTreeSet<u8> {
    let mut next: BTreeMap<u8, BTreeSet<Result<u8, Terminal>>> = BTreeMap::new();
    let mut matched: BTreeMap<u8, BTreeSet<Vec<&str>>> = BTreeMap::new();
    for traversal in traversals {
        for (place, step) in traversal.steps.iter().enumerate() {
            let later = traversal.steps.iter().skip(place);
            let after = later.map(|after| after.table).find(|table| *table != step.table);
            next.entry(step.table).or_default().insert(after.ok_or(traversal.terminal));
            // All packets of a workload are IPv4, so the EtherType distinguishes no packets.
            let fields = step.driven(&pipeline.driven_fields).map(Field::name);
            let mut fields: Vec<&str> = fields.filter(|field| *field != TYPE).collect();
            fields.sort_unstable();
            matched.entry(step.table).or_default().insert(fields);
        }
    }
    let is_decided = |table: &u8| {
        let mut matched = matched.get(table).into_iter().flatten();
        let first = matched.next().map_or(&[][..], Vec::as_slice);
        let is_exact = first.iter().all(|field| EXACT.contains(field));
        matched.next().is_none() && !first.is_empty() && is_exact
    };
    let forks = next.into_iter().filter(|(_, next)| next.len() > 1).map(|(table, _)| table);
    forks.filter(|table| !is_decided(table)).collect()
}

/// Returns tables in which some traversal matches the EtherType.
///
/// All rules of such a table then match the EtherType, so that equal matches have equal text.
fn tables_by_type(pipeline: &PipelineFile, traversals: &[&PipelineTraversal]) -> BTreeSet<u8> {
    let steps = traversals.iter().flat_map(|traversal| &traversal.steps);
    let asks = |step: &&TraversalStep| {
        step.driven(&pipeline.driven_fields).any(|field| field.name() == TYPE)
    };
    steps.filter(asks).map(|step| step.table).collect()
}

/// The field with the Ethernet type.
const TYPE: &str = "eth_type";
/// Fields that every rule matches exactly.
const EXACT: [&str; 2] = ["eth_src", "eth_dst"];

/// Returns new numbers for the used tables: 0 for the first, then in order.
fn new_numbers(
    pipeline: &PipelineFile,
    traversals: &[&PipelineTraversal],
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

/// Number of usable table ids.
///
/// Table 255 means all tables, and Open vSwitch hides table 254.
const TABLES_MAX: u8 = 254;

/// Returns the matched header fields of each step, without rewritten fields.
fn matched_fields(
    pipeline: &PipelineFile,
    traversal: &PipelineTraversal,
    form: RuleForm,
) -> Vec<Vec<FieldId>> {
    let fields = traversal.steps.iter().enumerate().map(|(place, step)| {
        let is_rewritten = |field: &&Field| {
            let mut before = traversal.steps.iter().take(place);
            form == RuleForm::Real && before.any(|before| StepState::rewrites(before, field))
        };
        let driven = step.driven(&pipeline.driven_fields).filter(|field| !is_rewritten(field));
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
