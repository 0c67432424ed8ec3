//! Errors of filter files, parameter files, and requests for rule sets.

use crate::nearest::Suggestion;

/// A syntax error in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {}", FoundText(found))]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The byte offset in the text.
    pub offset: usize,
    /// Number of wrong bytes.
    pub length: usize,
    /// The expected text.
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

/// Parameters that describe no rule set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// A line that cannot be read.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A section with an unknown name.
    #[error("line {}: there is no section `-{}`{}", place.line, place.found, Suggestion(*nearest, "-"))]
    Section {
        /// Position of the name.
        place: TextError,
        /// The nearest known name.
        nearest: Option<&'static str>,
    },
    /// A missing section.
    #[error("the section `-{section}` is missing")]
    Missing {
        /// Name of the section.
        section: &'static str,
    },
    /// No protocol has a positive share.
    #[error("no protocol in `-prots` has a share")]
    NoProtocol,
    /// A protocol has no classes of ports.
    #[error("protocol {protocol} in `-prots` has no class of ports")]
    NoPorts {
        /// Number of the protocol.
        protocol: u8,
    },
    /// A class of ports is used but not described.
    #[error("protocol {protocol} has ports of the class {pair}, but `-{section}` has no row")]
    Unsupplied {
        /// The protocol.
        protocol: u8,
        /// The class.
        pair: &'static str,
        /// The empty section.
        section: &'static str,
    },
}

/// An invalid request for a rule set.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterRequestError {
    /// A number of rules out of range.
    #[error("{rules} rules were requested: a set has 1 to {max}")]
    Rules {
        /// The requested number.
        rules: u32,
        /// The maximum.
        max: u32,
    },
    /// A smoothness out of range.
    #[error("the smoothness is {smoothness}: it must be from 0 to {max}")]
    Smoothness {
        /// The requested value.
        smoothness: u8,
        /// The maximum.
        max: u8,
    },
    /// A scope out of range.
    #[error("the {what} scope is {scope}: it must be from -1 to 1")]
    Scope {
        /// Addresses or ports.
        what: &'static str,
        /// The requested value.
        scope: f64,
    },
}
