//! What a pipeline must be, beyond its form: a graph whose traversals are ways through it.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{PipelineFile, Traversal};
use crate::PipelineError;

pub(super) fn check(pipeline: &PipelineFile) -> Result<(), PipelineError> {
    check_tables(pipeline)?;
    let start = check_start(pipeline)?;
    pipeline.traversals.iter().try_for_each(|traversal| check_traversal(pipeline, traversal))?;
    check_loops(pipeline)?;
    check_reachable(pipeline, start)
}

fn check_tables(pipeline: &PipelineFile) -> Result<(), PipelineError> {
    let mut known = BTreeSet::new();
    for table in &pipeline.tables {
        if !known.insert(table.id) {
            return Err(PipelineError::TwoTables { table: table.id });
        }
    }
    for edge in &pipeline.edges {
        for table in [edge.from, edge.to] {
            if !known.contains(&table) {
                let edge = format!("the edge [{}, {}]", edge.from, edge.to);
                return Err(PipelineError::NoTable { table, of: edge });
            }
        }
    }
    Ok(())
}

fn check_start(pipeline: &PipelineFile) -> Result<u8, PipelineError> {
    let start = pipeline.start().ok_or(PipelineError::NoTraversal)?;
    let mut ids = BTreeSet::new();
    for traversal in &pipeline.traversals {
        let id = || traversal.id.clone();
        let first = traversal.steps.first().ok_or_else(|| PipelineError::NoSteps { of: id() })?;
        if first.table != start {
            return Err(PipelineError::Start { of: id(), table: first.table, start });
        }
        if !ids.insert(&traversal.id) {
            return Err(PipelineError::TwoTraversals { id: id() });
        }
    }
    Ok(start)
}

fn check_traversal(pipeline: &PipelineFile, traversal: &Traversal) -> Result<(), PipelineError> {
    let of = || format!("the traversal `{}`", traversal.id);
    for step in &traversal.steps {
        if pipeline.table(step.table).is_none() {
            return Err(PipelineError::NoTable { table: step.table, of: of() });
        }
    }
    let mut visits: BTreeMap<u8, usize> = BTreeMap::new();
    for table in traversal.path() {
        let visits = visits.entry(table).or_default();
        *visits = visits.saturating_add(1);
        if *visits > VISITS_MAX {
            return Err(PipelineError::Visits { of: of(), table, max: VISITS_MAX });
        }
    }
    for (from, to) in traversal.path().zip(traversal.path().skip(1)) {
        if !pipeline.edges.iter().any(|edge| (edge.from, edge.to) == (from, to)) {
            return Err(PipelineError::NoEdge { of: of(), from, to });
        }
    }
    Ok(())
}

/// How often a traversal may visit one table.
const VISITS_MAX: usize = 2;

/// A way that leads back would let packets circle. A table may follow itself on a condition.
fn check_loops(pipeline: &PipelineFile) -> Result<(), PipelineError> {
    let again = |edge: &&super::Edge| edge.from == edge.to && edge.condition.is_none();
    if let Some(edge) = pipeline.edges.iter().find(again) {
        return Err(PipelineError::Loop { tables: vec![edge.from, edge.to] });
    }
    // Tables that nothing leads to are taken away again and again; what is left lies on loops, or
    // behind them.
    let mut left: BTreeSet<u8> = pipeline.tables.iter().map(|table| table.id).collect();
    loop {
        let entered: BTreeSet<u8> = edges_within(pipeline, &left).map(|(_, to)| to).collect();
        if entered.len() == left.len() {
            break;
        }
        left = entered;
    }
    let Some(mut table) = left.first().copied() else { return Ok(()) };
    // Each has one before it: going back long enough stays on a loop.
    let mut way = vec![table];
    while let Some((from, _)) = edges_within(pipeline, &left).find(|(_, to)| *to == table) {
        if let Some(place) = way.iter().position(|seen| *seen == from) {
            let mut tables = way.split_off(place);
            tables.push(from);
            tables.reverse();
            return Err(PipelineError::Loop { tables });
        }
        way.push(from);
        table = from;
    }
    Ok(())
}

