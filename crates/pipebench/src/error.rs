//! The errors of this crate: one enum for each fallible operation.

use crate::{
    DumpError, FilterRequestError, InputError, ParameterError, PipelineError, PopulateError,
    TextError,
};

/// The reason why parameters of a distribution are invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// The distribution has no item to choose from.
    #[error("a distribution needs at least one value with a positive weight")]
    Empty,
    /// A weight, mean or exponent is outside its range.
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

/// The reason why no frame can be built from a flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame would be longer than the maximum.
    #[error(
        "a frame of {length} bytes is too long: the limit is {max}",
        max = crate::traffic::FRAME_MAX
    )]
    TooLong {
        /// Length of the frame.
        length: usize,
    },
    /// The key has headers that are not supported.
    #[error("frames with {what} are not supported")]
    Unsupported {
        /// The headers that are not supported.
        what: &'static str,
    },
}

/// The reason why traffic cannot be generated.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// The rules do not give enough distinct flows.
    #[error(
        "the rules give only {found} distinct flows, but {wanted} are wanted: ask for fewer flows \
         or more rules"
    )]
    TooFewFlows {
        /// Number of distinct flows.
        found: usize,
        /// Number of requested flows.
        wanted: usize,
    },
    /// The packets do not fit the flows: each flow needs from one to 2^32 packets.
    #[error(
        "{flows} flows cannot have {packets} packets: each flow has from one to 2^32, so change \
         `packets=`"
    )]
    Packets {
        /// Number of flows of the workload.
        flows: usize,
        /// Number of requested packets.
        packets: u64,
    },
    /// The flows do not fit in memory.
    #[error("the memory does not suffice for {flows} flows: ask for fewer")]
    Memory {
        /// Number of requested flows.
        flows: usize,
    },
    /// The rules make too many classes of flows.
    #[error(
        "the source has {classes} classes of flows, and at most {max} are possible: use fewer \
         rules or traversals",
        max = u16::MAX
    )]
    Classes {
        /// Number of classes of flows in the source.
        classes: usize,
    },
    /// No rule of the first table matches IPv4 packets.
    #[error(
        "no flows can be sampled: no rule of the first table matches IPv4 packets, \
         or every traversal visits a table without rules: add rules for IPv4 packets to the \
         first table, or use more filters"
    )]
    NoSource,
    /// Invalid parameters of a distribution.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// An error in a line of a coflow trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct CoflowTraceError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// The mistake in this line.
    pub problem: &'static str,
}

/// The reason why an output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {cause}{}{note}", advice(cause))]
pub struct OutputError {
    doing: &'static str,
    path: String,
    // The message contains the cause; as a source it would be printed twice.
    cause: std::io::Error,
    /// A note about the data written so far.
    note: &'static str,
}

impl OutputError {
    /// Creates an error of a file that is written completely or not at all.
    pub(crate) fn new(doing: &'static str, path: &std::path::Path, cause: std::io::Error) -> Self {
        let note = if is_full(&cause) { "; nothing was left behind" } else { "" };
        Self { doing, path: path.display().to_string(), cause, note }
    }

    /// Creates an error of an output that was written directly, and is now incomplete.
    pub(crate) fn direct(path: &std::path::Path, cause: std::io::Error) -> Self {
        let note = "; its content is incomplete";
        Self { doing: "write to", path: path.display().to_string(), cause, note }
    }

    /// Creates an error of standard output.
    #[must_use]
    pub fn standard(cause: std::io::Error) -> Self {
        Self::direct(std::path::Path::new("standard output"), cause)
    }
}

/// Returns whether the disk is full.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Returns whether the process has too many open files.
fn has_too_many_files(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::EMFILE)
}

/// Returns advice on an error of a file.
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

/// The reason why a frame cannot be sent on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// No device has that name.
    #[error("there is no network device {device}: the devices are {known}")]
    NoDevice {
        /// Name of the device.
        device: String,
        /// Names of the existing devices.
        known: String,
    },
    /// The user has no permission.
    #[error(
        "sending on {device} needs permission to send raw frames: run pipebench as root or with \
         CAP_NET_RAW"
    )]
    NotPermitted {
        /// Name of the device.
        device: String,
    },
    /// The network device is down.
    #[error("{device} is down: bring it up with `ip link set {device} up`")]
    Down {
        /// Name of the device.
        device: String,
    },
    /// The device refuses a frame because of its length.
    #[error(
        "{device} refuses frames of {length} bytes: raise its MTU or use shorter packets \
         (`bytes=`)"
    )]
    TooLong {
        /// Name of the device.
        device: String,
        /// Length of the frame in bytes, without its check sequence.
        length: usize,
    },
    /// The kernel refuses the frame for another reason.
    #[error("cannot {doing} {device}: {errno}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// Name of the device.
        device: String,
        /// The error of the kernel.
        errno: nix::errno::Errno,
    },
    /// A flow has no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// The mistake in a text that is not the name of a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NameError {
    /// The text that is not a valid name.
    pub name: String,
    /// Byte offset of the mistake in the text.
    pub at: usize,
    /// The mistake at this offset.
    pub problem: NameProblem,
    /// The valid name that is most similar.
    pub nearest: Option<String>,
}

