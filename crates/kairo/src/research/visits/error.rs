//! Why a step of a circuit failed.

use std::any::Any;

/// Why a step failed. The relation is not to be trusted from then on.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// dbsp refused it.
    #[error(transparent)]
    Refused(#[from] dbsp::Error),
    /// It ended by a panic, which said this.
    #[error("a step of the circuit panicked: {0}")]
    Panicked(String),
}

impl StepError {
    /// The error of a panic with this payload.
    pub(super) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let said = text.or_else(|| payload.downcast_ref().copied());
        Self::Panicked(said.unwrap_or("without words").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any};

    use super::*;

    fn said(run: fn()) -> String {
        StepError::panicked(&*catch_unwind(run).unwrap_err()).to_string()
    }

    #[test]
    fn an_error_says_what_the_panic_said() {
        let prefix = "a step of the circuit panicked: ";
        assert_eq!(said(|| panic!("plainly")), format!("{prefix}plainly"));
        assert_eq!(said(|| panic!("at {}", 7)), format!("{prefix}at 7"));
        assert_eq!(said(|| panic_any(7)), format!("{prefix}without words"));
    }
}
