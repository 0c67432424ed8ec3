//! `pipebench rules`: filters, and rules that fill a pipeline.

use crate::{
    Progress, Seed,
    classbench::{Filter, FilterRequest, generate},
    name::parse_count,
    pipeline_file::PipelineFile,
    populate::{Population, PopulationCounts, RuleForm, TraversalSelection, populate, sampled},
};
use clap::{Args, ValueEnum};
use miette::IntoDiagnostic;

use super::{
    describe::statistics,
    input::{self, FilterSource},
    out::OutputDestination,
    table::TextTable,
};

/// Generate a ClassBench rule set, or fill the tables of a pipeline from one.
///
/// Without `--pipeline` it writes filters, one per line, the first with the highest priority. With
/// it, it writes OpenFlow rules for `ovs-ofctl add-flows`: from each filter of a file, or from
/// COUNT filters sampled from the generated ones, as published. The priorities of rules depend on
/// how specific the rules are, not on the order of the filters. Statistics go to standard error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pipebench rules acl --count 10000 --seed 1 --out acl.filters\n  \
    pipebench rules my_seed --count 1000 --address-scope 0.5 > my.filters\n  \
    pipebench rules of --pipeline psc --out psc.rules\n  \
    pipebench rules my.filters --pipeline my-pipeline.json --traversals all > my.rules\n  \
    ovs-ofctl -O OpenFlow13 add-flows br0 psc.rules")]
pub(crate) struct RulesCommand {
    /// acl, fw, ipc or of; or a file: parameters of ClassBench to generate filters
    /// from, or filters
    filters: String,
    /// Number of filters to generate, as in 500, 100k or 1m; duplicates are dropped,
    /// so the result is slightly smaller [default: 10k]
    #[arg(long, value_parser = parse_filter_count)]
    count: Option<u32>,
    /// Seed of all randomness: the same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Maximum difference of prefix lengths from the parameters in bits, 0 to 64
    /// [default: 2]
    #[arg(long)]
    smoothness: Option<u8>,
    /// Lengths of prefixes, from -1 (longer) to 1 (shorter) [default: 0.5]
    #[arg(long, allow_hyphen_values = true)]
    address_scope: Option<f64>,
    /// Widths of port ranges, from -1 (narrower) to 1 (wider) [default: -0.1]
    #[arg(long, allow_hyphen_values = true)]
    port_scope: Option<f64>,
    /// Fill this pipeline: one of `pipebench list`, or a JSON file
    #[arg(long, value_name = "PIPELINE")]
    pipeline: Option<String>,
    /// Traversals of the pipeline that get rules
    #[arg(long, value_enum, default_value_t = Traversals::Forwarding, requires = "pipeline")]
    traversals: Traversals,
    /// Actions that the rules of the pipeline use
    #[arg(long, value_enum, default_value_t = FormName::Plain, requires = "pipeline")]
    form: FormName,
    #[command(flatten)]
    out: OutputDestination,
}

/// Default number of filters.
const COUNT: u32 = 10_000;

/// Parses a number of filters in the syntax of names.
fn parse_filter_count(text: &str) -> Result<u32, String> {
    let number = parse_count(text).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| "write a number, as in 500, 100k or 1m".to_owned())
}

/// Traversals that get rules.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Traversals {
    /// Traversals that forward, as in published workloads
    Forwarding,
    /// All traversals, including those that drop, answer or ask the controller
    All,
}

/// Actions that the rules use.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormName {
    /// Only matches and `goto_table`, as in published workloads
    Plain,
    /// Also use registers and marks, and rewrite headers
    Real,
}

impl From<FormName> for RuleForm {
    fn from(name: FormName) -> Self {
        match name {
            FormName::Plain => Self::Plain,
            FormName::Real => Self::Real,
        }
    }
}

