//! Properties of the workloads, compared with published properties of their originals.
//!
//! Counts do not vary, so one round is enough.

use shunt_pipebench::{
    Progress, Seed,
    classbench::{BuiltinSet, FilterRequest, generate, tuple_recurrence},
    published::Figure,
    statistics::{FlowTraversals, StatisticRow as Statistic},
    workload::Workload,
};

use super::{
    characterisation::{self, HITS, MISSES},
    loaded::{LOCALITIES, PIPELINES, published_name, workload},
};
use crate::experiment::{Better, Row, Run, Samples};

/// Number of filters in figure 3.5 of the thesis, about the recurrence of tuples.
const FILTERS: u32 = 200_000;

const TABLES: &str = "tables in the pipeline file";
const TRAVERSALS: &str = "traversals in the pipeline file";
const FORWARDING: &str = "traversals in the pipeline file that forward the packet";
const RULES: &str = "rules from 10,000 filters";
const DISTINCT_TRAVERSALS: &str = "distinct traversals, compared by their rules";
const PARTS: &str = "distinct sub-traversals, compared by their rules";
const FLOWS: &str = "flows";
const PACKETS: &str = "packets";
const ENTRIES: &str = "entries of an unbounded cache";
const MASKS: &str = "masks of the entries of an unbounded cache";
const SHARING: &str = "table lookups for each distinct visit";
const FORWARDED: &str = "flows that are forwarded";
const RECURRENCE: &str =
    "filters with the same values of these header fields, mean over 200,000 filters";

/// Runs all measurements.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * LOCALITIES.len() + BuiltinSet::ALL.len());
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for locality in LOCALITIES {
            let name = published_name(pipeline, locality, run.either(1, 10));
            let workload = run.step(&name, |_| workload(&name));
            if locality == LOCALITIES[0] {
                rows.extend(of_rules(pipeline, &workload));
            }
            rows.extend(of_flows(pipeline, locality, &workload, run.is_quick));
        }
    }
    for set in BuiltinSet::ALL {
        rows.extend(run.step(set.name(), |_| recurrence(set)));
    }
    let order = [
        TABLES,
        TRAVERSALS,
        FORWARDING,
        RULES,
        HITS,
        MISSES,
        DISTINCT_TRAVERSALS,
        PARTS,
        FLOWS,
        PACKETS,
        ENTRIES,
        MASKS,
        SHARING,
        FORWARDED,
        RECURRENCE,
    ];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

fn row(name: &str, metric: &'static str, value: f64, published: Option<&Figure>) -> Row {
    let published = published.map(|figure| figure.value);
    let (better, ours) = (Better::Neither, Samples::from(value));
    let row = Row { better, ours, ..Row::new(name, metric, unit(metric)) };
    row.beside_published(published, reason(name, metric))
}

fn unit(metric: &str) -> &'static str {
    match metric {
        FORWARDED => "%",
        SHARING => "each",
        _ => "",
    }
}

/// Returns the reason for a difference of more than 10 %.
fn reason(name: &str, metric: &str) -> &'static str {
    match (name.split(':').next().unwrap_or_default(), metric) {
        ("ant", RULES) => {
            "the published number is 1.4 rules per filter over 22 tables, so most tables must \
             match few fields. The traversals and fields are not published. Those of Antrea's \
             document match address pairs in seven tables"
        }
        ("acl" | "fw" | "ipc" | "of", RECURRENCE) => {
            "a mean over all choices of fields, dominated by the small number of protocols and \
             ports; it is another rule set, with unpublished parameters"
        }
        _ => "",
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn of_rules(pipeline: &str, workload: &Workload) -> Vec<Row> {
    let Some(counts) = workload.counts() else { return Vec::new() };
    let published = |metric, configuration| Figure::find(metric, pipeline, "-", configuration);
    let file = shunt_pipebench::pipeline_file::Builtin::find(pipeline);
    let file =
        file.and_then(|file| shunt_pipebench::pipeline_file::PipelineFile::parse(file.json).ok());
    let (tables, traversals) =
        file.map_or((0, 0), |file| (file.tables.len(), file.traversals.len()));
    vec![
        row(pipeline, TABLES, tables as f64, published("tables", "-")),
        row(pipeline, TRAVERSALS, traversals as f64, published("traversals", "-")),
        row(pipeline, FORWARDING, counts.traversals as f64, None),
        row(pipeline, RULES, counts.rules as f64, published("rules", "10K filters")),
        row(pipeline, DISTINCT_TRAVERSALS, counts.whole as f64, None),
        row(pipeline, PARTS, counts.parts as f64, None),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn of_flows(pipeline: &str, locality: &str, workload: &Workload, is_quick: bool) -> Vec<Row> {
    let name = format!("{pipeline}:{locality}");
    let rules = workload.base_rules().map(|rule| rule.text.as_str());
    let fates = FlowTraversals::of(rules, workload.flows(), &Progress::hidden());
    let fates = fates.unwrap_or_else(|error| panic!("{name}: {error}"));
    let statistics = fates.rows(workload.classes());
    let statistic = |what: &str| {
        let found = statistics.iter().find(|row: &&Statistic| row.what == what);
        found.map_or(0.0, |row| row.value)
    };
    let entry_of = fates.entry_of_flows();
    let cached = characterisation::of_packets(pipeline, locality, workload, entry_of, is_quick);
    let mut rows = vec![
        row(&name, FLOWS, workload.flows().len() as f64, None),
        row(&name, PACKETS, workload.packets().count() as f64, None),
        row(&name, ENTRIES, fates.entries() as f64, None),
        row(&name, MASKS, fates.masks() as f64, None),
        row(&name, SHARING, statistic("table lookups for each distinct visit"), None),
        row(&name, FORWARDED, statistic("flows that are forwarded"), None),
    ];
    rows.extend(cached.into_iter().filter(|row| row.published.is_some()));
    rows
}

/// Measures the number of filters that share a tuple.
fn recurrence(set: BuiltinSet) -> [Row; 2] {
    let (parameters, request) = (set.parameters(), FilterRequest::new(FILTERS));
    let filters = generate(&parameters, &request, Seed::new(1), &Progress::hidden());
    let filters = filters.unwrap_or_else(|error| panic!("{set}: {error}"));
    let [one, two, three, four, five] = tuple_recurrence(&filters);
    // The mean over all 30 choices of one to four fields.
    let some = (5.0 * one + 10.0 * two + 10.0 * three + 5.0 * four) / 30.0;
    let published =
        |fields| Figure::find("header_tuple_recurrence", "ClassBench 200K", "-", fields);
    let of =
        |fields: &str, value, figure| row(&format!("{set}:{fields}"), RECURRENCE, value, figure);
    [
        of("one to four fields", some, published("1-4 headers (average)")),
        of("all five", five, published("5-tuple")),
    ]
}