fn edges_within<'a>(
    pipeline: &'a PipelineFile,
    tables: &'a BTreeSet<u8>,
) -> impl Iterator<Item = (u8, u8)> {
    let edges = pipeline.edges.iter().map(|edge| (edge.from, edge.to));
    edges.filter(|(from, to)| from != to && tables.contains(from) && tables.contains(to))
}

fn check_reachable(pipeline: &PipelineFile, start: u8) -> Result<(), PipelineError> {
    let mut reached = BTreeSet::from([start]);
    loop {
        let ways = pipeline.edges.iter().filter(|edge| reached.contains(&edge.from));
        let more: BTreeSet<u8> = ways.map(|edge| edge.to).chain(reached.iter().copied()).collect();
        if more.len() == reached.len() {
            break;
        }
        reached = more;
    }
    match pipeline.tables.iter().find(|table| !reached.contains(&table.id)) {
        Some(table) => {
            Err(PipelineError::Unreachable { table: table.id, name: table.name.clone(), start })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_file::BUILTIN;

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
    fn the_pipelines_of_the_crate_have_the_published_counts() {
        for builtin in BUILTIN {
            let pipeline = PipelineFile::parse(builtin.json).unwrap();
            let counts = (pipeline.tables.len(), pipeline.traversals.len());
            let published = pipeline.paper_table_3_1.unwrap();
            assert_eq!(counts, (published.tables, published.traversals), "{}", builtin.name);
            assert_eq!(pipeline.pipeline.to_lowercase(), builtin.name);
            assert!(!pipeline.provenance.is_empty());
        }
    }

    #[test]
    fn a_graph_without_loops_is_taken() {
        assert!(file("0 1 2", r#"[[0,1],[1,2],[0,2],[1,1,"again"]]"#, &[0, 1, 1, 2]).is_ok());
    }

    #[test]
    fn a_loop_is_told_by_its_tables() {
        let error = file("0 1 2 3", "[[0,1],[1,2],[2,3],[3,1]]", &[0, 1]).unwrap_err();
        let PipelineError::Loop { tables } = &error else { panic!("{error}") };
        assert_eq!(tables.first(), tables.last());
        assert_eq!(tables.len(), 4, "{error}");
        assert!(matches!(file("0", "[[0,0]]", &[0]), Err(PipelineError::Loop { .. })));
    }

    #[test]
    fn what_is_no_way_through_the_graph_is_refused() {
        let unreachable = file("0 1 2", "[[0,1],[2,1]]", &[0, 1]);
        assert!(matches!(unreachable, Err(PipelineError::Unreachable { table: 2, .. })));
        let missing = file("0 1", "[[0,1],[1,7]]", &[0, 1]);
        assert!(matches!(missing, Err(PipelineError::NoTable { table: 7, .. })));
        let aside = file("0 1 2", "[[0,1],[1,2]]", &[0, 2]);
        assert!(matches!(aside, Err(PipelineError::NoEdge { from: 0, to: 2, .. })));
        assert!(matches!(file("0 0", "[]", &[0]), Err(PipelineError::TwoTables { table: 0 })));
        assert!(matches!(file("0", "[]", &[]), Err(PipelineError::NoTraversal)));
    }

    #[test]
    fn a_misspelled_key_is_told_with_place_and_nearest_name() {
        let text = BUILTIN[1].json.replacen("\"tables\": [", "\"tabels\": [", 1);
        let error = PipelineFile::parse(&text).unwrap_err();
        let PipelineError::Json { line, column, offset, nearest, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*line, *column, nearest.as_deref()), (15, 2, Some("tables")));
        assert!(text[*offset..].starts_with("\"tabels\""));
    }
}
