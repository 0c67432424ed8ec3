//! The reasons for which a session cannot continue.

use std::{error::Error, io, path::PathBuf};

use shunt_gigaflow::offload::Refusal;
use tonic::{Code, Status};

use crate::{program::START_TABLE, schema::Schema, server::ElectionId};

/// The reason why a session cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The device cannot be reached.
    #[error("cannot connect to the device")]
    Connect(#[source] tonic::transport::Error),
    /// The connection failed during a request.
    #[error("the connection to the device failed")]
    Connection(#[source] Box<Status>),
    /// The device refused a whole request.
    #[error("{}", refusal_text(.0))]
    Refused(Box<Status>),
    /// The device refused the program.
    #[error("the device refused the program: {reason}: {advice}")]
    ProgramRefused {
        /// The text of the device, and the difference of the layouts, if they differ.
        reason: String,
        /// The changes that help.
        advice: &'static str,
    },
    /// The device did not answer a request in time.
    #[error("the device did not respond within the request timeout")]
    Silent,
    /// The device ended the stream.
    #[error("the device ended the stream of the P4Runtime connection")]
    Ended,
    /// Another controller uses the election id.
    #[error("another controller uses this election id: retrying with a higher one")]
    ElectionTaken,
    /// Another controller is the primary.
    #[error("another controller is the primary: waiting until it leaves")]
    Backup,
    /// The election id is below that of an earlier primary, which has left.
    #[error("the election id is below that of an earlier primary: retrying with a higher one")]
    TooLow(ElectionId),
    /// A batch failed, and the device does not report which of its updates.
    #[error("the device does not report which updates failed: {0}")]
    NoDetails(#[source] Box<Status>),
    /// The device refused an update of a repair.
    #[error("the device refused an update that restores its table entries: {0:?}")]
    Repair(Code),
    /// The device still differs from the confirmed rules after the last repair round.
    #[error("the device confirmed entries that it does not return when they are read")]
    Unrepaired,
    /// The file with the device configuration cannot be read.
    #[error("cannot read the device configuration {path}", path = path.display())]
    DeviceConfig {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The first tag cannot be set.
    #[error("the device refused the action that gives packets their first tag: {0:?}")]
    StartTag(Code),
    /// The device returned more entries than it can hold.
    #[error("the device returned more than {max} entries, which is more than it can hold")]
    Endless {
        /// The maximum number of entries that a read may return.
        max: usize,
    },
    /// A write must be repeated, but its rule can no longer be encoded.
    #[error("an entry can no longer be written, for example because its port was removed: {0}")]
    Unencodable(#[from] Refusal),
    /// The number of results differs from that of the updates.
    #[error("the device returned {responses} results for a batch of {updates} updates")]
    ResultCount {
        /// Number of results in the reply.
        responses: usize,
        /// Number of updates that were sent.
        updates: usize,
    },
}

impl SessionError {
    /// Returns the error for a device that refused a program.
    ///
    /// `running` is the program of the device, if it returned one.
    pub(super) fn program_refused(
        running: Option<&Schema>,
        configured: &Schema,
        status: &Status,
    ) -> Self {
        let text = text_of_device(status);
        let reason = match (running, running.and_then(layout), layout(configured)) {
            (Some(_), Some(own), Some(given)) if own != given => {
                format!("it has {own}, and {given} are configured: {text}")
            }
            // A device that was just started returns no program, and may still have a fixed one.
            (None, _, Some(given)) => format!("{given} are configured: {text}"),
            _ => {
                let advice = "load the configured program into the device";
                return Self::ProgramRefused { reason: text.to_owned(), advice };
            }
        };
        let advice = "load the configured program into the device, or set `stages` and \
                      `stage_entries` of the offload to those of the device";
        Self::ProgramRefused { reason, advice }
    }

    /// Returns the words about the device in the log.
    pub(super) const fn headline(&self) -> &'static str {
        match self {
            Self::Connect(_) | Self::Connection(_) | Self::Silent | Self::Ended => {
                "cannot be reached"
            }
            Self::Refused(_)
            | Self::ProgramRefused { .. }
            | Self::ElectionTaken
            | Self::Backup
            | Self::TooLow(_)
            | Self::NoDetails(_)
            | Self::Repair(_)
            | Self::Unrepaired
            | Self::DeviceConfig { .. }
            | Self::StartTag(_)
            | Self::Endless { .. }
            | Self::Unencodable(_)
            | Self::ResultCount { .. } => "cannot be used",
        }
    }
}

/// Returns the stages of a program: `4 stages of 8192 entries`.
///
/// `None` if the program has no stages.
fn layout(program: &Schema) -> Option<String> {
    if !program.tables.contains_key(&START_TABLE) {
        return None;
    }
    let mut stages = program.tables.iter().filter(|(id, _)| **id != START_TABLE).peekable();
    let (_, first) = stages.peek()?;
    let entries = first.size;
    Some(format!("{} stages of {entries} entries", stages.count()))
}

/// Returns the text of the device, or the description of the code if there is none.
fn text_of_device(status: &Status) -> &str {
    match status.message() {
        "" => status.code().description(),
        message => message,
    }
}

/// Returns the text about a request that the device refused.
fn refusal_text(status: &Status) -> String {
    let reason = text_of_device(status);
    if status.code() == Code::Unavailable {
        format!("the device is not ready, or is ending: {reason}")
    } else {
        format!("the device refused a request: {reason}")
    }
}

impl From<Status> for SessionError {
    fn from(status: Status) -> Self {
        // A status with a source comes from the transport, and not from the device.
        if status.source().is_some() {
            Self::Connection(Box::new(status))
        } else {
            Self::Refused(Box::new(status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    #[test]
    fn an_error_of_the_transport_is_no_refusal() {
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        assert!(matches!(SessionError::from(broken), SessionError::Connection(_)));
        let refused = Status::permission_denied("the client is not primary");
        assert!(matches!(SessionError::from(refused), SessionError::Refused(_)));
    }

    #[test]
    fn refusal_has_text_of_device() {
        let text = |status| SessionError::from(status).to_string();
        let refused = text(Status::permission_denied("the client is not primary"));
        assert_eq!(refused, "the device refused a request: the client is not primary");
        let ending = text(Status::unavailable("the server has ended the stream"));
        assert_eq!(
            ending,
            "the device is not ready, or is ending: the server has ended the stream"
        );
    }

    #[test]
    fn a_refused_program_has_the_difference() {
        let schema = |stages, entries| {
            let program = Program::new(stages, entries).unwrap();
            Schema::read(&program.p4info()).unwrap()
        };
        let status = Status::invalid_argument("no such program");
        let text = |running: Option<&Schema>, status: &Status| {
            let error = SessionError::program_refused(running, &schema(4, 64), status);
            assert_eq!(error.headline(), "cannot be used");
            error.to_string()
        };
        assert_eq!(
            text(Some(&schema(3, 64)), &status),
            "the device refused the program: it has 3 stages of 64 entries, and 4 stages of 64 \
             entries are configured: no such program: load the configured program into the device, \
             or set `stages` and `stage_entries` of the offload to those of the device"
        );
        assert_eq!(
            text(None, &status),
            "the device refused the program: 4 stages of 64 entries are configured: no such \
             program: load the configured program into the device, or set `stages` and \
             `stage_entries` of the offload to those of the device"
        );
        // Other stages would not help here.
        for running in [Some(Schema::default()), Some(schema(4, 64))] {
            assert_eq!(
                text(running.as_ref(), &status),
                "the device refused the program: no such program: load the configured program into \
                 the device"
            );
        }
        let silent = text(None, &Status::invalid_argument(""));
        assert!(silent.contains(Code::InvalidArgument.description()), "{silent}");
    }
}
