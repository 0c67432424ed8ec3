//! `pipebench live`: sends the packets of a workload on a network device.

use crate::{Progress, name::WorkloadName, output::LivePort};
use clap::Args;
use miette::IntoDiagnostic;

use super::{
    out::print,
    workload::{NAMES, NamedWorkload, make},
};

/// Send the packets of a workload on a network device, at their times.
///
/// The command needs permission to send raw frames: root, or CAP_NET_RAW. Packets of all ports
/// leave through the one device.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench live psc:high:100k --port veth0\n  \
    pipebench live psc:high:100k --port veth0 --rate 10k --packets 300k\n\n{NAMES}"))]
pub(crate) struct LiveCommand {
    #[command(flatten)]
    named: NamedWorkload,
    /// Network device to send on
    #[arg(long, value_name = "DEVICE")]
    port: String,
    /// Packets per second, instead of the workload's rate: 500, 10k, 1m
    #[arg(long)]
    rate: Option<String>,
    /// Number of packets to send, instead of all: 500, 10k, 1m
    #[arg(long)]
    packets: Option<String>,
}

/// Number of packets between two progress updates.
const STEP: u64 = 1000;

impl LiveCommand {
    /// Sends the packets of the workload to a device, and prints the rate.
    #[expect(clippy::print_stderr, reason = "notes are not part of the output")]
    pub(crate) fn run(&self) -> miette::Result<()> {
        let name = self.name()?;
        let count = self.count()?.and_then(|count| usize::try_from(count).ok());
        let port = LivePort::open(&self.port).into_diagnostic()?;
        let workload = make(&name)?;
        if let Some(updates) = name.updates {
            eprintln!(
                "updates={} are not sent: only packets go to a device; the play-updates.sh of \
                 `pipebench write` applies updates to a bridge",
                updates.kind
            );
        }
        // Without a count, all packets are taken.
        let packets = workload.packets().take(count.unwrap_or(usize::MAX));
        if count.is_some_and(|count| packets.size_hint().0 < count) {
            let there = packets.size_hint().0;
            eprintln!(
                "the workload has {there} packets, and no more are sent: `packets=` sets their \
                 number"
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
        #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
        let rate = played.packets as f64 / seconds;
        let wanted = name.rate_wanted();
        print(|out| {
            writeln!(
                out,
                "{} packets, {} bytes in {seconds:.3} s: {rate:.0} packets/s of {wanted} \
                 requested; {} more than 0.1 ms late, device busy {} times",
                played.packets, played.bytes, played.late, played.full,
            )
        })
    }

    /// Returns the name with the requested rate.
    fn name(&self) -> miette::Result<WorkloadName> {
        let mut name = self.named.name()?;
        if let Some(rate) = &self.rate {
            name.rate = read("rate", rate)?.rate;
        }
        Ok(name)
    }

    /// Returns the requested number of packets, if any.
    fn count(&self) -> miette::Result<Option<u64>> {
        self.packets.as_deref().map_or(Ok(None), |packets| Ok(read("packets", packets)?.packets))
    }
}

/// Parses a value like the key of a name, for its error messages.
fn read(key: &str, value: &str) -> miette::Result<WorkloadName> {
    NamedWorkload { name: format!("psc:{key}={value}") }.name()
}
