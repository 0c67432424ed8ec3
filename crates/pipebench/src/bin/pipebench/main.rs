//! `pipebench`: workloads for virtual switches, on the command line.

mod describe;
mod flows;
mod input;
mod list;
mod live;
mod names;
mod pcap;
mod rules;
mod stats;
mod table;
mod updates;
mod workload;
mod write;

use clap::{Parser, Subcommand};

/// Makes workloads for virtual switches: rule-sets, pipelines with rules, traffic.
///
/// Everything comes from a seed: the same arguments give the same bytes on every machine.
#[derive(Debug, Parser)]
#[command(name = "pipebench", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::List),
    Describe(describe::Describe),
    Rules(rules::Rules),
    Names(names::Names),
    Write(write::Write),
    Flows(flows::Flows),
    Pcap(pcap::Pcap),
    Updates(updates::Updates),
    Live(live::Live),
    Stats(stats::Stats),
}

fn main() -> miette::Result<()> {
    match Arguments::parse().command {
        Command::List(list) => list.run(),
        Command::Describe(describe) => describe.run(),
        Command::Rules(rules) => rules.run(),
        Command::Names(names) => names.run(),
        Command::Write(write) => write.run(),
        Command::Flows(flows) => flows.run(),
        Command::Pcap(pcap) => pcap.run(),
        Command::Updates(updates) => updates.run(),
        Command::Live(live) => live.run(),
        Command::Stats(stats) => stats.run(),
    }
}
