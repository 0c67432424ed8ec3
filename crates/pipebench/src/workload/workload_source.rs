//! Creates the rules of a workload name, and the source of its flows.

use std::collections::BTreeMap;

use shunt_flow::{FieldId, PortNo};

use super::{RuleLine, filters::tuple};
use crate::{
    DumpError, Progress, WorkloadError,
    classbench::{BuiltinSet, Filter, FilterRequest, Parameters, generate, read_filters},
    input::{Input, InputKind},
    name::{FilterName, Terminals, WorkloadName},
    pipeline_file::{Builtin, PipelineFile},
    populate::{
        BaseRule, PopulatedPath, PopulatedRule, PopulationCounts, TraversalSelection, populate,
        sampled,
    },
    statistics::FlowOrigin,
    traffic::{FlowClass, FlowSource, Span, Tuple},
};

/// Rules, and the source of flows that match them.
#[derive(Default)]
pub(super) struct WorkloadSource {
    pub(super) rules: Vec<RuleLine>,
    pub(super) flows: FlowSource,
    /// The intended sequence of tables of each class of flows, if any.
    pub(super) class_tables: Vec<Vec<u8>>,
    /// Details of a filled pipeline, if the workload has a pipeline.
    pub(super) filled: Option<FilledPipeline>,
    /// Errors of dump rules that were left out.
    pub(super) left_out: Vec<DumpError>,
}

/// Details of a filled pipeline.
#[derive(Clone, Debug)]
pub(super) struct FilledPipeline {
    pub(super) counts: PopulationCounts,
    /// The name in the pipeline file of each table of the rules.
    pub(super) tables: BTreeMap<u8, String>,
    /// The published number of rules, scaled to the number of filters.
    pub(super) published_rules: Option<f64>,
}

impl WorkloadSource {
    /// Creates one table of filters, or the rules of a switch if the file is a dump.
    pub(super) fn of_filters(
        filters: &FilterName,
        name: &WorkloadName,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        if let FilterName::File(path) = filters {
            let input = Input::read(path)?;
            match input.kind() {
                InputKind::Rules => {
                    return Self::of_switch(&input.text)
                        .map_err(|problem| WorkloadError::Dump { path: input.path, problem });
                }
                InputKind::Pipeline => {
                    let (what, instead) = ("a pipeline", "ends in .json");
                    return Err(WorkloadError::Misnamed { path: input.path, what, instead });
                }
                InputKind::Parameters | InputKind::Filters => {}
            }
        }
        Self::one_table(&Filters::of(filters, name, progress)?.all)
    }

    /// Creates the rules and flows of a built-in pipeline.
    pub(super) fn of_builtin(
        word: &str,
        name: &WorkloadName,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let json = Builtin::find(word).map_or("", |builtin| builtin.json);
        Self::of_pipeline(word, json, name, progress)
    }

    /// Creates the rules and flows of a pipeline file.
    pub(super) fn of_file(
        path: &str,
        name: &WorkloadName,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let input = Input::read(path)?;
        let what = match input.kind() {
            InputKind::Rules => Some("a dump of rules"),
            InputKind::Parameters => Some("parameters of ClassBench"),
            InputKind::Filters if input.text.trim_start().starts_with('@') => Some("filters"),
            // For any other content, the parser of pipelines reports an error.
            InputKind::Pipeline | InputKind::Filters => None,
        };
        if let Some(what) = what {
            let instead = "does not end in .json";
            return Err(WorkloadError::Misnamed { path: input.path, what, instead });
        }
        Self::of_pipeline(path, &input.text, name, progress)
    }

