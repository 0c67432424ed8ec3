//! `pipebench names`: the syntax of workload names.

use crate::name::{KEYS, SOURCES};
use clap::Args;

/// List the parts of workload names: sources, localities, keys and their values.
#[derive(Debug, Args)]
pub(crate) struct NamesCommand {}

impl NamesCommand {
    /// Prints the words that the name of a workload can contain.
    pub(crate) fn run(self) -> miette::Result<()> {
        super::out::print(|out| {
            writeln!(out, "SOURCE[:LOCALITY][:FLOWS][:KEY=VALUE]..\n\nSOURCE")?;
            for source in SOURCES {
                writeln!(out, "  {:<16} {}", source.word, source.what)?;
            }
            writeln!(out, "  {:<16} your own pipeline", "PATH.json")?;
            for what in [
                "your own filters in one table, as ClassBench writes them; or filters generated",
                "from parameters of ClassBench; or the unchanged rules of a switch, as printed by",
                "`ovs-ofctl dump-flows`. The beginning of a file determines its kind.",
            ] {
                writeln!(out, "  {:<16} {what}", if what.starts_with('f') { "PATH" } else { "" })?;
            }
            writeln!(out, "\nLOCALITY")?;
            writeln!(
                out,
                "  {:<16} headers that recur among the rules are sampled more often",
                "high"
            )?;
            writeln!(out, "  {:<16} all headers are equally likely", "low")?;
            writeln!(out, "\nFLOWS              a number such as 500, 100k or 1m\n\nKEY=VALUE")?;
            for key in KEYS {
                writeln!(out, "  {:<16} {}", key.name, key.what)?;
                writeln!(out, "  {:<16}   {}", "", key.values)?;
            }
            Ok(())
        })
    }
}
