//! `pipebench live`: the packets of a workload onto a network device.

use clap::Args;
use miette::IntoDiagnostic;
use shunt_pipebench::{Progress, name::Name, output::LivePort};

use crate::{
    out::print,
    workload::{NAMES, Named, make},
};

/// Sends the packets of a workload onto a network device, at their times.
///
/// Needs the right to send raw frames: root, or CAP_NET_RAW. Packets of all ports go out by the one
/// device.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench live psc:high:100k --port veth0\n  \
    pipebench live psc:high:100k --port veth0 --rate 10k --packets 300k\n\n{NAMES}"))]
pub(crate) struct Live {
    #[command(flatten)]
    named: Named,
    /// Network device to send on
    #[arg(long, value_name = "DEVICE")]
    port: String,
    /// Packets in a second, in the place of what the name says: 500, 10k, 1m
    #[arg(long)]
    rate: Option<String>,
    /// Packets to send, in the place of all: 500, 10k, 1m
    #[arg(long)]
    packets: Option<String>,
}

/// Packets after which progress is told.
const STEP: u64 = 1000;

impl Live {
    #[expect(clippy::print_stderr, reason = "what is left out is no part of the answer")]
    pub(crate) fn run(&self) -> miette::Result<()> {
        let name = self.name()?;
        let count = self.count()?.and_then(|count| usize::try_from(count).ok());
        let port = LivePort::open(&self.port).into_diagnostic()?;
        let workload = make(&name)?;
        if let Some(updates) = name.updates {
            eprintln!(
                "updates={} are not sent: packets alone go onto a device; `pipebench write` makes \
                 play-updates.sh, which plays them onto a bridge",
                updates.kind
            );
        }
        let packets = workload.packets().take(count.unwrap_or(usize::MAX));
        if count.is_some_and(|count| packets.size_hint().0 < count) {
            let there = packets.size_hint().0;
            eprintln!(
                "the workload has {there} packets, and no more are sent: `packets=` makes more"
            );
        }
        let steps = u64::try_from(packets.size_hint().0).unwrap_or(u64::MAX);
        let progress = Progress::new("packets", steps);
        let mut sent = 0_u64;
        let watch = || {
            sent += 1;
            if sent.is_multiple_of(STEP) {
                progress.advance(STEP);
            }
        };
        let played = port.play(workload.flows(), packets, watch).into_diagnostic()?;
        drop(progress);
        let seconds = played.duration.as_secs_f64().max(1e-9);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let rate = played.packets as f64 / seconds;
        let asked = name.rate_wanted();
        print(|out| {
            writeln!(
                out,
                "{} packets, {} bytes in {seconds:.3} s: {rate:.0} packets/s of {asked} asked; {} later than \
                 0.1 ms, {} times the device was full",
                played.packets, played.bytes, played.late, played.full,
            )
        })
    }

    /// The name, with the rate that is to be instead of its own.
    fn name(&self) -> miette::Result<Name> {
        let mut name = self.named.name()?;
        if let Some(rate) = &self.rate {
            name.rate = read("rate", rate)?.rate;
        }
        Ok(name)
    }

    /// How many packets are to be sent, if not all.
    fn count(&self) -> miette::Result<Option<u64>> {
        self.packets.as_deref().map_or(Ok(None), |packets| Ok(read("packets", packets)?.packets))
    }
}

/// Reads a value as the key of a name does, which says what is wrong with it.
fn read(key: &str, value: &str) -> miette::Result<Name> {
    Named { name: format!("psc:{key}={value}") }.name()
}
