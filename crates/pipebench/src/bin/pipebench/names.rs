//! `pipebench names`: everything that the name of a workload can say.

use clap::Args;
use shunt_pipebench::name::{KEYS, SOURCES};

/// Lists what the name of a workload can say: sources, localities, keys and their values.
#[derive(Debug, Args)]
pub(crate) struct Names {}

impl Names {
    pub(crate) fn run(self) -> miette::Result<()> {
        crate::out::print(|out| {
            writeln!(out, "SOURCE[:LOCALITY][:FLOWS][:KEY=VALUE]..\n\nSOURCE")?;
            for source in SOURCES {
                writeln!(out, "  {:<16} {}", source.word, source.what)?;
            }
            writeln!(out, "  {:<16} a pipeline of your own", "PATH.json")?;
            for what in [
                "filters of your own in one table, as ClassBench writes them; or filters made",
                "from parameters of ClassBench; or the rules of a switch as they are, from what",
                "`ovs-ofctl dump-flows` prints. What a file is, is told by how it begins.",
            ] {
                writeln!(out, "  {:<16} {what}", if what.starts_with('f') { "PATH" } else { "" })?;
            }
            writeln!(out, "\nLOCALITY")?;
            writeln!(
                out,
                "  {:<16} headers that recur among the rules are drawn more often",
                "high"
            )?;
            writeln!(out, "  {:<16} all are as likely", "low")?;
            writeln!(out, "\nFLOWS              a number such as 500, 100k or 1m\n\nKEY=VALUE")?;
            for key in KEYS {
                writeln!(out, "  {:<16} {}", key.name, key.what)?;
                writeln!(out, "  {:<16}   {}", "", key.values)?;
            }
            Ok(())
        })
    }
}
