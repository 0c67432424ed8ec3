//! What can be wrong with what a user brings: one enum for each idea that can fail.

use crate::{
    DumpError, InputError, ParameterError, PipelineError, PopulateError, RequestError, TextError,
};

/// Parameters that describe no distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// There is nothing to choose from.
    #[error("a distribution needs at least one value of positive weight")]
    Empty,
    /// A weight, mean or exponent outside its range.
    #[error("{what} is {value}, and must be {expected}")]
    Parameter {
        /// Which parameter.
        what: &'static str,
        /// What it was.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
}

/// A key that no frame can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Longer than any frame.
    #[error("a frame of {length} bytes is too long: the most is {max}", max = crate::traffic::FRAME_MAX)]
    TooLong {
        /// How long it would be.
        length: usize,
    },
    /// It tells of headers that are not written.
    #[error("frames with {what} are not made")]
    Unsupported {
        /// Which.
        what: &'static str,
    },
}

/// Traffic that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// The rules do not tell enough flows apart.
    #[error(
        "the rules make {found} different flows, not {asked}: ask for fewer flows or more rules"
    )]
    TooFewFlows {
        /// How many there are.
        found: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// Each flow has a packet at least, and none more than 2^32.
    #[error("{flows} flows cannot have {packets} packets: each has one at least, and at most 2^32")]
    Packets {
        /// How many flows.
        flows: usize,
        /// How many packets were asked for.
        packets: u64,
    },
    /// More than the machine has room for.
    #[error("there is no memory for {flows} flows: ask for fewer")]
    Memory {
        /// How many were asked for.
        flows: usize,
    },
    /// More kinds of flows than can be told apart.
    #[error("there are {classes} kinds of flows to be drawn: the most is {max}", max = u16::MAX)]
    Classes {
        /// How many.
        classes: usize,
    },
    /// Nothing to draw flows from.
    #[error(
        "there is nothing to draw flows from: no rule of the first table takes packets of IPv4, or no \
         traversal has a rule in each of its tables (of few filters some get none: give more)"
    )]
    NoSource,
    /// Figures that are no distribution.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {cause}{}{left}", advice(cause))]
pub struct OutputError {
    doing: &'static str,
    path: String,
    // What it says is in the message; as a source it would be said twice.
    cause: std::io::Error,
    /// What is to be said of what was written so far.
    left: &'static str,
}

impl OutputError {
    /// Of a file that is there whole or not at all.
    pub(crate) fn new(doing: &'static str, path: &std::path::Path, cause: std::io::Error) -> Self {
        let left = if is_full(&cause) { "; nothing was left behind" } else { "" };
        Self { doing, path: path.display().to_string(), cause, left }
    }

    /// Of something that is written to directly: what came before the error is there.
    pub(crate) fn direct(path: &std::path::Path, cause: std::io::Error) -> Self {
        let left = "; what it has is not whole";
        Self { doing: "write to", path: path.display().to_string(), cause, left }
    }

    /// Of standard output.
    #[must_use]
    pub fn standard(cause: std::io::Error) -> Self {
        Self::direct(std::path::Path::new("standard output"), cause)
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn has_too_many_files(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::EMFILE)
}

/// What the user can do about an error of a file.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        _ if is_full(error) => ": make room or write to another disk",
        _ if has_too_many_files(error) => {
            ": there is a file for each port; allow more open files (`ulimit -n 65536`)"
        }
        std::io::ErrorKind::NotFound => ": make the folder first, or choose one that is there",
        std::io::ErrorKind::PermissionDenied => ": choose a folder that you may write to",
        std::io::ErrorKind::IsADirectory => ": name a file in it",
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
            ": name a folder, or one that is not there yet"
        }
        _ => "",
    }
}