    /// Creates a filled pipeline, and flows of each of its traversals.
    fn of_pipeline(
        what: &str,
        text: &str,
        name: &WorkloadName,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let wrong = |problem| WorkloadError::Pipeline { path: what.to_owned(), problem };
        let pipeline = PipelineFile::parse(text).map_err(|problem| wrong(Box::new(problem)))?;
        let Filters { all: mut filters, are_made } = Filters::of(&name.filters, name, progress)?;
        if are_made {
            filters = sampled(&filters, name.rules, name.seed_of());
        }
        let filling = match name.terminals {
            Terminals::Output => TraversalSelection::Forwarding,
            Terminals::All => TraversalSelection::All,
        };
        let seed = name.seed_of().child("populate");
        let population = populate(&pipeline, &filters, filling, name.form, seed, progress)?;
        let tuples: Vec<Tuple> = population.base().iter().map(matched_values).collect();
        let class = |path: &PopulatedPath| {
            let rules = path.base_rules.iter().filter_map(|rule| tuples.get(*rule));
            let rules: Vec<Tuple> = rules.cloned().collect();
            let port = PortNo::new(path.in_port.into());
            FlowClass::of_traversal(path.id.clone(), port, &path.fields, &rules)
        };
        let classes = population.paths().iter().map(class).collect();
        let class_tables = population.paths().iter().map(|path| path.tables.clone()).collect();
        let line = |rule: &PopulatedRule| RuleLine { table: rule.table, text: rule.to_string() };
        let rules = population.rules().iter().map(line).collect();
        let called = |(number, id): (&u8, &u8)| {
            let name = pipeline.table(*id).map_or("", |table| &table.name);
            (*number, format!("{id} {name}").trim().to_owned())
        };
        let filled = FilledPipeline {
            counts: population.counts(),
            tables: population.tables().iter().map(called).collect(),
            published_rules: pipeline.published_rules(filters.len()),
        };
        let flows = FlowSource { classes };
        Ok(Self { rules, flows, class_tables, filled: Some(filled), left_out: Vec::new() })
    }

    /// Returns the classes of flows, with their intended sequences of tables.
    pub(super) fn classes(&self) -> Vec<FlowOrigin> {
        let class_tables =
            self.class_tables.iter().cloned().map(Some).chain(std::iter::repeat(None));
        let classes = self.flows.classes.iter().zip(class_tables);
        classes
            .map(|(class, table_ids)| FlowOrigin { name: class.name.clone(), table_ids })
            .collect()
    }
}

/// Returns the header values that a base rule matches.
fn matched_values(rule: &BaseRule) -> Tuple {
    let exact = |field, value: u64| Span { field, low: value.into(), high: value.into() };
    let macs = [exact(FieldId::EthSrc, rule.eth_src), exact(FieldId::EthDst, rule.eth_dst)];
    macs.into_iter().chain(tuple(&rule.filter)).collect()
}

/// The filters of a workload, and their origin.
struct Filters {
    all: Vec<Filter>,
    /// True if the filters were generated; false if they come from a file.
    are_made: bool,
}

impl Filters {
    /// Reads or generates the filters that a name describes.
    fn of(
        filters: &FilterName,
        name: &WorkloadName,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let set = match filters {
            FilterName::Acl => BuiltinSet::Acl,
            FilterName::Firewall => BuiltinSet::Firewall,
            FilterName::Ipc => BuiltinSet::Ipc,
            FilterName::OpenFlow => BuiltinSet::OpenFlow,
            FilterName::File(path) => return Self::of_file(&Input::read(path)?, name, progress),
        };
        Self::generate(&set.parameters(), name, progress)
    }

    /// Reads the filters of a file.
    fn of_file(
        input: &Input,
        name: &WorkloadName,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let path = || input.path.clone();
        if input.kind() == InputKind::Parameters {
            let wrong = |problem| WorkloadError::Parameters { path: path(), problem };
            let parameters =
                Parameters::parse(&input.text).map_err(|problem| wrong(Box::new(problem)))?;
            return Self::generate(&parameters, name, progress);
        }
        let all = read_filters(&input.text)
            .map_err(|problem| WorkloadError::Filters { path: path(), problem })?;
        Ok(Self { all, are_made: false })
    }

    /// Generates filters from parameters.
    fn generate(
        parameters: &Parameters,
        name: &WorkloadName,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let (request, seed) = (FilterRequest::new(name.rules), name.seed_of().child("filters"));
        progress.expect(name.rules.into());
        let all = generate(parameters, &request, seed, progress)?;
        Ok(Self { all, are_made: true })
    }
}
