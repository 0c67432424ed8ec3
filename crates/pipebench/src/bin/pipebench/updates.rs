//! `pipebench updates`: the rules of a workload that come and go.

use std::path::PathBuf;

use clap::Args;
use miette::miette;

use crate::workload::{NAMES, Named, write_out};

/// Writes the changes of rules of a workload, in batches, as `ovs-ofctl --bundle add-flows` reads them.
///
/// The name must say which: updates=p1 to p5 (after Table 4.3 of A. Zulfiqar's thesis), updates=flap or
/// updates=burst. A comment in front of each batch tells its time. The rules that come and go are not
/// among those of `pipebench write` in the beginning.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench updates psc:high:100k:updates=p2@10s --out updates.txt\n  \
    pipebench updates classbench-acl:low:1k:updates=flap@100ms\n\n{NAMES}"))]
pub(crate) struct Updates {
    #[command(flatten)]
    named: Named,
    /// File to write; standard output unless given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Updates {
    pub(crate) fn run(&self) -> miette::Result<()> {
        let name = self.named.name()?;
        if name.updates.is_none() {
            return Err(miette!(
                help = format!("say which: {name}:updates=p1"),
                "{name} has no updates"
            ));
        }
        let workload = self.named.workload()?;
        write_out(self.out.as_deref(), |mut out| workload.write_updates(&mut out))
    }
}
