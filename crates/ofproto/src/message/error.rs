//! Error messages.

use crate::error::ErrorNumber;

/// `ofp_error_msg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Type and code of the error.
    pub number: ErrorNumber,
    /// The refused message, or a text if the hello was refused.
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// Creates the error reply to `message`.
    #[must_use]
    pub fn refuse(number: ErrorNumber, message: &[u8]) -> Self {
        Self { number, data: message.to_vec() }
    }
}
