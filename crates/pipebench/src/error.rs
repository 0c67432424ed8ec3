//! The errors of this crate: one enum for each fallible operation.

use crate::{
    DumpError, FilterRequestError, InputError, ParameterError, PipelineError, PopulateError,
    TextError,
};

/// Invalid parameters of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// There is nothing to choose from.
    #[error("a distribution needs at least one value with a positive weight")]
    Empty,
    /// A weight, mean or exponent outside its range.
    #[error("{what} is {value}, and must be {expected}")]
    Parameter {
        /// Name of the parameter.
        what: &'static str,
        /// Value of the parameter.
        value: f64,
        /// Legal range of the parameter.
        expected: &'static str,
    },
}

/// A key that no frame can be built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame would be longer than the maximum.
    #[error("a frame of {length} bytes is too long: the limit is {max}", max = crate::traffic::FRAME_MAX)]
    TooLong {
        /// Length of the frame.
        length: usize,
    },
    /// The key has headers that are not supported.
    #[error("frames with {what} are not supported")]
    Unsupported {
        /// The headers.
        what: &'static str,
    },
}

/// Traffic that cannot be generated.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// The rules do not give enough distinct flows.
    #[error(
        "the rules give {found} distinct flows, not {asked}: ask for fewer flows or more rules"
    )]
    TooFewFlows {
        /// Number of distinct flows.
        found: usize,
        /// Number of requested flows.
        asked: usize,
    },
    /// The packets do not fit the flows: each flow needs from one to 2^32 packets.
    #[error(
        "{flows} flows cannot have {packets} packets: each flow has at least one and at most \
             2^32"
    )]
    Packets {
        /// Number of flows.
        flows: usize,
        /// Number of requested packets.
        packets: u64,
    },
    /// The flows do not fit in memory.
    #[error("there is no memory for {flows} flows: ask for fewer")]
    Memory {
        /// Number of requested flows.
        flows: usize,
    },
    /// There are too many classes of flows.
    #[error("the source has {classes} classes of flows: the maximum is {max}", max = u16::MAX)]
    Classes {
        /// Number of classes.
        classes: usize,
    },
    /// There is nothing to sample flows from.
    #[error(
        "no flows can be sampled: no rule of the first table matches IPv4 packets, \
         or no traversal has a rule in each of its tables (with few filters some tables have \
         none: use more)"
    )]
    NoSource,
    /// Invalid parameters of a distribution.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// A line of a coflow trace that is not in its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct CoflowTraceError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// The problem.
    pub problem: &'static str,
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {cause}{}{left}", advice(cause))]
pub struct OutputError {
    doing: &'static str,
    path: String,
    // The message contains the cause; as a source it would be printed twice.
    cause: std::io::Error,
    /// Note about the data written so far.
    left: &'static str,
}

impl OutputError {
    /// Creates an error for a file that is written completely or not at all.
    pub(crate) fn new(doing: &'static str, path: &std::path::Path, cause: std::io::Error) -> Self {
        let left = if is_full(&cause) { "; nothing was left behind" } else { "" };
        Self { doing, path: path.display().to_string(), cause, left }
    }

    /// Creates an error for an output that is written directly and now incomplete.
    pub(crate) fn direct(path: &std::path::Path, cause: std::io::Error) -> Self {
        let left = "; its content is incomplete";
        Self { doing: "write to", path: path.display().to_string(), cause, left }
    }

    /// Creates an error for standard output.
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

/// Returns advice for an error of a file.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        _ if is_full(error) => ": make room or write to another disk",
        _ if has_too_many_files(error) => {
            ": each port has its own file; allow more open files (`ulimit -n 65536`)"
        }
        std::io::ErrorKind::NotFound => ": create the folder first, or choose an existing one",
        std::io::ErrorKind::PermissionDenied => ": choose a folder with write permission",
        std::io::ErrorKind::IsADirectory => ": name a file in it",
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
            ": name a folder, or a path that does not exist yet"
        }
        _ => "",
    }
}

