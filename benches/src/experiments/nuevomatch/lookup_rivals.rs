//! The rivals of lookups: tuple space search, TupleMerge, and rte_acl of DPDK.
//!
//! rte_acl is a program that `benches/rival/acl.sh` builds. `SHUNT_RTE_ACL` names the program; an
//! experiment without the variable runs without this rival.

use std::{
    env,
    fmt::Write as _,
    fs,
    hint::black_box,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use shunt_classifier::{Classifier as _, TupleSpace, Version};
use shunt_flow::FlowKey;
use shunt_nuevomatch::{PriorityRule, testing::TupleMerge};

use super::rule_sets::{RuleSet, key};
use crate::cpu;

/// The packets of a trace.
pub(super) type LookupTrace = Vec<[u32; 5]>;

/// The number of packets of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallSize {
    /// 32 packets.
    Batch,
    /// One packet.
    Single,
}

/// A classifier that is compared with NuevoMatch.
pub(super) trait LookupRival {
    /// Returns the name in results.
    fn name(&self) -> &'static str;

    /// Returns the nanoseconds of CPU time for all packets of a trace.
    fn run_ns(&mut self, trace: usize, size: CallSize) -> u64;

    /// Returns the values of the rules that win for the packets of a trace.
    fn winners(&mut self, trace: usize) -> Vec<Option<u32>>;
}

/// Tuple space search, which looks up one packet at a time.
pub(super) struct TupleSpaceRival {
    table: TupleSpace<u32>,
    traces: Vec<Vec<FlowKey>>,
}

/// TupleMerge, which looks up one packet at a time.
pub(super) struct TupleMergeRival<'a> {
    table: TupleMerge<5>,
    traces: &'a [LookupTrace],
}

/// rte_acl in a separate process.
pub(super) struct AclRival {
    process: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
}

/// Variable with the path of the program.
const PROGRAM: &str = "SHUNT_RTE_ACL";

/// Number of rules from which on rte_acl takes minutes to build its table.
const ACL_RULES_MAX: usize = 100_000;

/// The widths of the lanes of a 5-tuple.
const WIDTHS: [u8; 5] = [32, 32, 16, 16, 8];

impl TupleSpaceRival {
    pub(super) fn new(set: &RuleSet, traces: &[LookupTrace]) -> Self {
        let traces = traces.iter().map(|packets| packets.iter().map(key).collect()).collect();
        Self { table: set.tuple_space(), traces }
    }
}

impl LookupRival for TupleSpaceRival {
    fn name(&self) -> &'static str {
        "tuple space search"
    }

    fn run_ns(&mut self, trace: usize, _: CallSize) -> u64 {
        cpu::measure_ns(|| {
            for key in &self.traces[trace] {
                black_box(self.table.lookup(key, Version::ZERO));
            }
        })
    }

    fn winners(&mut self, trace: usize) -> Vec<Option<u32>> {
        let keys = self.traces[trace].iter();
        keys.map(|key| self.table.lookup(key, Version::ZERO).copied()).collect()
    }
}

impl<'a> TupleMergeRival<'a> {
    pub(super) fn new(set: &RuleSet, traces: &'a [LookupTrace]) -> Self {
        Self { table: TupleMerge::new(&WIDTHS, &set.rules), traces }
    }
}

impl LookupRival for TupleMergeRival<'_> {
    fn name(&self) -> &'static str {
        "TupleMerge"
    }

    fn run_ns(&mut self, trace: usize, _: CallSize) -> u64 {
        cpu::measure_ns(|| {
            for packet in &self.traces[trace] {
                black_box(self.table.lookup(black_box(packet)));
            }
        })
    }

    fn winners(&mut self, trace: usize) -> Vec<Option<u32>> {
        let packets = self.traces[trace].iter();
        packets.map(|packet| self.table.lookup(packet).map(|best| best.value)).collect()
    }
}

impl AclRival {
    /// Starts the program of the variable with files of rules and traces.
    ///
    /// Returns `None` without the variable, or for more rules than rte_acl can hold.
    pub(super) fn start(set: &RuleSet, traces: &[LookupTrace], folder: &Path) -> Option<Self> {
        let program = env::var_os(PROGRAM)?;
        if set.rules.len() > ACL_RULES_MAX {
            return None;
        }
        let mut files = vec![folder.join("rules")];
        write(&files[0], &lines(&set.rules, rule_numbers));
        for (at, packets) in traces.iter().enumerate() {
            let file = folder.join(format!("packets-{at}"));
            write(&file, &lines(packets, |packet| packet.to_vec()));
            files.push(file);
        }
        let mut process = Command::new(&program)
            .args(&files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{PROGRAM}={}: {error}", program.display()));
        let (Some(commands), Some(replies)) = (process.stdin.take(), process.stdout.take()) else {
            panic!("the rival has no pipes");
        };
        let mut own = Self { process, commands, replies: BufReader::new(replies) };
        let count: Vec<usize> = own.ask("rules");
        assert_eq!(count, [set.rules.len()], "rte_acl has all rules");
        Some(own)
    }

    /// Sends a command, and returns the numbers of its reply.
    fn ask<T: std::str::FromStr>(&mut self, command: &str) -> Vec<T> {
        let mut line = String::new();
        let asked = writeln!(self.commands, "{command}");
        let replied = asked.and_then(|()| self.replies.read_line(&mut line));
        assert!(replied.is_ok_and(|length| length > 0), "rte_acl does not reply to `{command}`");
        line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    }
}

impl LookupRival for AclRival {
    fn name(&self) -> &'static str {
        "rte_acl"
    }

    fn run_ns(&mut self, trace: usize, size: CallSize) -> u64 {
        let command = match size {
            CallSize::Batch => "batch",
            CallSize::Single => "single",
        };
        let reply: Vec<u64> = self.ask(&format!("{command} {trace}"));
        reply.first().copied().unwrap_or_default()
    }

    fn winners(&mut self, trace: usize) -> Vec<Option<u32>> {
        let reply: Vec<i64> = self.ask(&format!("answers {trace}"));
        reply.into_iter().map(|value| u32::try_from(value).ok()).collect()
    }
}

impl Drop for AclRival {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the ends of the ranges of a rule, and its value.
fn rule_numbers(rule: &PriorityRule<5>) -> Vec<u32> {
    let bounds = rule.as_box();
    let ends = bounds.low.iter().zip(bounds.high).flat_map(|(low, high)| [*low, high]);
    ends.chain([rule.value()]).collect()
}

fn lines<T>(values: &[T], numbers: impl Fn(&T) -> Vec<u32>) -> String {
    let mut text = String::new();
    for value in values {
        for number in numbers(value) {
            let _ = write!(text, "{number} ");
        }
        text.push('\n');
    }
    text
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
