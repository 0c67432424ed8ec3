//! Open vSwitch's classifier in a separate process, built by `benches/rival/build.sh`.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use shunt_flow::{
    FieldId, FlowMask, Match,
    text::{NoPortNames, format_match},
};

use super::workload::Workload;

/// Fields of a workload's packets; all other fields are zero in both classifiers.
const FIELDS: &[FieldId] = &[
    FieldId::InPort,
    FieldId::Metadata,
    FieldId::Reg0,
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::EthType,
    FieldId::VlanTci,
    FieldId::Ipv4Src,
    FieldId::Ipv4Dst,
    FieldId::IpProto,
    FieldId::TcpSrc,
    FieldId::TcpDst,
];

/// A process that holds one table and its packets.
pub(crate) struct Rival {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rival {
    /// Starts the rival on a workload.
    pub(crate) fn start(program: &Path, workload: &Workload, folder: &Path) -> Self {
        let (rules, packets) = (folder.join("rules"), folder.join("packets"));
        let mut text = String::new();
        for (matching, rank) in &workload.rules {
            let matching = format_match(matching, &NoPortNames);
            let _ = writeln!(text, "priority={},{matching}", rank.priority);
        }
        write(&rules, &text);
        text.clear();
        for packet in &workload.packets {
            let mut mask = FlowMask::EMPTY;
            FIELDS.iter().filter(|field| packet.field(**field) != 0).for_each(|field| {
                mask.add_field(*field);
            });
            let _ = writeln!(text, "{}", format_match(&Match::new(packet, &mask), &NoPortNames));
        }
        write(&packets, &text);
        let mut process = Command::new(program)
            .args([&rules, &packets])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            panic!("the rival has no pipes");
        };
        Self { process, commands, answers: BufReader::new(answers) }
    }

    /// Sends a command, and returns the numbers of its reply.
    pub(crate) fn ask<T: std::str::FromStr>(&mut self, command: &str) -> Vec<T> {
        let mut line = String::new();
        let asked = writeln!(self.commands, "{command}");
        let replied = asked.and_then(|()| self.answers.read_line(&mut line));
        assert!(replied.is_ok_and(|length| length > 0), "the rival does not reply to `{command}`");
        line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