/// A failure to send on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There is no device of that name.
    #[error("there is no network device {device}: the devices are {known}")]
    NoDevice {
        /// Name of the device.
        device: String,
        /// Names of the existing devices.
        known: String,
    },
    /// The user has no permission.
    #[error(
        "sending on {device} needs permission to send raw frames: run it as root or with \
         CAP_NET_RAW"
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
    /// The device refuses a frame of this length.
    #[error(
        "{device} refuses frames of {length} bytes: raise its MTU or use shorter packets \
         (`bytes=`)"
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
        /// The failed operation.
        doing: &'static str,
        /// The device.
        device: String,
        /// The error.
        errno: nix::errno::Errno,
    },
    /// A flow that no frame can be built from.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// A text that is not the name of a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NameError {
    /// The text.
    pub name: String,
    /// Byte offset of the mistake.
    pub at: usize,
    /// The problem.
    pub problem: NameProblem,
    /// The nearest valid name.
    pub nearest: Option<String>,
}

/// The problem of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// An unknown word.
    #[error("there is no {what} `{word}`: the names are {}", known.join(", "))]
    Unknown {
        /// The part of the name.
        what: &'static str,
        /// The word.
        word: String,
        /// All valid words.
        known: Vec<&'static str>,
    },
    /// A value that is invalid for the key.
    #[error("{key}={value} is not {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// A repeated key.
    #[error("{key} is given twice")]
    Repeated {
        /// The key.
        key: &'static str,
    },
    /// A key that does not apply to the source.
    #[error("{subject} has no {key}")]
    NotFor {
        /// The key.
        key: &'static str,
        /// The source.
        subject: String,
    },
}

/// A workload that cannot be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A file that cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A generated rule that the parser refuses: a defect of this crate.
    #[error("the rule `{rule}` is invalid: {problem}")]
    Rule {
        /// The rule.
        rule: String,
        /// The parser's error.
        problem: String,
    },
    /// A filter file that cannot be parsed.
    #[error("{path}: {problem}")]
    Filters {
        /// The file.
        path: String,
        /// The error.
        problem: TextError,
    },
    /// A parameter file that cannot be parsed.
    #[error("{path}: {problem}")]
    Parameters {
        /// The file.
        path: String,
        /// The error.
        problem: Box<ParameterError>,
    },
    /// A coflow trace that cannot be parsed.
    #[error("{path}: {problem}")]
    CoflowTrace {
        /// The file.
        path: String,
        /// The error.
        problem: CoflowTraceError,
    },
    /// A dump that cannot be parsed.
    #[error("{path}: {problem}")]
    Dump {
        /// The file.
        path: String,
        /// The error.
        problem: DumpError,
    },
    /// An existing file that is not part of a workload and would be replaced.
    #[error(
        "{path} exists and is not part of a workload: choose another folder, or move the file \
         away"
    )]
    Foreign {
        /// The file.
        path: String,
    },
    /// A file with content that its name contradicts.
    #[error("the content of {path} is {what}: choose a name that {instead}")]
    Misnamed {
        /// The file.
        path: String,
        /// Kind of the content.
        what: &'static str,
        /// The form of such names.
        instead: &'static str,
    },
    /// Filters with port ranges that expand to too many rules.
    #[error(
        "the filters make more than {max} rules, because a port range expands to many: use fewer \
         filters"
    )]
    TooManyRules {
        /// The maximum.
        max: usize,
    },
    /// Overlapping filters that need too many priorities.
    #[error(
        "the filters overlap so often that they need {needed} priorities, and OpenFlow has \
         65535: use fewer filters (`rules=`)"
    )]
    Priorities {
        /// Number of needed priorities.
        needed: usize,
    },
    /// Updates that begin after the last packet.
    #[error(
        "no rule changes within the traffic: it lasts {lasts_ms} ms, and the first update is at \
         {period_ms} ms; use {instead}"
    )]
    NoUpdate {
        /// Duration of the traffic.
        lasts_ms: u64,
        /// Time of the first update.
        period_ms: u32,
        /// Suggested alternative.
        instead: String,
    },
    /// A pipeline file that cannot be parsed.
    #[error("{path}: {problem}")]
    Pipeline {
        /// The file.
        path: String,
        /// The error.
        problem: Box<PipelineError>,
    },
    /// Tables that cannot be filled.
    #[error(transparent)]
    Populate(#[from] PopulateError),
    /// Filters that cannot be generated.
    #[error(transparent)]
    Request(#[from] FilterRequestError),
    /// Traffic that cannot be generated for these rules.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A flow that no frame can be built from.
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
