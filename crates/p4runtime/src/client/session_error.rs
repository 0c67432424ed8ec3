//! The reasons for which a session cannot continue.

use std::{error::Error, io, path::PathBuf};

use shunt_gigaflow::offload::Refusal;
use tonic::{Code, Status};

use crate::server::ElectionId;

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
    #[error("the device refused a request: {0}")]
    Refused(#[source] Box<Status>),
    /// A request timed out.
    #[error("the device did not respond within the request timeout")]
    Silent,
    /// The stream ended.
    #[error("the device ended the stream")]
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
    #[error("the device refused an update that restores its entries: {0:?}")]
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
    #[error("the device returned {responses} results for {updates} updates")]
    ResultCount {
        /// Number of results.
        responses: usize,
        /// Number of updates.
        updates: usize,
    },
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

    #[test]
    fn an_error_of_the_transport_is_no_refusal() {
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        assert!(matches!(SessionError::from(broken), SessionError::Connection(_)));
        let refused = Status::permission_denied("the client is not primary");
        assert!(matches!(SessionError::from(refused), SessionError::Refused(_)));
    }
}
