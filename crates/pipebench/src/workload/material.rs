//! What the rules of a name are, and what its flows are drawn from.

use std::fs;

use shunt_flow::{FieldId, PortNo};

use super::{RuleLine, filters::tuple};
use crate::{
    Progress, WorkloadError,
    classbench::{BuiltinSet, Filter, Request, generate, read_filters},
    name::{FilterName, Name, Terminals},
    pipeline_file::{Builtin, PipelineFile},
    populate::{BaseRule, Counts, Filling, PopulatedPath, PopulatedRule, drawn, populate},
    traffic::{FlowClass, FlowSource, Span, Tuple},
};

/// Rules, and what flows that match them are drawn from.
pub(super) struct Material {
    pub(super) rules: Vec<RuleLine>,
    pub(super) flows: FlowSource,
    /// Of a filled pipeline.
    pub(super) counts: Option<Counts>,
}

impl Material {
    /// One table of filters.
    pub(super) fn of_filters(filters: &FilterName, name: &Name) -> Result<Self, WorkloadError> {
        Ok(Self::one_table(&filters_of(filters, name)?))
    }

    /// A pipeline that comes with the crate.
    pub(super) fn of_builtin(word: &str, name: &Name) -> Result<Self, WorkloadError> {
        let json = Builtin::find(word).map_or("", |builtin| builtin.json);
        Self::of_pipeline(word, json, name)
    }

    /// A pipeline in a file.
    pub(super) fn of_file(path: &str, name: &Name) -> Result<Self, WorkloadError> {
        Self::of_pipeline(path, &read(path)?, name)
    }

    /// A pipeline filled with rules, and flows of each of its traversals.
    fn of_pipeline(what: &str, text: &str, name: &Name) -> Result<Self, WorkloadError> {
        let wrong = |problem| WorkloadError::Pipeline { path: what.to_owned(), problem };
        let pipeline = PipelineFile::parse(text).map_err(wrong)?;
        let mut filters = filters_of(&name.filters, name)?;
        if !matches!(name.filters, FilterName::File(_)) {
            filters = drawn(&filters, name.rules, name.seed_of());
        }
        let filling = match name.terminals {
            Terminals::Output => Filling::Forwarding,
            Terminals::All => Filling::All,
        };
        let population =
            populate(&pipeline, &filters, (filling, name.form), name.seed_of().child("populate"))?;
        let tuples: Vec<Tuple> = population.base().iter().map(whole).collect();
        let class = |path: &PopulatedPath| {
            let rules = path.base_rules.iter().filter_map(|rule| tuples.get(*rule));
            let rules: Vec<Tuple> = rules.cloned().collect();
            let port = PortNo::new(path.in_port.into());
            FlowClass::of_traversal(path.id.clone(), port, &path.fields, &rules)
        };
        let classes = population.paths().iter().map(class).collect();
        let line = |rule: &PopulatedRule| RuleLine { table: rule.table, text: rule.to_string() };
        let rules = population.rules().iter().map(line).collect();
        let counts = Some(population.counts());
        Ok(Self { rules, flows: FlowSource { classes }, counts })
    }
}

/// What a base rule asks of the headers.
fn whole(rule: &BaseRule) -> Tuple {
    let exact = |field, value: u64| Span { field, low: value.into(), high: value.into() };
    let macs = [exact(FieldId::EthSrc, rule.eth_src), exact(FieldId::EthDst, rule.eth_dst)];
    macs.into_iter().chain(tuple(&rule.filter)).collect()
}

fn read(path: &str) -> Result<String, WorkloadError> {
    fs::read_to_string(path)
        .map_err(|source| WorkloadError::Unreadable { path: path.to_owned(), source })
}

/// The filters of a name: made, or all that a file has.
fn filters_of(filters: &FilterName, name: &Name) -> Result<Vec<Filter>, WorkloadError> {
    let set = match filters {
        FilterName::Acl => BuiltinSet::Acl,
        FilterName::Firewall => BuiltinSet::Firewall,
        FilterName::Ipc => BuiltinSet::Ipc,
        FilterName::OpenFlow => BuiltinSet::OpenFlow,
        FilterName::File(path) => {
            return read_filters(&read(path)?)
                .map_err(|problem| WorkloadError::Filters { path: path.clone(), problem });
        }
    };
    let request = Request::new(name.rules);
    Ok(generate(&set.parameters(), &request, name.seed_of().child("filters"), &Progress::hidden())?)
}
