//! Semantic checks of a pipeline: the graph has no loops, and traversals follow its edges.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Edge,
    describe::list,
    error::{FilePart, Inconsistency, PipelineFault},
    model::{PipelineFile, PipelineTraversal},
};

/// Checks that the parts of a pipeline fit together.
pub(super) fn check(pipeline: &PipelineFile) -> Result<(), Inconsistency> {
    check_tables(pipeline)?;
    let start = check_start(pipeline)?;
    for (index, traversal) in pipeline.traversals.iter().enumerate() {
        let checked = check_traversal(pipeline, traversal);
        checked.map_err(|fault| FilePart::PipelineTraversal(index).inconsistency(fault))?;
    }
    check_loops(pipeline)?;
    check_reachable(pipeline, start)
}

/// Refuses two tables with one id, and edges to unknown tables.
fn check_tables(pipeline: &PipelineFile) -> Result<(), Inconsistency> {
    let mut known = BTreeSet::new();
    for (index, table) in pipeline.tables.iter().enumerate() {
        if !known.insert(table.id) {
            let fault = PipelineFault::TwoTables { table: table.id };
            return Err(FilePart::PipelineTable(index).inconsistency(fault));
        }
    }
    for (index, edge) in pipeline.edges.iter().enumerate() {
        for table in [edge.from, edge.to] {
            if !known.contains(&table) {
                let of = format!("the edge [{}, {}]", edge.from, edge.to);
                return Err(
                    FilePart::Edge(index).inconsistency(PipelineFault::NoTable { table, of })
                );
            }
        }
    }
    Ok(())
}

/// Returns the only table at which traversals start.
fn check_start(pipeline: &PipelineFile) -> Result<u8, Inconsistency> {
    let start = pipeline.traversals.first().map(|first| first.steps.first().map(|step| step.table));
    let missing = || FilePart::Traversals.inconsistency(PipelineFault::NoTraversal);
    let start = start.ok_or_else(missing)?;
    let mut ids = BTreeSet::new();
    for (index, traversal) in pipeline.traversals.iter().enumerate() {
        let inconsistency = |fault| FilePart::PipelineTraversal(index).inconsistency(fault);
        let id = || traversal.id.clone();
        let first = traversal.steps.first().map(|step| step.table);
        let (Some(table), Some(start)) = (first, start) else {
            return Err(inconsistency(PipelineFault::NoSteps { of: id() }));
        };
        if table != start {
            return Err(inconsistency(PipelineFault::Start { of: id(), table, start }));
        }
        if !ids.insert(&traversal.id) {
            return Err(inconsistency(PipelineFault::TwoTraversals { id: id() }));
        }
    }
    start.ok_or_else(missing)
}

/// Refuses a traversal that the tables do not allow.
fn check_traversal(
    pipeline: &PipelineFile,
    traversal: &PipelineTraversal,
) -> Result<(), PipelineFault> {
    let of = || format!("the traversal `{}`", traversal.id);
    for step in &traversal.steps {
        let Some(table) = pipeline.table(step.table) else {
            return Err(PipelineFault::NoTable { table: step.table, of: of() });
        };
        let missing = step.matches.iter().find(|field| !table.match_fields.contains(field));
        if let Some(field) = missing {
            let has = list(&table.match_fields);
            let field = field.name().to_owned();
            return Err(PipelineFault::NoField { of: of(), table: step.table, field, has });
        }
        if let Some(field) = step.set.iter().find(|field| !table.writes.contains(field)) {
            let has = list(&table.writes);
            let field = field.name().to_owned();
            return Err(PipelineFault::NoWrite { of: of(), table: step.table, field, has });
        }
    }
    let mut visits: BTreeMap<u8, usize> = BTreeMap::new();
    for table in traversal.path() {
        let visits = visits.entry(table).or_default();
        *visits = visits.saturating_add(1);
        if *visits > VISITS_MAX {
            return Err(PipelineFault::Visits { of: of(), table, max: VISITS_MAX });
        }
    }
    for (from, to) in traversal.path().zip(traversal.path().skip(1)) {
        if !pipeline.edges.iter().any(|edge| (edge.from, edge.to) == (from, to)) {
            return Err(PipelineFault::NoEdge { of: of(), from, to });
        }
    }
    Ok(())
}

/// Maximum visits of one table in a traversal.
const VISITS_MAX: usize = 2;

