//! Errors as messages.

use crate::error::{ErrorCode, ErrorNumber};

/// `ofp_error_msg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// What went wrong.
    pub number: ErrorNumber,
    /// The message that was refused, or a sentence if it was the hello.
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// The refusal of `message`.
    #[must_use]
    pub fn refuse(code: ErrorCode, message: &[u8]) -> Self {
        Self { number: code.number(), data: message.to_vec() }
    }
}
