//! Draws the graph of tables as an SVG picture.
//!
//! Tables are boxes in rows; each table is below all its predecessors. Edges are lines, thicker
//! with more traversals; an edge that skips rows bends around the boxes between.

use std::{collections::BTreeMap, fmt::Write as _};

use super::model::{Edge, PipelineFile, PipelineTable};

/// Draws the graph of tables.
#[must_use]
pub fn picture(pipeline: &PipelineFile) -> String {
    let grid_cells = grid_cells(pipeline);
    let rows = grid_cells.values().map(|(row, _)| row + 1).max().unwrap_or(0);
    let columns = grid_cells.values().map(|(_, column)| column + 1).max().unwrap_or(0);
    let title = format!(
        "{} ({} tables, {} traversals)",
        pipeline.heading(),
        pipeline.tables.len(),
        pipeline.traversals.len(),
    );
    let heading = 2 * MARGIN + title.chars().count() * TITLE_CHARACTER_WIDTH;
    let width = heading.max(2 * MARGIN + columns * COLUMN);
    let height = 2 * MARGIN + rows * ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#456\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"18\" font-size=\"14\">{}</text>\n",
        escape(&title),
    );
    for edge in &pipeline.edges {
        if let (Some(from), Some(to)) = (grid_cells.get(&edge.from), grid_cells.get(&edge.to)) {
            draw_edge(&mut svg, edge, (*from, *to), count_traversals(pipeline, edge));
        }
    }
    for table in &pipeline.tables {
        if let Some(place) = grid_cells.get(&table.id) {
            draw_table(&mut svg, table, *place);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The row and the column of a table.
type GridCell = (usize, usize);

/// Distance of the boxes from the edges, in SVG units.
const MARGIN: usize = 40;
/// Approximate width of a character of the heading.
const TITLE_CHARACTER_WIDTH: usize = 8;
/// Distance between the left edges of two neighbouring boxes.
const COLUMN: usize = 260;
/// Distance between the upper edges of two boxes, one above the other.
const ROW: usize = 86;
/// Width of the box of a table.
const BOX_WIDTH: usize = 190;
/// Height of the box of a table.
const BOX_HEIGHT: usize = 44;
/// Maximum number of characters of a line in a box.
const LINE_MAX: usize = 36;

/// Returns the cells of the tables; the row is the length of the longest path.
fn grid_cells(pipeline: &PipelineFile) -> BTreeMap<u8, GridCell> {
    let mut rows: BTreeMap<u8, usize> = pipeline.tables.iter().map(|table| (table.id, 0)).collect();
    // Without loops, the longest path has fewer steps than there are tables.
    for _ in &pipeline.tables {
        for edge in pipeline.edges.iter().filter(|edge| edge.from != edge.to) {
            let below = rows.get(&edge.from).map_or(0, |row| row + 1);
            if let Some(row) = rows.get_mut(&edge.to) {
                *row = below.max(*row);
            }
        }
    }
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    let place = |(table, row): (u8, usize)| {
        let column = next.entry(row).or_default();
        let place = (row, *column);
        *column += 1;
        (table, place)
    };
    rows.into_iter().map(place).collect()
}

/// Returns the number of traversals that use an edge.
fn count_traversals(pipeline: &PipelineFile, edge: &Edge) -> usize {
    let takes = |path: Vec<u8>| path.windows(2).any(|step| step == [edge.from, edge.to]);
    pipeline.traversals.iter().filter(|traversal| takes(traversal.path().collect())).count()
}

/// Draws the arrow of an edge.
fn draw_edge(svg: &mut String, edge: &Edge, (from, to): (GridCell, GridCell), taken: usize) {
    let middle = |(_, column): GridCell| MARGIN + column * COLUMN + BOX_WIDTH / 2;
    let top = |(row, _): GridCell| MARGIN + row * ROW;
    let (x, y) = (middle(from), top(from) + BOX_HEIGHT);
    let (end_x, end_y) = (middle(to), top(to));
    // The text of the condition is next to the middle of the edge.
    let (mut label_x, label_y) = (x.midpoint(end_x) + 4, y.midpoint(end_y));
    let path = if edge.from == edge.to {
        let (right, y) = (x + BOX_WIDTH / 2, top(from) + BOX_HEIGHT / 2);
        let aside = right + 36;
        format!("M{right} {} C{aside} {} {aside} {} {right} {}", y - 8, y - 20, y + 20, y + 8)
    } else if to.0 > from.0 + 1 {
        // The curve reaches three quarters of the distance to its control points, which is beyond
        // the boxes between.
        let beyond = BOX_WIDTH / 2 + 10 * (to.0 - from.0).min(5);
        let aside = x.max(end_x) + beyond * 4 / 3;
        label_x = x.max(end_x) + beyond + 4;
        // This edge ends next to the edges that come from directly above.
        let end_x = end_x + BOX_WIDTH / 4;
        format!("M{x} {y} C{aside} {} {aside} {} {end_x} {end_y}", y + ROW / 2, end_y - ROW / 2)
    } else {
        format!("M{x} {y} L{end_x} {end_y}")
    };
    let stroke = 1 + taken.min(5);
    let condition = escape(edge.condition.as_deref().unwrap_or(""));
    let dashes = if taken == 0 { " stroke-dasharray=\"4 3\"" } else { "" };
    let _ = writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"#456\" stroke-opacity=\"0.6\" \
         stroke-width=\"{stroke}\"{dashes} marker-end=\"url(#arrow)\">\
         <title>{} to {}: {taken} traversals. {condition}</title></path>",
        edge.from, edge.to,
    );
    if !condition.is_empty() && edge.from != edge.to {
        let _ = writeln!(
            svg,
            "<text x=\"{label_x}\" y=\"{label_y}\" fill=\"#345\" font-size=\"9\">{condition}</text>"
        );
    }
}

/// Draws the box of a table.
fn draw_table(svg: &mut String, table: &PipelineTable, (row, column): GridCell) {
    let (x, y) = (MARGIN + column * COLUMN, MARGIN + row * ROW);
    let fields: Vec<&str> = table.match_fields.iter().map(super::Field::name).collect();
    let fields = fields.join(" ");
    let short: String = fields.chars().take(LINE_MAX).collect();
    let more = if short.len() < fields.len() { ".." } else { "" };
    let name = escape(&table.name);
    let _ = writeln!(
        svg,
        "<g><title>{}</title>\
         <rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"4\" \
         fill=\"#eef4fb\" stroke=\"#456\"/>\
         <text x=\"{}\" y=\"{}\" font-weight=\"bold\">{} {name}</text>\
         <text x=\"{}\" y=\"{}\" font-size=\"9\">{}{more}</text></g>",
        escape(&fields),
        x + 8,
        y + 18,
        table.id,
        x + 8,
        y + 34,
        escape(&short),
    );
}

/// Replaces the characters that have a meaning in SVG.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_file::BUILTIN;

    #[test]
    fn every_table_is_below_its_predecessors() {
        for builtin in BUILTIN {
            let pipeline = PipelineFile::parse(builtin.json).unwrap();
            let grid_cells = grid_cells(&pipeline);
            for edge in pipeline.edges.iter().filter(|edge| edge.from != edge.to) {
                assert!(grid_cells[&edge.from].0 < grid_cells[&edge.to].0, "{edge:?}");
            }
            let svg = picture(&pipeline);
            assert_eq!(svg.matches("<rect").count(), pipeline.tables.len() + 1);
            assert_eq!(svg.matches("marker-end").count(), pipeline.edges.len());
        }
    }

    #[test]
    fn an_edge_that_skips_rows_bends_around_boxes() {
        let pipeline = PipelineFile::parse(
            r#"{"pipeline": "x", "tables": [{"id": 0, "match_fields": []},
            {"id": 1, "match_fields": []}, {"id": 2, "match_fields": []}],
            "edges": [[0, 1], [1, 2], [0, 2]], "traversals": [{"id": "a", "terminal": "drop",
            "steps": [{"table": 0, "match": []}, {"table": 1, "match": []}]}]}"#,
        );
        let svg = picture(&pipeline.unwrap());
        let curve = svg.split("d=\"").find(|part| part.contains(" C")).unwrap();
        let curve = curve.split('"').next().unwrap().replace(['M', 'C'], "");
        let numbers: Vec<f64> = curve.split(' ').map(|number| number.parse().unwrap()).collect();
        let [x, y, x1, y1, x2, y2, x3, y3] = numbers[..] else { panic!("{curve}") };
        let between = f64::from(u32::try_from(MARGIN + ROW).unwrap());
        let (left, right) = (MARGIN as f64, (MARGIN + BOX_WIDTH) as f64);
        for step in 0..=100 {
            let t = f64::from(step) / 100.0;
            let at = |a: f64, b: f64, c: f64, d: f64| {
                let s = 1.0 - t;
                s * s * s * a + 3.0 * s * s * t * b + 3.0 * s * t * t * c + t * t * t * d
            };
            let (x, y) = (at(x, x1, x2, x3), at(y, y1, y2, y3));
            let in_row = (between..between + BOX_HEIGHT as f64).contains(&y);
            assert!(!in_row || !(left..right).contains(&x), "{x} {y}");
        }
    }
}
