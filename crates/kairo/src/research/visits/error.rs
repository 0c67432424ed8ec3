//! The reasons why a step of a circuit fails.

use std::any::Any;

/// The reason why a step of a circuit failed.
/// The relation must not be used after a failed step.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// dbsp returned an error.
    #[error(transparent)]
    Refused(#[from] dbsp::Error),
    /// An operator needs more than one evaluation.
    #[error("an operator of the circuit is not complete after one evaluation")]
    Incomplete,
    /// The step panicked with this message.
    #[error("a step of the circuit panicked: {0}")]
    Panicked(String),
}

impl StepError {
    /// Creates the error for a panic with this payload.
    pub(super) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let message = text.or_else(|| payload.downcast_ref().copied());
        Self::Panicked(message.unwrap_or("no message").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any};

    use super::*;

    /// Returns the message of the panic of a function.
    fn message(run: fn()) -> String {
        StepError::panicked(&*catch_unwind(run).unwrap_err()).to_string()
    }

    #[test]
    fn an_error_has_the_panic_message() {
        let prefix = "a step of the circuit panicked: ";
        assert_eq!(message(|| panic!("plainly")), format!("{prefix}plainly"));
        assert_eq!(message(|| panic!("at {}", 7)), format!("{prefix}at 7"));
        assert_eq!(message(|| panic_any(7)), format!("{prefix}no message"));
    }
}
