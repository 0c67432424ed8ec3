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
        let words = text.or_else(|| payload.downcast_ref().copied());
        Self::Panicked(words.unwrap_or("without words").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any};

    use super::*;

    fn words(run: fn()) -> String {
        StepError::panicked(&*catch_unwind(run).unwrap_err()).to_string()
    }

    #[test]
    fn an_error_says_what_the_panic_said() {
        let prefix = "a step of the circuit panicked: ";
        assert_eq!(words(|| panic!("plainly")), format!("{prefix}plainly"));
        assert_eq!(words(|| panic!("at {}", 7)), format!("{prefix}at 7"));
        assert_eq!(words(|| panic_any(7)), format!("{prefix}without words"));
    }
}
