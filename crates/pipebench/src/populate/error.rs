//! What can be wrong with what a pipeline is filled from, and with dumps of rules.

use shunt_flow::text::MatchError;
use shunt_pipeline::text::{RuleTextError, RuleTextProblem};

use crate::DistributionError;

/// A pipeline that cannot be filled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// There is nothing to fill it with.
    #[error("there is no filter to fill the tables with")]
    NoFilter,
    /// No traversal forwards.
    #[error("no traversal of the pipeline forwards: fill all of them instead")]
    NothingForwards,
    /// More tables than OpenFlow has.
    #[error("the traversals use {tables} tables: a switch has {max}")]
    Tables {
        /// How many.
        tables: usize,
        /// The most.
        max: usize,
    },
    /// Hosts cannot be drawn.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// A text that is no dump of rules, or a rule of one that this crate cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// A rule that cannot be read.
    #[error("line {line}, column {column}: {source}{}", of_names(source))]
    Rule {
        /// The line, from 1.
        line: usize,
        /// The character of the line, from 1.
        column: usize,
        /// The byte of the text.
        offset: usize,
        /// How many bytes are wrong.
        length: usize,
        /// What is wrong.
        source: Box<RuleTextError>,
    },
    /// No rule at all.
    #[error("there is no rule in it: give what `ovs-ofctl dump-flows BRIDGE` prints")]
    Empty,
}

/// What to do about a port that a dump calls by its name.
fn of_names(error: &RuleTextError) -> &'static str {
    match &error.problem {
        RuleTextProblem::UnknownPort { .. }
        | RuleTextProblem::Match(MatchError::BadValue {
            name: "in_port" | "in_phy_port", ..
        }) => "; names of ports are a switch's own: dump with `ovs-ofctl --no-names`",
        _ => "",
    }
}

impl DumpError {
    /// Whether another switch may well have such a rule: what it says is known and not built, or like
    /// nothing that is known. All else is a mistake in the text.
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
