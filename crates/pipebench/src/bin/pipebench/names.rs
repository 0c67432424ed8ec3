//! `pipebench names`: everything that the name of a workload can say.

use clap::Args;
use shunt_pipebench::name::{KEYS, SOURCES};

/// Lists what the name of a workload can say: sources, localities, keys and their values.
#[derive(Debug, Args)]
pub(crate) struct Names {}

impl Names {
    pub(crate) fn run(self) -> miette::Result<()> {
        crate::workload::write_out(None, |out| {
            writeln!(out, "SOURCE[:LOCALITY][:FLOWS][:KEY=VALUE]..\n\nSOURCE")?;
            for source in SOURCES {
                writeln!(out, "  {:<16} {}", source.word, source.what)?;
            }
            writeln!(out, "  {:<16} a pipeline of your own", "PATH.json")?;
            writeln!(
                out,
                "  {:<16} one table of filters of your own, as ClassBench writes them",
                "PATH"
            )?;
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
