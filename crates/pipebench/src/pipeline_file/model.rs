//! A pipeline as its file has it.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};

use super::{check::check, field::Field};
use crate::{PipelineError, groups::connected};

/// A pipeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineFile {
    /// Its short name.
    pub pipeline: String,
    /// What it is.
    #[serde(default)]
    pub title: String,
    /// What was published of it.
    #[serde(default)]
    pub paper_table_3_1: Option<PublishedCounts>,
    /// How many OpenFlow rules 10,000 filters are said to become.
    #[serde(default)]
    pub openflow_rules_from_10k_classbench: Option<u32>,
    /// Where its tables come from.
    #[serde(default)]
    pub provenance: Vec<String>,
    /// What was inferred, and what else there is to know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The fields that workloads drive.
    #[serde(default = "eight_fields")]
    pub fields8: Vec<Field>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Which table may follow which.
    pub edges: Vec<Edge>,
    /// The ways that packets take.
    pub traversals: Vec<Traversal>,
    /// What follows from the rest, and is not read.
    #[serde(default, rename = "counts")]
    _counts: IgnoredAny,
    #[serde(default, rename = "traversal_paths")]
    _traversal_paths: IgnoredAny,
}

fn eight_fields() -> Vec<Field> {
    let names =
        ["eth_type", "eth_src", "eth_dst", "ip_proto", "ip_src", "ip_dst", "tp_src", "tp_dst"];
    names.iter().filter_map(|name| Field::new(name).ok()).collect()
}

/// Counts that were published of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedCounts {
    /// Tables.
    pub tables: usize,
    /// Traversals.
    pub traversals: usize,
}

/// A table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its number.
    pub id: u8,
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// The fields that its rules match.
    pub match_fields: Vec<Field>,
    /// The fields that its rules write, and their other effects.
    #[serde(default)]
    pub writes: Vec<Field>,
    #[serde(default, rename = "match8")]
    _match8: IgnoredAny,
}

/// From one table to another, perhaps with a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The table before.
    pub from: u8,
    /// The table behind.
    pub to: u8,
    /// When a packet goes this way.
    pub condition: Option<String>,
}

impl<'de> Deserialize<'de> for Edge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EdgeReader)
    }
}

/// Reads an edge: two numbers, perhaps with words.
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

/// A way that packets take.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traversal {
    /// Its short name.
    pub id: String,
    /// Which packets take it.
    #[serde(default)]
    pub name: String,
    /// What becomes of them.
    pub terminal: Terminal,
    /// How it is known.
    #[serde(default)]
    pub basis: String,
    /// The tables, in their order.
    pub steps: Vec<Step>,
    #[serde(default, rename = "path")]
    _path: IgnoredAny,
}

/// What becomes of packets in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terminal {
    /// They leave by a port.
    Output,
    /// They go to a group.
    Group,
    /// They leave by the port that they came in by.
    InPort,
    /// They go to the controller.
    Controller,
    /// They are dropped.
    Drop,
}

impl Terminal {
    /// Whether packets are forwarded.
    #[must_use]
    pub const fn forwards(self) -> bool {
        matches!(self, Self::Output | Self::Group)
    }

    /// What a file calls it.
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
pub struct Step {
    /// The table.
    pub table: u8,
    /// The fields that decide there.
    #[serde(rename = "match")]
    pub matches: Vec<Field>,
    /// The fields that are written, and other effects.
    #[serde(default)]
    pub set: Vec<Field>,
    /// What else there is to know.
    #[serde(default)]
    pub note: String,
    #[serde(default, rename = "match8")]
    _match8: IgnoredAny,
    #[serde(default, rename = "set8")]
    _set8: IgnoredAny,
}

impl PipelineFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and how to mend it.
    pub fn parse(text: &str) -> Result<Self, PipelineError> {
        let pipeline: Self =
            serde_json::from_str(text).map_err(|error| PipelineError::json(text, &error))?;
        check(&pipeline).map_err(|misfit| PipelineError::misfit(text, misfit))?;
        Ok(pipeline)
    }

    /// Its name, and what it is if that is said.
    pub(super) fn heading(&self) -> String {
        match self.title.as_str() {
            "" => self.pipeline.clone(),
            title => format!("{}: {title}", self.pipeline),
        }
    }

    /// The table of a number.
    #[must_use]
    pub fn table(&self, id: u8) -> Option<&Table> {
        self.tables.iter().find(|table| table.id == id)
    }

    /// How many OpenFlow rules so many filters would become as published.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "filters are few")]
    pub fn published_rules(&self, filters: usize) -> Option<f64> {
        let rules = self.openflow_rules_from_10k_classbench?;
        Some(f64::from(rules) * filters as f64 / PUBLISHED_FILTERS)
    }

    /// The table in which every traversal starts.
    #[must_use]
    pub fn start(&self) -> Option<u8> {
        self.traversals.first()?.steps.first().map(|step| step.table)
    }
}

/// Filters that published counts of rules are of.
const PUBLISHED_FILTERS: f64 = 10_000.0;

impl Step {
    /// The fields that decide there, of those that workloads drive.
    pub fn driven<'a>(&'a self, driven: &'a [Field]) -> impl Iterator<Item = &'a Field> {
        self.matches.iter().filter(|field| driven.contains(field))
    }
}

impl Traversal {
    /// The tables that it goes through.
    pub fn path(&self) -> impl Iterator<Item = u8> {
        self.steps.iter().map(|step| step.table)
    }

    /// Where it can be cut so that no field decides both before and after: numbers of steps before.
    ///
    /// A step that no driven field decides belongs to what is before it.
    #[must_use]
    pub fn cuts(&self, driven: &[Field]) -> Vec<usize> {
        let fields = |steps: &[Step]| -> Vec<Field> {
            steps.iter().flat_map(|step| step.driven(driven)).cloned().collect()
        };
        let decides = |step: &Step| step.driven(driven).next().is_some();
        let places = (1..self.steps.len()).filter(|place| {
            let (before, after) = self.steps.split_at(*place);
            let (earlier, later) = (fields(before), fields(after));
            let apart = earlier.iter().all(|field| !later.contains(field));
            apart && !earlier.is_empty() && after.first().is_some_and(decides)
        });
        places.collect()
    }

    /// The driven fields in groups: two are in one group if some table looks at both, or a chain of
    /// tables links them.
    #[must_use]
    pub fn groups(&self, driven: &[Field]) -> Vec<Vec<Field>> {
        connected(self.steps.iter().map(|step| step.driven(driven).cloned().collect()))
    }
}