/// Checks that no edges form a loop.
/// A table may follow itself on a condition.
fn check_loops(pipeline: &PipelineFile) -> Result<(), Inconsistency> {
    let again = |edge: &Edge| edge.from == edge.to && edge.condition.is_none();
    if let Some(edge) = pipeline.edges.iter().find(|edge| again(edge)) {
        return Err(loop_error(pipeline, vec![edge.from, edge.to]));
    }
    // Removes tables without predecessors repeatedly; the remaining tables are on loops or after
    // loops.
    let mut left: BTreeSet<u8> = pipeline.tables.iter().map(|table| table.id).collect();
    loop {
        let entered: BTreeSet<u8> = edges_within(pipeline, &left).map(|(_, to)| to).collect();
        if entered.len() == left.len() {
            break;
        }
        left = entered;
    }
    let Some(mut table) = left.first().copied() else { return Ok(()) };
    // Each remaining table has a predecessor, so the path of predecessors ends in a loop.
    let mut path = vec![table];
    while let Some((from, _)) = edges_within(pipeline, &left).find(|(_, to)| *to == table) {
        if let Some(place) = path.iter().position(|seen| *seen == from) {
            let mut tables = path.split_off(place);
            tables.push(from);
            tables.reverse();
            return Err(loop_error(pipeline, tables));
        }
        path.push(from);
        table = from;
    }
    Ok(())
}

/// Returns the error of a loop, at the edge that closes the loop.
fn loop_error(pipeline: &PipelineFile, tables: Vec<u8>) -> Inconsistency {
    let closes = |edge: &Edge| tables.ends_with(&[edge.from, edge.to]);
    let index = pipeline.edges.iter().position(closes).unwrap_or_default();
    FilePart::Edge(index).inconsistency(PipelineFault::Loop { tables })
}

/// Returns the edges between some tables.
fn edges_within<'a>(
    pipeline: &'a PipelineFile,
    tables: &'a BTreeSet<u8>,
) -> impl Iterator<Item = (u8, u8)> {
    let edges = pipeline.edges.iter().map(|edge| (edge.from, edge.to));
    edges.filter(|(from, to)| from != to && tables.contains(from) && tables.contains(to))
}

