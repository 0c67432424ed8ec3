//! What can be wrong with filter files, parameter files, and requests for rule-sets.

use crate::nearest::Meant;

/// A place in a text that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {}", Found(found))]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The character of the line, from 1.
    pub column: usize,
    /// The byte of the text.
    pub offset: usize,
    /// How many bytes are wrong.
    pub length: usize,
    /// What should be there.
    pub expected: &'static str,
    /// What is there; empty at the end of the line.
    pub found: String,
}

/// What was found, for a message.
struct Found<'a>(&'a str);

impl std::fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            f.write_str("the end of the line")
        } else {
            write!(f, "`{}`", self.0)
        }
    }
}

/// Parameters that no rule-set can be made from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// A line that cannot be read.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A section of an unknown name.
    #[error("line {}: there is no section `-{}`{}", place.line, place.found, Meant(*nearest, "-"))]
    Section {
        /// Where it is.
        place: TextError,
        /// The name that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A section that is not there.
    #[error("the section `-{section}` is missing")]
    Missing {
        /// Its name.
        section: &'static str,
    },
    /// No protocol has a share.
    #[error("no protocol in `-prots` has a share")]
    NoProtocol,
    /// A protocol has no classes of ports.
    #[error("protocol {protocol} in `-prots` has no class of ports")]
    NoPorts {
        /// Its number.
        protocol: u8,
    },
    /// A class of ports is used and not described.
    #[error("protocol {protocol} has ports of the class {pair}, but `-{section}` has no row")]
    Unsupplied {
        /// The protocol.
        protocol: u8,
        /// The class.
        pair: &'static str,
        /// The section that has nothing to offer.
        section: &'static str,
    },
}

/// A request for a rule-set that cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A number of rules out of range.
    #[error("{rules} rules were asked for: a set has from 1 to {max}")]
    Rules {
        /// How many.
        rules: u32,
        /// The most.
        max: u32,
    },
    /// A smoothness out of range.
    #[error("the smoothness is {smoothness}: it goes from 0 to {max}")]
    Smoothness {
        /// What was asked for.
        smoothness: u8,
        /// The most.
        max: u8,
    },
    /// A scope out of range.
    #[error("the {what} scope is {scope}: it goes from -1 to 1")]
    Scope {
        /// Of addresses or ports.
        what: &'static str,
        /// What was asked for.
        scope: f64,
    },
}
