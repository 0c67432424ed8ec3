//! `pipebench updates`: the rules of a workload that come and go.

use clap::Args;
use miette::miette;

use crate::{
    out::Out,
    workload::{NAMES, Named, make},
};

/// Writes the changes of rules of a workload, in batches, each of which `ovs-ofctl --bundle add-flows`
/// reads.
///
/// The name must say which: updates=p1 to p5 (after Table 4.3 of A. Zulfiqar's thesis), updates=flap or
/// updates=burst. A comment in front of each batch tells its time; all come while packets come. Given
/// to `ovs-ofctl` as they stand, all batches are one bundle: `--batch` takes one out, and the script
/// play-updates.sh that `pipebench write` makes plays each at its time. The rules that come and go are
/// not there in the beginning.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench updates psc:high:100k:updates=p2@10s:rate=10k --out updates.txt\n  \
    pipebench updates classbench-acl:low:1k:updates=flap@100ms:rate=10k\n  \
    pipebench updates psc:high:100k:updates=p2@10s:rate=10k --batch 1 | ovs-ofctl -O OpenFlow13 --bundle add-flows br0 -\n\n{NAMES}"))]
pub(crate) struct Updates {
    #[command(flatten)]
    named: Named,
    /// Writes this batch alone, from 1
    #[arg(long, value_name = "NUMBER")]
    batch: Option<usize>,
    #[command(flatten)]
    out: Out,
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
        self.out.check()?;
        let workload = make(&name)?;
        let batches = workload.updates().batches.len();
        match self.batch {
            Some(batch) if !(1..=batches).contains(&batch) => {
                Err(miette!("there is no batch {batch}: {name} has 1 to {batches}"))
            }
            Some(batch) => self.out.write(|mut out| workload.write_update(batch, &mut out)),
            None => self.out.write(|mut out| workload.write_updates(&mut out)),
        }
    }
}