/// Refuses a table that the start does not reach.
fn check_reachable(pipeline: &PipelineFile, start: u8) -> Result<(), Inconsistency> {
    let mut reached = BTreeSet::from([start]);
    loop {
        let outgoing = pipeline.edges.iter().filter(|edge| reached.contains(&edge.from));
        let more: BTreeSet<u8> =
            outgoing.map(|edge| edge.to).chain(reached.iter().copied()).collect();
        if more.len() == reached.len() {
            break;
        }
        reached = more;
    }
    let mut tables = pipeline.tables.iter().enumerate();
    match tables.find(|(_, table)| !reached.contains(&table.id)) {
        Some((index, table)) => {
            let (table, name) = (table.id, table.name.clone());
            Err(FilePart::PipelineTable(index).inconsistency(PipelineFault::Unreachable {
                table,
                name,
                start,
            }))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PipelineError, pipeline_file::BUILTIN};

    /// Parses a file with some tables, edges, and one traversal.
    fn file(tables: &str, edges: &str, path: &[u8]) -> Result<PipelineFile, PipelineError> {
        let tables: Vec<String> = tables
            .split(' ')
            .map(|id| format!(r#"{{"id":{id},"match_fields":["eth_dst"]}}"#))
            .collect();
        let steps: Vec<String> =
            path.iter().map(|id| format!(r#"{{"table":{id},"match":[]}}"#)).collect();
        PipelineFile::parse(&format!(
            r#"{{"pipeline":"x","tables":[{}],"edges":{edges},"traversals":
            [{{"id":"t","terminal":"drop","steps":[{}]}}]}}"#,
            tables.join(","),
            steps.join(",")
        ))
    }

    #[test]
    fn pipelines_of_crate_have_published_counts() {
        for builtin in BUILTIN {
            let pipeline = PipelineFile::parse(builtin.json).unwrap();
            let counts = (pipeline.tables.len(), pipeline.traversals.len());
            let published = pipeline.published_counts.unwrap();
            assert_eq!(counts, (published.tables, published.traversals), "{}", builtin.name);
            assert_eq!(pipeline.pipeline.to_lowercase(), builtin.name);
            assert!(!pipeline.provenance.is_empty());
        }
    }

    #[test]
    fn a_graph_without_loops_is_accepted() {
        assert!(file("0 1 2", r#"[[0,1],[1,2],[0,2],[1,1,"again"]]"#, &[0, 1, 1, 2]).is_ok());
    }

    /// Returns the fault of a file with this graph.
    fn fault(tables: &str, edges: &str, path: &[u8]) -> PipelineFault {
        match file(tables, edges, path) {
            Err(PipelineError::Fault { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_loop_is_reported_with_its_tables() {
        let fault_of = fault("0 1 2 3", "[[0,1],[1,2],[2,3],[3,1]]", &[0, 1]);
        let PipelineFault::Loop { tables } = &fault_of else { panic!("{fault_of}") };
        assert_eq!(tables.first(), tables.last());
        assert_eq!(tables.len(), 4, "{fault_of}");
        assert!(matches!(fault("0", "[[0,0]]", &[0]), PipelineFault::Loop { .. }));
    }

    #[test]
    fn traversals_must_follow_edges() {
        let unreachable = fault("0 1 2", "[[0,1],[2,1]]", &[0, 1]);
        assert!(matches!(unreachable, PipelineFault::Unreachable { table: 2, .. }));
        let missing = fault("0 1", "[[0,1],[1,7]]", &[0, 1]);
        assert!(matches!(missing, PipelineFault::NoTable { table: 7, .. }));
        let aside = fault("0 1 2", "[[0,1],[1,2]]", &[0, 2]);
        assert!(matches!(aside, PipelineFault::NoEdge { from: 0, to: 2, .. }));
        assert!(matches!(fault("0 0", "[]", &[0]), PipelineFault::TwoTables { table: 0 }));
        assert!(matches!(fault("0", "[]", &[]), PipelineFault::NoSteps { .. }));
    }

    /// A pipeline with one line for each part.
    const LINES: &str = r#"{"pipeline": "x",
"tables": [
  {"id": 0, "match_fields": ["eth_dst"]},
  {"id": 1, "match_fields": ["ip_dst"]}
],
"edges": [
  [0, 1]
],
"traversals": [
  {"id": "a", "terminal": "output", "steps": [{"table": 0, "match": []}, {"table": 1, "match": []}]},
  {"id": "b", "terminal": "drop", "steps": [{"table": 0, "match": []}]}
]}"#;

    #[test]
    fn faults_have_line_and_column() {
        assert!(PipelineFile::parse(LINES).is_ok());
        for (right, wrong, expected) in [
            ("[0, 1]", "[0, 7]", "line 7, column 3: the edge [0, 7] goes through table 7"),
            ("[0, 1]", "[0, 1],\n  [1, 0]", "line 8, column 3: the edges form a loop"),
            ("[0, 1]", "[0, 1], [1, 1]", "line 7, column 11: the edges form a loop"),
            ("[0, 1]", "", "line 10, column 3: the traversal `a` goes from table 0 to 1"),
            ("\"id\": 1", "\"id\": 0", "line 4, column 3: two tables have the number 0"),
            ("\"id\": \"b\"", "\"id\": \"a\"", "line 11, column 3: two traversals"),
            (
                "\"steps\": [{\"table\": 0, \"match\": []}]",
                "\"steps\": []",
                "line 11, column 3: the",
            ),
        ] {
            let message =
                PipelineFile::parse(&LINES.replacen(right, wrong, 1)).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{wrong}: {message}");
        }
        // The parser reports an invalid edge at its current position.
        for (wrong, expected) in [
            ("[0]", "invalid length 1, expected an edge: [from, to]"),
            ("[0, 1, \"x\", 2]", "invalid length 4"),
            ("[0, \"x\"]", "invalid type: string \"x\", expected the number of a table"),
            ("[0, 256]", "invalid value: integer `256`, expected the number of a table"),
            ("{}", "invalid type: map, expected an edge"),
        ] {
            let error = PipelineFile::parse(&LINES.replacen("[0, 1]", wrong, 1)).unwrap_err();
            let PipelineError::Json { line: 7, column, message, .. } = &error else {
                panic!("{error}")
            };
            let end = 3 + wrong.len();
            assert!((3..=end).contains(column) && message.starts_with(expected), "{error}");
        }
        let none = r#"{"pipeline": "x", "tables": [], "edges": [], "traversals": []}"#;
        let message = PipelineFile::parse(none).unwrap_err().to_string();
        assert!(
            message.starts_with("line 1, column 60: the pipeline has no traversal"),
            "{message}"
        );
    }

    #[test]
    fn a_step_must_match_fields_of_its_table() {
        let message = LINES.replacen("\"match\": []", "\"match\": [\"tp_src\", \"eth_dst\"]", 1);
        let message = PipelineFile::parse(&message).unwrap_err().to_string();
        let expected = "line 10, column 3: the traversal `a` matches tp_src in table 0, which \
                        has the `match_fields` eth_dst:";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn a_step_must_write_fields_of_its_table() {
        let message = LINES.replacen("\"match\": []", "\"match\": [], \"set\": [\"ip_src\"]", 1);
        let message = PipelineFile::parse(&message).unwrap_err().to_string();
        let expected = "line 10, column 3: the traversal `a` writes ip_src in table 0, which has \
                        the `writes` nothing:";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn misspelled_key_gets_its_position_and_suggestion() {
        let text = BUILTIN[1].json.replacen("\"tables\": [", "\"tabels\": [", 1);
        let error = PipelineFile::parse(&text).unwrap_err();
        let PipelineError::Json { line, column, offset, nearest, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*line, *column, nearest.as_deref()), (15, 2, Some("tables")));
        assert!(text[*offset..].starts_with("\"tabels\""));
    }
}