/// Why nothing can be sent on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There is none of that name.
    #[error("there is no network device {device}: there are {known}")]
    NoDevice {
        /// Its name.
        device: String,
        /// The names of those that there are.
        known: String,
    },
    /// The user may not.
    #[error(
        "sending on {device} needs the right to send raw frames: run it as root or with CAP_NET_RAW"
    )]
    NotPermitted {
        /// The device.
        device: String,
    },
    /// The device is down.
    #[error("{device} is down: bring it up with `ip link set {device} up`")]
    Down {
        /// The device.
        device: String,
    },
    /// The device does not take such a long frame.
    #[error(
        "{device} does not take {length} bytes: raise its MTU or use shorter packets (`bytes=`)"
    )]
    TooLong {
        /// The device.
        device: String,
        /// Bytes without the check sequence.
        length: usize,
    },
    /// The system refuses.
    #[error("cannot {doing} {device}: {errno}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The device.
        device: String,
        /// Its reason.
        errno: nix::errno::Errno,
    },
    /// A flow that no frame can be made of.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// A text that is no name of a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NameError {
    /// The text.
    pub name: String,
    /// The byte at which the mistake begins.
    pub at: usize,
    /// What is wrong.
    pub problem: NameProblem,
    /// The name that may be meant.
    pub nearest: Option<String>,
}

/// What can be wrong with a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// A word that is none.
    #[error("no {what} is called `{word}`: there are {}", known.join(", "))]
    Unknown {
        /// What stands in this place.
        what: &'static str,
        /// The word.
        word: String,
        /// All words that can stand there.
        known: Vec<&'static str>,
    },
    /// A value that the key cannot have.
    #[error("{key}={value} is not {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What it can be.
        expected: &'static str,
    },
    /// A key that stands twice.
    #[error("{key} is said twice")]
    Repeated {
        /// The key.
        key: &'static str,
    },
    /// A key that means nothing for the source.
    #[error("{subject} has no {key}")]
    NotFor {
        /// The key.
        key: &'static str,
        /// The source.
        subject: String,
    },
}

/// A workload that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A file that cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A rule of the workload that is none: its maker or its reader is wrong.
    #[error("the rule `{rule}` cannot be used: {problem}")]
    Rule {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A filter file that cannot be read.
    #[error("{path}: {problem}")]
    Filters {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: TextError,
    },
    /// A parameter file that cannot be read.
    #[error("{path}: {problem}")]
    Parameters {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: Box<ParameterError>,
    },
    /// A dump that cannot be read.
    #[error("{path}: {problem}")]
    Dump {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: DumpError,
    },
    /// A file that would be replaced and was not made here.
    #[error(
        "{path} is there, and no workload was written here that it is of: choose another folder, or \
         move it away"
    )]
    Foreign {
        /// The file.
        path: String,
    },
    /// A file that is another thing than its name says.
    #[error("{path} is {what}, by how it begins: give it a name that {instead}")]
    Misnamed {
        /// The file.
        path: String,
        /// What it is.
        what: &'static str,
        /// What such names are like.
        instead: &'static str,
    },
    /// Filters whose ranges of ports make too many rules.
    #[error(
        "the filters make more than {max} rules, as a range of ports is many: take fewer of them"
    )]
    TooManyRules {
        /// The most.
        max: usize,
    },
    /// More filters that overlap than priorities.
    #[error(
        "the filters overlap so often that they need {needed} priorities, and OpenFlow has 65535: \
         take fewer (`rules=`)"
    )]
    Priorities {
        /// How many they need.
        needed: usize,
    },
    /// Updates that come after the packets.
    #[error(
        "no rule changes while packets come: they last {lasts_ms} ms, and the first update comes \
         after {period_ms} ms; say {instead}"
    )]
    NoUpdate {
        /// How long the packets last.
        lasts_ms: u64,
        /// When the first update would come.
        period_ms: u32,
        /// What to say instead.
        instead: String,
    },
    /// A pipeline file that cannot be read.
    #[error("{path}: {problem}")]
    Pipeline {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: Box<PipelineError>,
    },
    /// Tables that cannot be filled.
    #[error(transparent)]
    Populate(#[from] PopulateError),
    /// Filters that cannot be made.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No traffic for these rules.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A flow that no frame can be made of.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A file that cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl WorkloadError {
    pub(crate) fn rule(rule: &str, problem: &impl ToString) -> Self {
        Self::Rule { rule: rule.to_owned(), problem: problem.to_string() }
    }
}
