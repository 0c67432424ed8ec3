//! Errors of filter files, parameter files, and requests for rule sets.

use crate::nearest::Suggestion;

/// A syntax error in a filter file or parameter file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {}", FoundText(found))]
pub struct TextError {
    /// The number of the line, from 1 on.
    pub line: usize,
    /// The number of the character in the line, from 1 on.
    pub column: usize,
    /// The byte offset of the error in the text.
    pub offset: usize,
    /// The number of wrong bytes.
    pub length: usize,
    /// A description of the expected text.
    pub expected: &'static str,
    /// The found text; empty at the end of the line.
    pub found: String,
}

/// The found text, formatted for a message.
struct FoundText<'a>(&'a str);

impl std::fmt::Display for FoundText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            f.write_str("the end of the line")
        } else {
            write!(f, "`{}`", self.0)
        }
    }
}

/// The reason why a parameter file describes no rule set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// A line has a syntax error.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The name of a section is unknown.
    #[error(
        "line {}: there is no section `-{}`{}",
        place.line, place.found, Suggestion(*nearest, "-")
    )]
    Section {
        /// Position of the name.
        place: TextError,
        /// The known name that is most similar.
        nearest: Option<&'static str>,
    },
    /// A required section is missing.
    #[error("the section `-{section}` is missing: add it from the original parameter file")]
    Missing {
        /// Name of the section.
        section: &'static str,
    },
    /// No protocol has a positive share.
    #[error("no protocol in `-prots` has a share: give one a share above 0")]
    NoProtocol,
    /// A protocol has no port classes.
    #[error("protocol {protocol} in `-prots` has no class of ports: give it the share of a class")]
    NoPorts {
        /// IP protocol number without port classes.
        protocol: u8,
    },
    /// A protocol uses a pair of port classes without a distribution.
    #[error(
        "protocol {protocol} has ports of the class {pair}, but `-{section}` has no row: add one"
    )]
    Unsupplied {
        /// IP protocol number with the port class.
        protocol: u8,
        /// The pair of port classes.
        pair: &'static str,
        /// The name of the empty section.
        section: &'static str,
    },
}

/// The reason why a request for a rule set is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterRequestError {
    /// The number of rules is out of range.
    #[error("{rules} rules were requested, but a set has 1 to {max}")]
    Rules {
        /// The requested number of rules.
        rules: u32,
        /// The largest number of rules.
        max: u32,
    },
    /// The smoothness is out of range.
    #[error("the smoothness is {smoothness}: it must be from 0 to {max}")]
    Smoothness {
        /// The smoothness that was requested.
        smoothness: u8,
        /// The largest smoothness that is possible.
        max: u8,
    },
    /// A scope is out of range.
    #[error("the {what} scope is {scope}: it must be from -1 to 1")]
    Scope {
        /// The kind of scope: addresses or ports.
        what: &'static str,
        /// The scope that was requested.
        scope: f64,
    },
}
