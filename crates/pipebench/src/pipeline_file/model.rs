//! The data model of a pipeline file.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};

use super::{check::check, field::Field};
use crate::{PipelineError, groups::connected};

/// The content of a pipeline file: tables, and the paths of packets in them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineFile {
    /// The short name of the pipeline.
    pub pipeline: String,
    /// The title of the pipeline.
    #[serde(default)]
    pub title: String,
    /// Published counts of the pipeline, for comparison.
    #[serde(default)]
    pub published_counts: Option<PublishedCounts>,
    /// Published number of OpenFlow rules for 10,000 filters.
    #[serde(default)]
    pub published_rules: Option<u32>,
    /// Documents from which the tables were derived.
    #[serde(default)]
    pub provenance: Vec<String>,
    /// Inferred facts, and other notes.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The fields that differ between the flows of workloads.
    #[serde(default = "eight_fields")]
    pub driven_fields: Vec<Field>,
    /// Tables of the pipeline.
    pub tables: Vec<PipelineTable>,
    /// Pairs of tables that may follow each other.
    pub edges: Vec<Edge>,
    /// The traversals of packets.
    pub traversals: Vec<PipelineTraversal>,
    /// Derived counts in the file, which are ignored.
    #[serde(default, rename = "counts")]
    _counts: IgnoredAny,
    #[serde(default, rename = "traversal_paths")]
    _traversal_paths: IgnoredAny,
}

/// Returns the match fields of a table without `match_fields`.
fn eight_fields() -> Vec<Field> {
    let names =
        ["eth_type", "eth_src", "eth_dst", "ip_proto", "ip_src", "ip_dst", "tp_src", "tp_dst"];
    names.iter().filter_map(|name| Field::new(name).ok()).collect()
}

/// Published counts of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedCounts {
    /// Number of tables of the pipeline.
    pub tables: usize,
    /// Number of traversals of the pipeline.
    pub traversals: usize,
}

/// Name, number and match fields of one table of a pipeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineTable {
    /// Number of the table.
    pub id: u8,
    /// Name of the table.
    #[serde(default)]
    pub name: String,
    /// The fields that the rules of the table match.
    pub match_fields: Vec<Field>,
    /// The fields that the rules of the table write, and other effects.
    #[serde(default)]
    pub writes: Vec<Field>,
    #[serde(default, rename = "match8")]
    _match8: IgnoredAny,
}

/// An edge from one table to another, with an optional condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The table from which the edge leads.
    pub from: u8,
    /// The table to which the edge leads.
    pub to: u8,
    /// Condition for a packet to take this edge.
    pub condition: Option<String>,
}

impl<'de> Deserialize<'de> for Edge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EdgeReader)
    }
}

/// Parses an edge: two table numbers, and an optional condition.
struct EdgeReader;

impl<'de> Visitor<'de> for EdgeReader {
    type Value = Edge;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an edge: [from, to] or [from, to, \"condition\"]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Edge, A::Error> {
        let from = list.next_element()?.ok_or_else(|| Error::invalid_length(0, &self))?;
        let to = list.next_element()?.ok_or_else(|| Error::invalid_length(1, &self))?;
        let condition = list.next_element()?;
        match list.next_element::<IgnoredAny>()? {
            None => Ok(Edge { from, to, condition }),
            Some(_) => Err(Error::invalid_length(4, &self)),
        }
    }
}

/// A sequence of table visits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineTraversal {
    /// Short name of the traversal.
    pub id: String,
    /// The packets that take the traversal.
    #[serde(default)]
    pub name: String,
    /// The end of the traversal.
    pub terminal: Terminal,
    /// The evidence for the traversal.
    #[serde(default)]
    pub basis: String,
    /// The table visits in order.
    pub steps: Vec<TraversalStep>,
    #[serde(default, rename = "path")]
    _path: IgnoredAny,
}

/// The end of a traversal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terminal {
    /// The packets leave by a port.
    Output,
    /// The packets go to a group.
    Group,
    /// The packets leave by their ingress port.
    InPort,
    /// The packets go to the controller.
    Controller,
    /// The packets of the traversal are dropped.
    Drop,
}

