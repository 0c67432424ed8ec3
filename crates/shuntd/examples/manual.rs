//! Writes the manual pages and shell completions of all programs, from their command lines.
//!
//! `cargo xtask man` runs this program. The argument is the folder for `man` and `completions`.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::{ArgAction, Command};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

/// A program, and the text that its manual pages add to its command line.
struct Program {
    command: fn() -> Command,
    section: &'static str,
    /// Further sections of the main page, in the macros of man(7).
    further: &'static str,
}

const DAEMON: &str = include_str!("../../../packaging/manual/shuntd.roff");

const CLIENT: &str = include_str!("../../../packaging/manual/shuntctl.roff");

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map_or_else(|| PathBuf::from("manual"), PathBuf::from);
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    let programs = [
        Program { command: shuntd::daemon::command, section: "8", further: DAEMON },
        Program { command: shuntd::client::command, section: "1", further: CLIENT },
        Program { command: shunt_pipebench::command_line::command, section: "1", further: "" },
    ];
    for Program { command, section, further } in programs {
        let name = command().get_name().to_owned();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            generate_to(shell, &mut command(), &name, &completions)?;
        }
        // The command `help` gets no manual page.
        let mut command = command().disable_help_subcommand(true);
        command.build();
        write_page(&command, section, further, &pages)?;
        for part in command.get_subcommands() {
            let further = format!(".SH \"SEE ALSO\"\n.BR {name} ({section})\n");
            write_page(part, section, &further, &pages)?;
        }
    }
    Ok(())
}

/// Writes the manual page of a program, or of one of its commands.
fn write_page(command: &Command, section: &str, further: &str, folder: &Path) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let page = Man::new(command.clone()).section(section).manual("Shunt").date("");
    let page = page.source(format!("Shunt {version}"));
    let mut text = Vec::new();
    page.render(&mut text)?;
    let mut file = File::create(folder.join(page.get_filename()))?;
    let text = with_tables(&without_backticks(&String::from_utf8_lossy(&text)));
    let text = with_values(&text, command);
    file.write_all(text.as_bytes())?;
    file.write_all(further.as_bytes())
}

/// Keeps the lines of the section EXTRA, which has tables and examples.
fn with_tables(page: &str) -> String {
    let mut in_table = false;
    let mut text = String::new();
    for line in page.lines() {
        if line.starts_with(".SH") {
            text += if in_table { ".fi\n" } else { "" };
            in_table = line == ".SH EXTRA";
        }
        text += line;
        text += if line == ".SH EXTRA" { "\n.nf\n" } else { "\n" };
    }
    text + if in_table { ".fi\n" } else { "" }
}

/// Adds the value names of options to the synopsis of a manual page.
///
/// Arguments that may be repeated are followed by dots.
fn with_values(page: &str, command: &Command) -> String {
    let mut page = page.to_owned();
    for argument in command.get_arguments() {
        let values = argument.get_value_names().unwrap_or_default().join(" ");
        if let (Some(long), true) = (argument.get_long(), argument.get_action().takes_values()) {
            let option = format!("\\fB\\-\\-{}\\fR", long.replace('-', "\\-"));
            page = page.replace(&format!("[{option}]"), &format!("[{option} \\fI{values}\\fR]"));
        }
        if argument.is_positional() && matches!(argument.get_action(), ArgAction::Append) {
            for (begin, end) in [("[", "]"), ("<", ">")] {
                let once = format!("{begin}\\fI{values}\\fR{end}");
                page = page.replace(&once, &format!("{once}..."));
            }
        }
    }
    page
}

/// Replaces Markdown by bold text.
///
/// The section NAME, which other programs parse, stays plain text.
fn without_backticks(page: &str) -> String {
    let mut in_name = false;
    let lines = page.lines().map(|line| {
        if line.starts_with(".SH") {
            in_name = line == ".SH NAME";
        }
        let parts = line.split('`').enumerate();
        let line: String = parts
            .map(|(number, part)| match number % 2 {
                1 if !in_name => format!("\\fB{part}\\fR"),
                _ => part.to_owned(),
            })
            .collect();
        line + "\n"
    });
    lines.collect()
}