impl RulesCommand {
    /// Writes filters, or the rules of a pipeline filled with them, and statistics.
    #[expect(
        clippy::print_stderr,
        reason = "rules go to standard output, messages to standard \
                                         error"
    )]
    pub(crate) fn run(self) -> miette::Result<()> {
        self.out.check()?;
        let seed = Seed::new(self.seed);
        let pipeline = self.pipeline.as_deref().map(input::pipeline).transpose()?;
        let (mut filters, are_made) = self.filters(seed)?;
        let Some(pipeline) = pipeline else {
            self.write(&filters)?;
            eprint!("{}", statistics(&filters));
            return Ok(());
        };
        if are_made {
            filters = sampled(&filters, self.count.unwrap_or(COUNT), seed);
        }
        let filling = match self.traversals {
            Traversals::Forwarding => TraversalSelection::Forwarding,
            Traversals::All => TraversalSelection::All,
        };
        let progress = Progress::new("rules", 0);
        let population = populate(&pipeline, &filters, filling, self.form.into(), seed, &progress)
            .into_diagnostic()?;
        drop(progress);
        self.write(population.rules())?;
        eprint!("{}", counts(&pipeline, &population, filters.len()));
        Ok(())
    }

    #[expect(
        clippy::print_stderr,
        reason = "rules go to standard output, messages to standard \
                                         error"
    )]
    /// Returns the filters, and whether they were generated.
    fn filters(&self, seed: Seed) -> miette::Result<(Vec<Filter>, bool)> {
        let parameters = match input::filter_source(&self.filters)? {
            FilterSource::Parameters(parameters) => parameters,
            FilterSource::Filters(filters) => {
                self.refuse_options_of_making()?;
                return Ok((filters, false));
            }
        };
        let count = self.count.unwrap_or(COUNT);
        let usual = FilterRequest::new(count);
        let request = FilterRequest {
            rules: count,
            smoothness: self.smoothness.unwrap_or(usual.smoothness),
            address_scope: self.address_scope.unwrap_or(usual.address_scope),
            port_scope: self.port_scope.unwrap_or(usual.port_scope),
        };
        let progress = Progress::new("filters", count.into());
        let filters = generate(&parameters, &request, seed, &progress).into_diagnostic()?;
        let seconds = progress.elapsed().as_secs_f64();
        eprintln!("{} filters of {count} in {seconds:.2} s", filters.len());
        Ok((filters, true))
    }

    /// Refuses options for generating filters if a file provides filters.
    fn refuse_options_of_making(&self) -> miette::Result<()> {
        let given = [
            ("--count", self.count.is_some()),
            ("--smoothness", self.smoothness.is_some()),
            ("--address-scope", self.address_scope.is_some()),
            ("--port-scope", self.port_scope.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(miette::miette!(
                "{} has filters, which are taken as they are: leave out {option}",
                self.filters
            )),
            None => Ok(()),
        }
    }

    /// Writes lines to the output file, or to standard output.
    fn write(&self, lines: &[impl std::fmt::Display]) -> miette::Result<()> {
        self.out.write(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))
    }
}

/// Returns the counts of a filled pipeline, next to published counts.
fn counts(pipeline: &PipelineFile, population: &Population, filters: usize) -> String {
    let counts: PopulationCounts = population.counts();
    let published = pipeline.published_counts;
    let number = |count: Option<usize>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut table = TextTable::new([&pipeline.pipeline, "here", "in the file", "published"]);
    let mut row = |what: &str, here: usize, file: Option<usize>, published: Option<usize>| {
        table.row([what, &here.to_string(), &number(file), &number(published)]);
    };
    let tables = (pipeline.tables.len(), published.map(|published| published.tables));
    row("tables", counts.tables, Some(tables.0), tables.1);
    let traversals = (pipeline.traversals.len(), published.map(|published| published.traversals));
    row("traversals", counts.traversals, Some(traversals.0), traversals.1);
    row("rules", counts.rules, None, None);
    row("unique traversals by rule", counts.whole, None, None);
    row("unique sub-traversals by rule", counts.parts, None, None);
    row("filters without a traversal", counts.rejected, None, None);
    let mut text = table.to_string();
    let combinations = counts.combinations;
    text.push_str(&format!("{combinations} traversals can be combined from those parts\n"));
    if let Some(published) = pipeline.published_rules(filters) {
        text.push_str(&format!(
            "about {published:.0} rules were published for this number of \
                                filters\n"
        ));
    }
    for (number, id) in population.tables() {
        let name = pipeline.table(*id).map_or("", |table| &table.name);
        text.push_str(&format!("table={number} is {id} {name}\n"));
    }
    text
}
