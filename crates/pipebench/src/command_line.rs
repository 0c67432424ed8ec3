//! `pipebench`: the command line of the workload generator.

mod describe;
mod flows;
mod input;
mod interrupt;
mod list;
mod live;
mod names;
mod out;
mod pcap;
mod rules;
mod stats;
mod table;
mod updates;
mod workload;
mod write;

use std::io::{self, IsTerminal as _};

use crate::name::SourceName;
use clap::{
    CommandFactory as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use miette::MietteHandlerOpts;

/// Generate workloads for virtual switches: rule sets, pipelines with rules,
/// traffic.
///
/// Everything is derived from a seed: the same arguments give the same bytes on every machine.
#[derive(Debug, Parser)]
#[command(name = "pipebench", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::ListCommand),
    Describe(describe::DescribeCommand),
    Rules(rules::RulesCommand),
    Names(names::NamesCommand),
    Write(write::WriteCommand),
    Flows(flows::FlowsCommand),
    Pcap(pcap::PcapCommand),
    Updates(updates::UpdatesCommand),
    Live(live::LiveCommand),
    Stats(stats::StatsCommand),
}

/// Returns the command line of `pipebench`, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Parses the command line.
///
/// A workload name in place of a command gets an error that lists the commands for names.
fn arguments() -> Arguments {
    let error = match Arguments::try_parse() {
        Ok(arguments) => return arguments,
        Err(error) => error,
    };
    let word = error.get(ContextKind::InvalidSubcommand);
    let Some(ContextValue::String(name)) = word.filter(|word| is_name(word)) else { error.exit() };
    let message = format!(
        "`{name}` is the name of a workload: put a command before it\n\n  pipebench write {name} \
         --out DIR    write it into a folder\n  pipebench stats {name}              print its \
         statistics\n"
    );
    Arguments::command().error(ErrorKind::InvalidSubcommand, message).exit()
}

/// Returns whether a word begins like the name of a workload.
fn is_name(word: &ContextValue) -> bool {
    let ContextValue::String(word) = word else { return false };
    let source = word.split(':').next().unwrap_or_default();
    SourceName::find(source).is_some()
}

/// Wraps lines of errors on a terminal only: in a file or pipe names stay unbroken.
fn set_how_errors_look() -> Result<(), miette::InstallError> {
    let is_terminal = io::stderr().is_terminal();
    let look = move || MietteHandlerOpts::new().wrap_lines(is_terminal).build();
    miette::set_hook(Box::new(move |_| Box::new(look())))
}

/// Runs the command line of `pipebench`.
///
/// # Errors
///
/// If the command fails, as a report for its user.
pub fn main() -> miette::Result<()> {
    set_how_errors_look()?;
    let command = arguments().command;
    interrupt::watch();
    match command {
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
