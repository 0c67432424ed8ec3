//! `pipebench describe`: properties of a pipeline, a rule set or a dump.

use std::path::PathBuf;

use crate::{
    classbench::{BuiltinSet, Filter, PUBLISHED, PublishedSet, Statistics},
    output::OutputFile,
    pipeline_file::{Builtin, PipelineDescription, PipelineFile, picture},
};
use clap::Args;
use miette::{IntoDiagnostic, miette};

use super::{
    input::{self, Content},
    out::{print, write_file},
    table::TextTable,
    workload::print_left_out,
};

/// Describe a pipeline, a rule set, or a dump of a switch's rules.
///
/// For a pipeline it prints tables, fields, paths, and the partition points where a path splits
/// into parts without a common field. For filters it prints properties that matter to a classifier,
/// next to sets of the original ClassBench. For a dump it prints tables, masks and next tables.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pipebench describe psc\n  pipebench describe \
                        my-pipeline.json --picture my-pipeline.svg\n  pipebench describe \
                        filters.txt\n  ovs-ofctl dump-flows br-int > br-int.flows && pipebench \
                        describe br-int.flows\n\nA minimal pipeline file:\n  {\"pipeline\": \
                        \"mine\",\n   \"tables\": [{\"id\": 0, \"match_fields\": [\"eth_src\"]}, \
                        {\"id\": 1, \"match_fields\": [\"ip_dst\"]}],\n   \"edges\": [[0, 1]],\n \
                          \"traversals\": [{\"id\": \"all\", \"terminal\": \"output\", \
                        \"steps\": [\n     {\"table\": 0, \"match\": [\"eth_src\"]}, {\"table\": \
                        1, \"match\": [\"ip_dst\"]}]}]}\nA filter file has one filter per line, \
                        the first with the highest priority:\n  @10.0.0.0/8  192.168.0.0/16  0 : \
                        65535  80 : 80  0x06/0xFF")]
pub(crate) struct DescribeCommand {
    /// A built-in pipeline (`pipebench list`), or a file: a pipeline as JSON, filters
    /// or parameters of ClassBench, or rules as `ovs-ofctl dump-flows` prints them
    what: String,
    /// Draw the graph of the pipeline's tables into this file, as SVG
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

impl DescribeCommand {
    /// Prints what a file contains, and draws a pipeline if a picture is requested.
    pub(crate) fn run(self) -> miette::Result<()> {
        if let Some(path) = &self.picture {
            OutputFile::check(path).into_diagnostic()?;
        }
        let content = self.content()?;
        let Content::Pipeline(pipeline) = content else { return self.describe(&content) };
        print(|out| write!(out, "{}", PipelineDescription(&pipeline)))?;
        match &self.picture {
            Some(path) => write_file(path, |out| out.write_all(picture(&pipeline).as_bytes())),
            None => Ok(()),
        }
    }

    /// Finds the pipeline or the rule set with the name, or reads the file.
    fn content(&self) -> miette::Result<Content> {
        if let Some(builtin) = Builtin::find(&self.what) {
            let pipeline = PipelineFile::parse(builtin.json).into_diagnostic()?;
            return Ok(Content::Pipeline(Box::new(pipeline)));
        }
        let set = BuiltinSet::ALL.into_iter().find(|set| set.name() == self.what);
        set.map_or_else(
            || input::read(&self.what),
            |set| Ok(Content::Parameters(Box::new(set.parameters()))),
        )
    }

    /// Describes content other than a pipeline.
    fn describe(&self, content: &Content) -> miette::Result<()> {
        if self.picture.is_some() {
            return Err(miette!(
                "only pipelines have a picture, and `{}` is not a pipeline",
                self.what
            ));
        }
        print(|out| match content {
            Content::Pipeline(pipeline) => write!(out, "{}", PipelineDescription(pipeline)),
            Content::Filters(filters) => write!(out, "{}", statistics(filters)),
            Content::Parameters(parameters) => write!(out, "{parameters}"),
            Content::Rules(dump) => write!(out, "{dump}"),
        })?;
        if let Content::Rules(dump) = content {
            print_left_out(dump.left_out());
        }
        Ok(())
    }
}

/// Returns statistics of filters.
/// The statistics are next to those of the original generator's sets of similar size.
pub(crate) fn statistics(filters: &[Filter]) -> String {
    let statistics = Statistics::of(filters);
    let sizes = PUBLISHED.iter().map(|set| set.requested);
    let away = |size: u32| filters.len().abs_diff(size as usize);
    let size = sizes.min_by_key(|size| away(*size)).unwrap_or(0);
    let range = |family: &str, of: fn(&PublishedSet) -> f64| {
        let sets = PUBLISHED.iter();
        let sets = sets.filter(|set| set.requested == size && set.seed.starts_with(family));
        let (least, most) =
            sets.map(of).fold((f64::MAX, 0.0_f64), |(least, most), n| (least.min(n), most.max(n)));
        let (least, most) = (format_short(least), format_short(most));
        if least == most { least } else { format!("{least} to {most}") }
    };
    let size_name = format!("original of {size}:");
    let mut table = TextTable::new(["", "this set", &size_name, "", ""]);
    table.row(["", "", "acl", "fw", "ipc"]);
    let mut line = |what: &str, ours: f64, of: fn(&PublishedSet) -> f64| {
        let ranges = ["acl", "fw", "ipc"].map(|family| range(family, of));
        let [acl, fw, ipc] = ranges;
        table.row([what, &format_short(ours), &acl, &fw, &ipc]);
    };
    // Numbers beyond 4 billion do not occur: filters are in memory.
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    line("filters", count(statistics.rules), |set| set.rules.into());
    line("pairs of prefix lengths", count(statistics.address_pairs), |set| {
        set.address_pairs.into()
    });
    line("masks, if each port range is one", count(statistics.masks), |set| set.masks.into());
    line("masks, if port ranges match any port", count(statistics.masks_without_ranges), |set| {
        set.masks_without_ranges.into()
    });
    line("masked matches per filter", statistics.expansion, |set| set.expansion);
    line("independent, % of filters", statistics.independent * 100.0, |set| {
        set.independent * 100.0
    });
    let mut text = table.to_string();
    text.push_str(&format!(
        "field with the most independent filters: {}\n",
        statistics.independent_in
    ));
    let names = ["destination", "+ source", "+ protocol", "+ destination port", "all five"];
    for (name, recurrence) in names.iter().zip(statistics.recurrence) {
        text.push_str(&format!("recurrence, {name}: {recurrence:.2}\n"));
    }
    text
}

/// Formats a number with few digits.
fn format_short(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number}") } else { format!("{number:.2}") }
}
