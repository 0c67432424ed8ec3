//! `pipebench`: workloads for virtual switches, on the command line.

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

use clap::{
    CommandFactory as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use miette::MietteHandlerOpts;
use shunt_pipebench::name::SourceName;

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

/// Reads the command line; where the name of a workload stands in the place of a command, the help says
/// which commands take one.
fn arguments() -> Arguments {
    let error = match Arguments::try_parse() {
        Ok(arguments) => return arguments,
        Err(error) => error,
    };
    let word = error.get(ContextKind::InvalidSubcommand);
    let Some(ContextValue::String(name)) = word.filter(|word| is_name(word)) else { error.exit() };
    let told = format!(
        "`{name}` is the name of a workload, and which command is to use it comes first\n\n  \
         pipebench write {name} --out DIR    writes it into a folder\n  \
         pipebench stats {name}              says what it is like\n"
    );
    Arguments::command().error(ErrorKind::InvalidSubcommand, told).exit()
}

/// Whether a word, or at least its beginning, is a name of a workload.
fn is_name(word: &ContextValue) -> bool {
    let ContextValue::String(word) = word else { return false };
    let source = word.split(':').next().unwrap_or_default();
    SourceName::find(source).is_some()
}

/// Lines of errors are broken for a terminal alone: in a file or a pipe names stay whole.
fn set_how_errors_look() -> Result<(), miette::InstallError> {
    let is_terminal = io::stderr().is_terminal();
    let look = move || MietteHandlerOpts::new().wrap_lines(is_terminal).build();
    miette::set_hook(Box::new(move |_| Box::new(look())))
}

fn main() -> miette::Result<()> {
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
