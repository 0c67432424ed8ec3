//! Errors of pipelines to fill, and of dumps.

use shunt_flow::text::MatchError;
use shunt_pipeline::text::{RuleTextError, RuleTextProblem};

use crate::DistributionError;

/// The reason why a pipeline cannot be filled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// The rule set has no filter.
    #[error("the tables cannot be filled, because there is no filter: add one")]
    NoFilter,
    /// No traversal of the pipeline forwards packets.
    #[error(
        "no traversal of the pipeline forwards packets: select all of them (`--traversals all`, or \
         `terminals=all` in a name)"
    )]
    NothingForwards,
    /// The pipeline has too many tables.
    #[error(
        "the traversals use {tables} tables: a switch has at most {max}, so use fewer traversals"
    )]
    Tables {
        /// Number of tables that the traversals use.
        tables: usize,
        /// The largest number of tables.
        max: usize,
    },
    /// Parameters of the distribution of hosts are invalid.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// The reason why a dump, or a rule of a dump, cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// A rule of the dump cannot be parsed.
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
        /// The mistake in the rule.
        source: Box<RuleTextError>,
    },
    /// The dump has no rule.
    #[error("the dump contains no rule: use the output of `ovs-ofctl dump-flows BRIDGE`")]
    Empty,
}

/// Returns advice on a dump with names of ports.
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
    /// The error is then an unsupported feature, or a word that is not similar to a known name.
    /// Otherwise the text has a mistake.
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
