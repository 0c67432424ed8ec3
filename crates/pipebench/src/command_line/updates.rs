//! `pipebench updates`: the rules of a workload that are added and deleted while packets arrive.

use clap::Args;
use miette::miette;

use super::{
    out::OutputDestination,
    workload::{NAMES, NamedWorkload, make},
};

/// Write the rule changes of a workload, in batches for `ovs-ofctl --bundle
/// add-flows`.
///
/// The name selects the kind: updates=p1 to p5 (Table 4.3 of A. Zulfiqar's thesis), updates=flap or
/// updates=burst. A comment before each batch gives its time, which lies within the traffic.
/// `ovs-ofctl` would apply the whole file as one bundle. Use `--batch` to extract one batch, or the
/// play-updates.sh of `pipebench write` to apply each batch at its time. The rules that change are
/// absent at the start.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench updates psc:high:100k:updates=p2@10s:rate=10k --out updates.txt\n  \
    pipebench updates classbench-acl:low:1k:updates=flap@100ms:rate=10k\n  \
    pipebench updates psc:high:100k:updates=p2@10s:rate=10k --batch 1 | ovs-ofctl -O OpenFlow13 --bundle add-flows br0 -\n\n{NAMES}"))]
pub(crate) struct UpdatesCommand {
    #[command(flatten)]
    named: NamedWorkload,
    /// Write only this batch, counted from 1
    #[arg(long, value_name = "NUMBER")]
    batch: Option<usize>,
    #[command(flatten)]
    out: OutputDestination,
}

impl UpdatesCommand {
    /// Writes one batch of updates, or all. Fails if the workload has no updates.
    pub(crate) fn run(&self) -> miette::Result<()> {
        let name = self.named.name()?;
        if name.updates.is_none() {
            return Err(miette!(
                help = format!("name the kind of updates: {name}:updates=p1"),
                "{name} has no updates"
            ));
        }
        self.out.check()?;
        let workload = make(&name)?;
        let batches = workload.updates().batches.len();
        match self.batch {
            Some(batch) if !(1..=batches).contains(&batch) => {
                Err(miette!("batch {batch} does not exist: {name} has the batches 1 to {batches}"))
            }
            Some(batch) => self.out.write(|mut out| workload.write_update(batch, &mut out)),
            None => self.out.write(|mut out| workload.write_updates(&mut out)),
        }
    }
}
