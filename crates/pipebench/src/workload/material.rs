//! What the rules of a name are, and what its flows are drawn from.

use std::collections::BTreeMap;

use shunt_flow::{FieldId, PortNo};

use super::{RuleLine, filters::tuple};
use crate::{
    DumpError, Progress, WorkloadError,
    classbench::{BuiltinSet, Filter, Parameters, Request, generate, read_filters},
    input::{Input, InputKind},
    name::{FilterName, Name, Terminals},
    pipeline_file::{Builtin, PipelineFile},
    populate::{BaseRule, Counts, Filling, PopulatedPath, PopulatedRule, drawn, populate},
    statistics::Class,
    traffic::{FlowClass, FlowSource, Span, Tuple},
};

/// Rules, and what flows that match them are drawn from.
#[derive(Default)]
pub(super) struct Material {
    pub(super) rules: Vec<RuleLine>,
    pub(super) flows: FlowSource,
    /// The way that flows of each class are meant to take, if one is.
    pub(super) ways: Vec<Vec<u8>>,
    /// Of a filled pipeline.
    pub(super) filled: Option<Filled>,
    /// Rules of a dump that were left out.
    pub(super) left_out: Vec<DumpError>,
}

/// What there is to know of a filled pipeline.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    pub(super) counts: Counts,
    /// What the file calls each table of the rules.
    pub(super) tables: BTreeMap<u8, String>,
    /// How many rules were published for as many filters.
    pub(super) published_rules: Option<f64>,
}

impl Material {
    /// One table of filters, or the rules of a switch: whichever a file has.
    pub(super) fn of_filters(
        filters: &FilterName,
        name: &Name,
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

    /// A pipeline that comes with the crate.
    pub(super) fn of_builtin(
        word: &str,
        name: &Name,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let json = Builtin::find(word).map_or("", |builtin| builtin.json);
        Self::of_pipeline(word, json, (name, progress))
    }

    /// A pipeline in a file.
    pub(super) fn of_file(
        path: &str,
        name: &Name,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let input = Input::read(path)?;
        let what = match input.kind() {
            InputKind::Rules => Some("a dump of rules"),
            InputKind::Parameters => Some("parameters of ClassBench"),
            InputKind::Filters if input.text.trim_start().starts_with('@') => Some("filters"),
            // Whatever else it is, whoever reads it says what is wrong.
            InputKind::Pipeline | InputKind::Filters => None,
        };
        if let Some(what) = what {
            let instead = "does not end in .json";
            return Err(WorkloadError::Misnamed { path: input.path, what, instead });
        }
        Self::of_pipeline(path, &input.text, (name, progress))
    }

    /// A pipeline filled with rules, and flows of each of its traversals.
    fn of_pipeline(
        what: &str,
        text: &str,
        (name, progress): (&Name, &Progress),
    ) -> Result<Self, WorkloadError> {
        let wrong = |problem| WorkloadError::Pipeline { path: what.to_owned(), problem };
        let pipeline = PipelineFile::parse(text).map_err(|problem| wrong(Box::new(problem)))?;
        let Filters { all: mut filters, are_made } = Filters::of(&name.filters, name, progress)?;
        if are_made {
            filters = drawn(&filters, name.rules, name.seed_of());
        }
        let filling = match name.terminals {
            Terminals::Output => Filling::Forwarding,
            Terminals::All => Filling::All,
        };
        let seed = name.seed_of().child("populate");
        let population = populate(&pipeline, &filters, (filling, name.form), seed, progress)?;
        let tuples: Vec<Tuple> = population.base().iter().map(whole).collect();
        let class = |path: &PopulatedPath| {
            let rules = path.base_rules.iter().filter_map(|rule| tuples.get(*rule));
            let rules: Vec<Tuple> = rules.cloned().collect();
            let port = PortNo::new(path.in_port.into());
            FlowClass::of_traversal(path.id.clone(), port, &path.fields, &rules)
        };
        let classes = population.paths().iter().map(class).collect();
        let ways = population.paths().iter().map(|path| path.tables.clone()).collect();
        let line = |rule: &PopulatedRule| RuleLine { table: rule.table, text: rule.to_string() };
        let rules = population.rules().iter().map(line).collect();
        let called = |(number, id): (&u8, &u8)| {
            let name = pipeline.table(*id).map_or("", |table| &table.name);
            (*number, format!("{id} {name}").trim().to_owned())
        };
        let filled = Filled {
            counts: population.counts(),
            tables: population.tables().iter().map(called).collect(),
            published_rules: pipeline.published_rules(filters.len()),
        };
        let flows = FlowSource { classes };
        Ok(Self { rules, flows, ways, filled: Some(filled), left_out: Vec::new() })
    }

    /// What flows are drawn from, and the way that they are meant to take.
    pub(super) fn classes(&self) -> Vec<Class> {
        let ways = self.ways.iter().cloned().map(Some).chain(std::iter::repeat(None));
        let classes = self.flows.classes.iter().zip(ways);
        classes.map(|(class, way)| Class { name: class.name.clone(), way }).collect()
    }
}

/// What a base rule asks of the headers.
fn whole(rule: &BaseRule) -> Tuple {
    let exact = |field, value: u64| Span { field, low: value.into(), high: value.into() };
    let macs = [exact(FieldId::EthSrc, rule.eth_src), exact(FieldId::EthDst, rule.eth_dst)];
    macs.into_iter().chain(tuple(&rule.filter)).collect()
}

/// The filters of a name.
struct Filters {
    all: Vec<Filter>,
    /// Whether they were made, or else are all that a file has.
    are_made: bool,
}

impl Filters {
    fn of(filters: &FilterName, name: &Name, progress: &Progress) -> Result<Self, WorkloadError> {
        let set = match filters {
            FilterName::Acl => BuiltinSet::Acl,
            FilterName::Firewall => BuiltinSet::Firewall,
            FilterName::Ipc => BuiltinSet::Ipc,
            FilterName::OpenFlow => BuiltinSet::OpenFlow,
            FilterName::File(path) => return Self::of_file(&Input::read(path)?, name, progress),
        };
        Self::made(&set.parameters(), name, progress)
    }

    fn of_file(input: &Input, name: &Name, progress: &Progress) -> Result<Self, WorkloadError> {
        let path = || input.path.clone();
        if input.kind() == InputKind::Parameters {
            let wrong = |problem| WorkloadError::Parameters { path: path(), problem };
            let parameters =
                Parameters::parse(&input.text).map_err(|problem| wrong(Box::new(problem)))?;
            return Self::made(&parameters, name, progress);
        }
        let all = read_filters(&input.text)
            .map_err(|problem| WorkloadError::Filters { path: path(), problem })?;
        Ok(Self { all, are_made: false })
    }

    fn made(
        parameters: &Parameters,
        name: &Name,
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let (request, seed) = (Request::new(name.rules), name.seed_of().child("filters"));
        progress.expect(name.rules.into());
        let all = generate(parameters, &request, seed, progress)?;
        Ok(Self { all, are_made: true })
    }
}
