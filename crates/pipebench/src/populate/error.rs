//! Errors of filling a pipeline, and of dumps.

use shunt_flow::text::MatchError;
use shunt_pipeline::text::{RuleTextError, RuleTextProblem};

use crate::DistributionError;

/// A pipeline that cannot be filled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// There is no filter.
    #[error("there is no filter to fill the tables with")]
    NoFilter,
    /// No traversal forwards.
    #[error("no traversal of the pipeline forwards: fill all of them instead")]
    NothingForwards,
    /// There are too many tables.
    #[error("the traversals use {tables} tables: a switch has at most {max}")]
    Tables {
        /// Number of tables.
        tables: usize,
        /// The maximum.
        max: usize,
    },
    /// Invalid parameters of the host distribution.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// A text that is not a dump, or a rule of a dump that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// A rule that cannot be parsed.
    #[error("line {line}, column {column}: {source}{}", of_names(source))]
    Rule {
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// The byte offset in the text.
        offset: usize,
        /// Number of wrong bytes.
        length: usize,
        /// The error.
        source: Box<RuleTextError>,
    },
    /// There is no rule.
    #[error("it contains no rule: use the output of `ovs-ofctl dump-flows BRIDGE`")]
    Empty,
}

/// Returns advice for a port that a dump names.
fn of_names(error: &RuleTextError) -> &'static str {
    match &error.problem {
        RuleTextProblem::UnknownPort { .. }
        | RuleTextProblem::Match(MatchError::BadValue {
            name: "in_port" | "in_phy_port", ..
        }) => "; port names are specific to a switch: dump with `ovs-ofctl --no-names`",
        _ => "",
    }
}

impl DumpError {
    /// Returns whether another switch may accept the rule.
    ///
    /// It is then known but not supported, or not similar to a known name. Otherwise the text has a
    /// mistake.
    pub(crate) fn is_foreign(&self) -> bool {
        let Self::Rule { source, .. } = self else { return false };
        match &source.problem {
            RuleTextProblem::NotYet(_)
            | RuleTextProblem::ReadOnly(_)
            | RuleTextProblem::MatchOnly(_)
            | RuleTextProblem::Match(MatchError::Unmatchable(_)) => true,
            RuleTextProblem::UnknownAction { nearest, .. }
            | RuleTextProblem::UnknownField { nearest, .. }
            | RuleTextProblem::Match(MatchError::UnknownField { nearest, .. }) => nearest.is_none(),
            _ => false,
        }
    }
}