/// The kind of mistake in a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// A word of the name is unknown.
    #[error("there is no {what} `{word}`: the names are {}", known.join(", "))]
    Unknown {
        /// The kind of word: source, locality or key.
        what: &'static str,
        /// The word that is not known.
        word: String,
        /// All words that are valid.
        known: Vec<&'static str>,
    },
    /// The value of a key is invalid.
    #[error("{key}={value} is not valid: write {expected}")]
    Value {
        /// The key, as in the name of a workload.
        key: &'static str,
        /// The value that was refused.
        value: String,
        /// A description of the valid values.
        expected: &'static str,
    },
    /// A key of the name occurs twice.
    #[error("{key} is given twice: give it once")]
    Repeated {
        /// The key that occurs twice.
        key: &'static str,
    },
    /// A key does not apply to the source.
    #[error("{subject} has no {key}: remove this key")]
    NotFor {
        /// The key that does not apply.
        key: &'static str,
        /// The source of the workload.
        subject: String,
    },
}

/// The reason why a workload cannot be generated or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// An input file is unusable.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The parser refuses a generated rule, because of a bug in this crate.
    #[error("the rule `{rule}` is invalid: {problem}")]
    Rule {
        /// The text of the refused rule.
        rule: String,
        /// The error of the parser.
        problem: String,
    },
    /// A filter file has a syntax error.
    #[error("{path}: {problem}")]
    Filters {
        /// Path of the file.
        path: String,
        /// The first mistake in the filter file.
        problem: TextError,
    },
    /// A parameter file is invalid.
    #[error("{path}: {problem}")]
    Parameters {
        /// Path of the file.
        path: String,
        /// The first mistake in the parameter file.
        problem: Box<ParameterError>,
    },
    /// A coflow trace has a syntax error.
    #[error("{path}: {problem}")]
    CoflowTrace {
        /// Path of the file.
        path: String,
        /// The first mistake in the trace.
        problem: CoflowTraceError,
    },
    /// A dump of rules has a syntax error.
    #[error("{path}: {problem}")]
    Dump {
        /// Path of the file.
        path: String,
        /// The first mistake in the dump.
        problem: DumpError,
    },
    /// The output would replace a file that is not part of a workload.
    #[error(
        "{path} exists and is not part of a workload: choose another folder, or move the file \
         away"
    )]
    Foreign {
        /// Path of the file.
        path: String,
    },
    /// The name of a file contradicts its content.
    #[error("the content of {path} is {what}: choose a name that {instead}")]
    Misnamed {
        /// Path of the file.
        path: String,
        /// Kind of the content.
        what: &'static str,
        /// The correct form of a name with such a file.
        instead: &'static str,
    },
    /// The port ranges of filters expand to too many rules.
    #[error(
        "the filters make more than {max} rules, because a port range expands to many: use fewer \
         filters"
    )]
    TooManyRules {
        /// The largest number of rules.
        max: usize,
    },
    /// Overlapping filters need too many priorities.
    #[error(
        "the filters overlap so often that they need {needed} priorities, and OpenFlow has \
         65535: use fewer filters (`rules=`)"
    )]
    Priorities {
        /// Number of needed priorities.
        needed: usize,
    },
    /// The first update would come after the last packet.
    #[error(
        "no rule changes within the traffic: the traffic lasts {lasts_ms} ms, and the first \
         update is at {period_ms} ms; use {instead}"
    )]
    NoUpdate {
        /// Duration of the traffic.
        lasts_ms: u64,
        /// Time of the first update.
        period_ms: u32,
        /// The change of the name that is suggested.
        instead: String,
    },
    /// A pipeline file is invalid.
    #[error("{path}: {problem}")]
    Pipeline {
        /// Path of the file.
        path: String,
        /// The first mistake in the pipeline file.
        problem: Box<PipelineError>,
    },
    /// The tables of a pipeline cannot be filled.
    #[error(transparent)]
    Populate(#[from] PopulateError),
    /// Filters cannot be generated.
    #[error(transparent)]
    Request(#[from] FilterRequestError),
    /// Traffic cannot be generated for the rules.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A flow has no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// An output file cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl WorkloadError {
    /// Returns the error of a refused rule.
    pub(crate) fn rule(rule: &str, problem: &impl ToString) -> Self {
        Self::Rule { rule: rule.to_owned(), problem: problem.to_string() }
    }
}