impl Terminal {
    /// Returns whether packets are forwarded.
    #[must_use]
    pub const fn forwards(self) -> bool {
        matches!(self, Self::Output | Self::Group)
    }

    /// Returns the name of the end in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Group => "group",
            Self::InPort => "in_port",
            Self::Controller => "controller",
            Self::Drop => "drop",
        }
    }
}

/// A visit of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraversalStep {
    /// Number of the table that the step visits.
    pub table: u8,
    /// The fields that the visit matches.
    #[serde(rename = "match")]
    pub matches: Vec<Field>,
    /// The fields that the visit writes, and other effects.
    #[serde(default)]
    pub set: Vec<Field>,
    /// A note on the visit.
    #[serde(default)]
    pub note: String,
    #[serde(default, rename = "match8")]
    _match8: IgnoredAny,
    #[serde(default, rename = "set8")]
    _set8: IgnoredAny,
}

impl PipelineFile {
    /// Parses and checks a pipeline file.
    ///
    /// # Errors
    ///
    /// If the text has a mistake: the error tells how to correct it.
    pub fn parse(text: &str) -> Result<Self, PipelineError> {
        let pipeline: Self =
            serde_json::from_str(text).map_err(|error| PipelineError::json(text, &error))?;
        check(&pipeline)
            .map_err(|inconsistency| PipelineError::inconsistency(text, inconsistency))?;
        Ok(pipeline)
    }

    /// Returns the name of the pipeline, and its title if it has one.
    pub(super) fn heading(&self) -> String {
        match self.title.as_str() {
            "" => self.pipeline.clone(),
            title => format!("{}: {title}", self.pipeline),
        }
    }

    /// Returns the table with this number, if the pipeline has it.
    #[must_use]
    pub fn table(&self, id: u8) -> Option<&PipelineTable> {
        self.tables.iter().find(|table| table.id == id)
    }

    /// Returns the published number of OpenFlow rules, scaled to `filters` filters.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "filters are few")]
    pub fn published_rules(&self, filters: usize) -> Option<f64> {
        let rules = self.published_rules?;
        Some(f64::from(rules) * filters as f64 / PUBLISHED_FILTERS)
    }

    /// Returns the table in which every traversal starts.
    #[must_use]
    pub fn start(&self) -> Option<u8> {
        self.traversals.first()?.steps.first().map(|step| step.table)
    }
}

/// Number of filters to which the published numbers of rules refer.
const PUBLISHED_FILTERS: f64 = 10_000.0;

impl TraversalStep {
    /// Returns the fields that the visit matches and that traffic varies (`driven`).
    pub fn driven<'a>(&'a self, driven: &'a [Field]) -> impl Iterator<Item = &'a Field> {
        self.matches.iter().filter(|field| driven.contains(field))
    }
}

impl PipelineTraversal {
    /// Returns the tables that the traversal visits.
    pub fn path(&self) -> impl Iterator<Item = u8> {
        self.steps.iter().map(|step| step.table)
    }

    /// Returns the partition points of the traversal, as step numbers.
    ///
    /// `driven` has the fields that traffic varies. At a partition point, none of these fields is
    /// matched both before and after the step. A step that matches none of them belongs to the
    /// part before it.
    #[must_use]
    pub fn partition_points(&self, driven: &[Field]) -> Vec<usize> {
        let fields = |steps: &[TraversalStep]| -> Vec<Field> {
            steps.iter().flat_map(|step| step.driven(driven)).cloned().collect()
        };
        let decides = |step: &TraversalStep| step.driven(driven).next().is_some();
        let places = (1..self.steps.len()).filter(|place| {
            let (before, after) = self.steps.split_at(*place);
            let (earlier, later) = (fields(before), fields(after));
            let apart = earlier.iter().all(|field| !later.contains(field));
            apart && !earlier.is_empty() && after.first().is_some_and(decides)
        });
        places.collect()
    }

    /// Returns the fields that traffic varies (`driven`), in dependent groups.
    ///
    /// Two fields are in one group if a table matches both, or if a chain of such pairs connects
    /// them.
    #[must_use]
    pub fn groups(&self, driven: &[Field]) -> Vec<Vec<Field>> {
        connected(self.steps.iter().map(|step| step.driven(driven).cloned().collect()))
    }
}
