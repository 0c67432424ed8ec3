//! A description of a pipeline: tables, fields, paths, and partition points of paths.

use std::fmt;

use super::{field::Field, model::PipelineFile};

/// Formats a description of a pipeline for people.
#[derive(Clone, Copy, Debug)]
pub struct PipelineDescription<'a>(pub &'a PipelineFile);

impl fmt::Display for PipelineDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pipeline = self.0;
        writeln!(f, "{}", pipeline.heading())?;
        write!(f, "{} tables, {} traversals", pipeline.tables.len(), pipeline.traversals.len())?;
        if let Some(published) = pipeline.published_counts {
            write!(f, " (published: {}, {})", published.tables, published.traversals)?;
        }
        writeln!(f, "\ndriven fields: {}\n", list(&pipeline.driven_fields))?;
        self.write_tables(f)?;
        self.write_edges(f)?;
        self.write_traversals(f)?;
        for (what, lines) in [("from", &pipeline.provenance), ("note", &pipeline.notes)] {
            lines.iter().try_for_each(|line| writeln!(f, "{what}: {line}"))?;
        }
        Ok(())
    }
}

impl PipelineDescription<'_> {
    /// Writes the tables with their matched and written fields.
    fn write_tables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tables")?;
        for table in &self.0.tables {
            writeln!(
                f,
                "  {:>3} {:<24} matches {}",
                table.id,
                table.name,
                list(&table.match_fields)
            )?;
            if !table.writes.is_empty() {
                writeln!(f, "  {:>3} {:<24} writes  {}", "", "", list(&table.writes))?;
            }
        }
        writeln!(f)
    }

    /// Writes each edge between tables with its condition.
    fn write_edges(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "edges")?;
        for edge in &self.0.edges {
            let condition = edge.condition.as_deref().unwrap_or("");
            let line = format!("  {:>3} -> {:<3} {condition}", edge.from, edge.to);
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f)
    }

    /// Writes the traversals.
    ///
    /// `|` marks a partition point: no driven field matters both before and after it.
    fn write_traversals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driven = &self.0.driven_fields;
        writeln!(
            f,
            "traversals (`|`: a partition point, without a driven field that matters on both sides)"
        )?;
        for traversal in &self.0.traversals {
            let partition_points = traversal.partition_points(driven);
            let mut path = String::new();
            for (place, table) in traversal.path().enumerate() {
                let before = if partition_points.contains(&place) { " | " } else { " " };
                path.push_str(if place == 0 { "" } else { before });
                path.push_str(&table.to_string());
            }
            let (id, name) = (&traversal.id, &traversal.name);
            let space = if name.is_empty() { "" } else { " " };
            writeln!(f, "  {id}:{space}{name} [{}]", traversal.terminal.name())?;
            writeln!(f, "      path    {path}")?;
            let groups: Vec<String> =
                traversal.groups(driven).iter().map(|group| list(group)).collect();
            writeln!(f, "      disjoint {}", groups.join(" | "))?;
        }
        let is_visited =
            |table: u8| self.0.traversals.iter().any(|one| one.path().any(|id| id == table));
        let unvisited = self.0.tables.iter().map(|table| table.id).filter(|id| !is_visited(*id));
        let unvisited: Vec<String> = unvisited.map(|id| id.to_string()).collect();
        if !unvisited.is_empty() {
            writeln!(f, "  no traversal goes through: {}", unvisited.join(" "))?;
        }
        writeln!(f)
    }
}

/// Returns the names of fields, separated by commas.
pub(super) fn list(fields: &[Field]) -> String {
    if fields.is_empty() {
        return "nothing".to_owned();
    }
    fields.iter().map(Field::name).collect::<Vec<_>>().join(" ")
}
